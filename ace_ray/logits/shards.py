"""A shard: a run of samples of one unit that becomes one part, and its way from row to part.

A row of the Ray dataset is a shard, not a sample: Ray Data may split and merge blocks but never a
row, so a part holds the same samples in the same batches whatever the number of workers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from ace_ray.benchmarks.corruptions import ConstantSet
from ace_ray.benchmarks.split import Corrupted, Reader
from ace_ray.identity import sample_seed
from ace_ray.logits.images import load_images
from ace_ray.logits.table import encode_part
from ace_ray.logits.units import Unit
from ace_ray.models.registry import Preprocessing

# Small ones in large shards: each costs Ray some milliseconds (measured: docs/extraction.md).
_MOST_ROWS: Final = 2000
# A shard's images travel together: large ones go in smaller shards.
_IMAGE_BYTES: Final = 80_000_000


class Shard(NamedTuple):
    """A run of consecutive samples of a unit."""

    unit: Unit
    part: str
    start: int
    stop: int

    @property
    def path(self) -> str:
        """Where its part is staged."""
        return f"{self.unit.staged}/{self.part}"

    def as_table(self) -> pa.Table:
        """Return everything that a worker needs, as one row."""
        split = self.unit.split
        samples = split.samples.slice(self.start, self.stop)
        shift = split.corrupted
        row = {
            "key": self.unit.key,
            "path": self.path,
            "part": self.part,
            "benchmark": split.benchmark,
            "split": split.name,
            "samples": split.digest,
            "classes": json.dumps(split.classes),
            "subset": json.dumps(split.subset),
            "reader": reader_name(split.reader),
            "root": split.root,
            "drawn": split.drawn,
            "corruption": shift.name if shift else "",
            "severity": shift.severity if shift else 0,
            "constant_set": shift.constant_set if shift else "",
            "textures": shift.textures if shift else "",
            "side": (shift.side or 0) if shift else 0,
        }
        lists = {
            "sample_id": samples.sample_id,
            "label": pa.array(samples.label),
            "source": samples.source,
        }
        offsets = pa.array([0, self.stop - self.start], pa.int32())
        return pa.table(
            {name: [value] for name, value in row.items()}
            | {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists.items()}
        )


def shard_rows(preprocessing: Preprocessing) -> int:
    """Return how many samples a shard has at a network's input size."""
    height, width = preprocessing.input_size
    return max(1, min(_MOST_ROWS, _IMAGE_BYTES // (height * width * 3)))


def shards_of(unit: Unit) -> list[Shard]:
    """Cut a unit into shards."""
    assert unit.source is not None
    step = shard_rows(unit.source.preprocessing)
    return [
        Shard(unit, f"part-{unit.key[:12]}-{i:05d}.parquet", start, min(start + step, unit.rows))
        for i, start in enumerate(range(0, unit.rows, step))
    ]


def reader_name(reader: Reader) -> str:
    """Return the name under which a reader is handed to the workers."""
    return f"{reader.__module__}.{reader.__qualname__}"


def load_shard(
    row: Mapping[str, Any], readers: Mapping[str, Reader], preprocessing: Preprocessing
) -> dict[str, Any]:
    """Replace a shard's sources by its images: read, decoded, corrupted, resized."""
    ids = [str(i) for i in row["sample_id"]]
    sources = [str(s) for s in row["source"]]
    shift = None
    seeds: list[int] = []
    if row["corruption"]:
        name, severity = str(row["corruption"]), int(row["severity"])
        shift = Corrupted(
            name,
            severity,
            cast(ConstantSet, str(row["constant_set"])),
            str(row["textures"]),
            int(row["side"]) or None,
        )
        seeds = [sample_seed(i, name, severity) for i in ids]
    items = readers[str(row["reader"])](str(row["root"]), sources)
    loaded = load_images(items, preprocessing, shift, seeds, digests=not row["drawn"])
    kept = ("key", "path", "part", "benchmark", "split", "samples", "classes", "subset")
    label = np.asarray(row["label"], np.int32)
    return {
        **{name: str(row[name]) for name in kept},
        "sample_id": [ids[i] for i in loaded.kept],
        "label": label[loaded.kept],
        "images": loaded.images,
        "digests": loaded.digests,
        "bad_id": [ids[bad.at] for bad in loaded.bad],
        "bad_source": [sources[bad.at] for bad in loaded.bad],
        "bad_reason": [bad.reason for bad in loaded.bad],
    }


def make_part(
    row: Mapping[str, Any],
    logits: np.ndarray[Any, Any],
    features: np.ndarray[Any, Any] | None,
    facts: Mapping[str, Any],
) -> bytes:
    """Return the Parquet file of a predicted shard; `facts` is what the model adds to it."""
    bad = zip(row["bad_id"], row["bad_source"], row["bad_reason"], strict=True)
    metadata = {
        **{name: str(row[name]) for name in ("key", "benchmark", "split", "samples")},
        **{name: json.loads(str(row[name])) for name in ("classes", "subset")},
        **facts,
        # Short digests of the images' bytes, for `ace-ray validate`.
        "sources": base64.b64encode(row["digests"]).decode(),
        "quarantined": [[str(value) for value in entry] for entry in bad],
    }
    ids = [str(i) for i in row["sample_id"]]
    return encode_part(ids, np.asarray(row["label"]), logits, metadata, features)
