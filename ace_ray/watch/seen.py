"""What can be known of a model without loading it: the digest of its file, or its revision."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ace_ray.config import Config
from ace_ray.identity import (
    CALIBRATION_CODE,
    EXTRACTION_CODE,
    RECORD_SCHEMA,
    TABLE_SCHEMA,
    content_key,
)
from ace_ray.logits.units import imported_units
from ace_ray.models.config import ModelConfig
from ace_ray.plan import results_only
from ace_ray.progress import say
from ace_ray.store import Store

_DIGESTS: Final = "watch/digests.json"
_SECONDS: Final = 10.0


class Seen:
    """Digests of files, remembered by path, size and time: content decides when these change."""

    def __init__(self, store: Store) -> None:
        self.store = store
        known = store.exists and store.has(_DIGESTS)
        self.files: dict[str, Any] = (
            store.read_document(_DIGESTS, {"files": dict})["files"] if known else {}
        )
        self.changed = False

    def save(self) -> None:
        """Keep what was read for the next time."""
        if self.changed:
            self.store.write_json(_DIGESTS, {"files": self.files})
            self.changed = False

    def fingerprint(self, model: ModelConfig, config: Config) -> str:
        """Return what identifies a model's run before anything is loaded.

        Raises:
            OSError: If a file of the model cannot be read.
        """
        unknown = [b.name for b in config.benchmark_configs() if b.options is None]
        imported = [u.key for name in unknown for u in imported_units(self.store, model.name, name)]
        return content_key(
            {
                "config": results_only(config.as_plain()),
                "weights": self._weights(model),
                "imported": imported,
                "code": [TABLE_SCHEMA, EXTRACTION_CODE, CALIBRATION_CODE, RECORD_SCHEMA],
                "timm": version("timm"),
            }
        )

    def _weights(self, model: ModelConfig) -> list[str]:
        if model.ensemble:
            return [seen for member in model.ensemble for seen in self._weights(member)]
        if model.checkpoint:
            return [self._digest(Path(model.checkpoint).expanduser())]
        kind, _, rest = model.source.partition(":")
        if kind == "local-dir":
            return [self._digest(p) for p in sorted(Path(rest).expanduser().iterdir())
                    if p.is_file()]  # fmt: skip
        return [hub_revision(rest)] if kind == "hf-hub" else []

    def _digest(self, path: Path) -> str:
        stat, name = path.stat(), str(path.absolute())
        stamp = [stat.st_size, stat.st_mtime_ns]
        known = self.files.get(name)
        if known is None or known[:2] != stamp:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            self.files[name] = known = [*stamp, digest]
            self.changed = True
        return str(known[2])


def hub_revision(repository: str) -> str:
    """Return the commit of a repository of the hub; "unknown" where the hub cannot be asked."""
    name, _, revision = repository.partition("@")
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    tail = f"/revision/{quote(revision, safe='')}" if revision else ""
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(  # noqa: S310 - the hub's address, or the user's own
        f"{endpoint.rstrip('/')}/api/models/{quote(name)}{tail}", headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            return str(json.load(answer)["sha"])
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        say(
            f"warning: hf-hub:{name}: the hub cannot be asked for its revision "
            f"({type(error).__name__}); the weights at hand are meant"
        )
        return "unknown"
