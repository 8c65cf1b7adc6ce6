"""One set of images, cut into a calibration half and a test half by their names alone.

An official ImageNet validation name carries a number from 1 to 50,000: the calibration half is
the first 25,000 of `numpy.random.default_rng(seed).permutation(50_000) + 1`. Any other name is in
the calibration half if the sha256 of `<seed>/<name>` is even. So a half does not depend on which
other images are there, nor on the layout, and corrupted copies fall into the half of their
originals.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import numpy as np

_OFFICIAL: Final = re.compile(r"(?:^|/)ILSVRC2012_val_(\d{8})(?:_n\d{8})?\.[A-Za-z]+$")
_IMAGES: Final = 50_000


def official_number(name: str) -> int | None:
    """Return the number 1 to 50,000 in an official ImageNet validation name, or None."""
    match = _OFFICIAL.search(name)
    number = int(match[1]) if match else 0
    return number if 1 <= number <= _IMAGES else None


@cache
def _calibrating(seed: int) -> frozenset[int]:
    numbers = np.random.default_rng(seed).permutation(_IMAGES) + 1
    return frozenset(numbers[: _IMAGES // 2].tolist())


def calibrates(names: Iterable[str], seed: int) -> list[bool]:
    """Return for each name whether it is in the calibration half; all others are in the test."""
    official = _calibrating(seed)
    return [
        _even(f"{seed}/{name}") if (number := official_number(name)) is None else number in official
        for name in names
    ]


def _even(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[-1] % 2 == 0
