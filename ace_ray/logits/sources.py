"""Are the images still those that the logits were made from? Reads every one and compares."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from ace_ray.benchmarks.locate import Located
from ace_ray.benchmarks.split import Split, Unreadable
from ace_ray.config import Config, load_plain
from ace_ray.errors import AceRayError
from ace_ray.logits.images import DIGEST_BYTES, source_digest
from ace_ray.logits.table import audit_part, read_marker, split_folder
from ace_ray.store import Store

_SHOWN: Final = 3
_AT_ONCE: Final = 200


class Comparison(NamedTuple):
    """How many images were compared, a line per changed split, and what could not be compared."""

    images: int
    changed: list[str]
    notes: list[str]


def compare_sources(store: Store, run_id: str, data_root: str | None = None) -> Comparison:
    """Compare the images behind a run with the digests in its logit tables."""
    images = 0
    changed: list[str] = []
    notes: list[str] = []
    config = _config_of(store, run_id)
    if data_root is not None:
        config["data_root"] = data_root
    parsed = load_plain(config, f"run {run_id}")
    seen: set[tuple[str, str]] = set()
    for split, folder in _splits(parsed, notes):
        known = dict(_digests(store, folder))
        place = (split.benchmark, str(sorted(known.items())))
        # Corrupted versions and further models read the same files: once is enough.
        if not known or place in seen:
            continue
        seen.add(place)
        differing = list(_differing(split, known))
        images += len(known)
        if differing:
            named = ", ".join(differing[:_SHOWN])
            more = f" and {len(differing) - _SHOWN:,} more" if len(differing) > _SHOWN else ""
            changed.append(
                f"{split.benchmark}:{split.name}: {len(differing):,} of {len(known):,} images "
                f"changed since their logits were made: {named}{more}; restore them, or delete "
                f"{store.locate(folder)} and run `ace-ray run`"
            )
    return Comparison(images, changed, notes)


def _config_of(store: Store, run_id: str) -> dict[str, Any]:
    found = yaml.safe_load(store.read(f"runs/{run_id}/config.yaml"))
    return dict(found) if isinstance(found, dict) else {}


def _splits(config: Config, notes: list[str]) -> Iterator[tuple[Split, str]]:
    """Yield the run's splits that are made from files, each with the folder of its table."""
    located = Located(config.benchmark_configs(), config.data_root)
    for benchmark in config.benchmark_configs():
        if benchmark.options is None:
            continue
        try:
            splits = located.splits(benchmark.name)
        except AceRayError as error:
            notes.append(f"the images of {benchmark.name} were not compared: {error}")
            continue
        for split in splits:
            for model in config.model_names():
                if not split.drawn:
                    yield split, split_folder(model, benchmark.variant, split.name)


def _digests(store: Store, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield id and digest of every image behind a committed table."""
    marker = read_marker(store, folder)
    for part in marker["parts"] if marker else []:
        audit = audit_part(store, f"{folder}/{part.name}")
        digests = base64.b64decode(audit.info.get("sources", ""))
        for i, sample_id in enumerate(audit.ids if digests else []):
            yield sample_id, digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]


def _differing(split: Split, known: dict[str, bytes]) -> Iterator[str]:
    """Yield the source of every image that is gone or has other bytes."""
    left = set(known)
    for start in range(0, split.rows, _AT_ONCE):
        samples = split.samples.slice(start, start + _AT_ONCE)
        ids, sources = samples.sample_id.to_pylist(), samples.source.to_pylist()
        wanted = [i for i, sample_id in enumerate(ids) if sample_id in known]
        left -= {ids[i] for i in wanted}
        items = split.reader(split.root, [sources[i] for i in wanted])
        for i, item in zip(wanted, items, strict=True):
            if isinstance(item, Unreadable) or source_digest(item) != known[ids[i]]:
                yield sources[i]
    yield from sorted(left)
