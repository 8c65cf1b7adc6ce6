"""The measurements of many trials as one array of bytes: processes share a single copy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Pieces:
    """What was measured, by trial: a JSON list with one entry per split."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._where: dict[str, tuple[int, int]] = {}
        joined = bytearray()
        for key, some in texts.items():
            start = len(joined)
            joined += f"[{','.join(some)}]".encode()
            self._where[key] = start, len(joined)
        self._bytes = np.frombuffer(joined, np.uint8)

    def __getitem__(self, key: str) -> list[dict[str, Any]]:
        start, end = self._where[key]
        found: list[dict[str, Any]] = json.loads(self._bytes[start:end].tobytes())
        return found
