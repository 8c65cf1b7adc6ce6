"""A committed split for the sweep: read once, part by part, into memory or into a scratch file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.errors import IntegrityError, UsageError
from ace_ray.logits.table import check_sizes, read_marker, stream_part
from ace_ray.store import Store
from ace_ray.sweep.budget import SAMPLE, TableSize
from ace_ray.sweep.fits import Domains
from ace_ray.sweep.trial import EvaluationSplit


class SplitSource(NamedTuple):
    """Where a split of a model lies, and what it is."""

    model: str
    benchmark: str
    split: str
    corruption: str | None
    severity: int | None
    role: str
    subset: tuple[int, ...] | None
    folder: str
    key: str

    def holding(self, label: IntArray, logits: FloatArray) -> EvaluationSplit:
        """Return the split with its rows."""
        return EvaluationSplit(
            self.benchmark,
            self.split,
            self.corruption,
            self.severity,
            self.role,
            label,
            logits,
            self.subset,
        )


def committed_marker(store: Store, source: SplitSource) -> dict[str, Any]:
    """Return the commit marker of a split; one that is missing or of other logits is an error."""
    marker = read_marker(store, source.folder)
    if marker is None or marker["key"] != source.key:
        raise UsageError(
            f"logits of {source.model} on {source.benchmark}:{source.split} are not committed; "
            "run `ace-ray logits` first, or `ace-ray run` for everything"
        )
    return marker


def table_size(store: Store, source: SplitSource) -> TableSize:
    """Return how large a committed split is."""
    marker = committed_marker(store, source)
    part = max((part.bytes for part in marker["parts"]), default=0)
    calibration = source.role == "calibration"
    return TableSize(marker["rows"], len(marker["classes"]), part, calibration)


@contextmanager
def opened(store: Store, source: SplitSource, memory: int | None) -> Iterator[EvaluationSplit]:
    """Read a split; a table that wants more than half of `memory` waits in a file without a name.

    Such a file's pages are the system's to keep or to drop; the numbers are the same.
    """
    marker = committed_marker(store, source)
    check_sizes(store, source.folder, marker)
    rows, filled = marker["rows"], 0
    label = np.empty(rows, np.int32)
    logits: FloatArray | None = None
    with ExitStack() as stack:
        for part in marker["parts"]:
            path = f"{source.folder}/{part.name}"
            for batch in stream_part(store, path, ["label", "logits"]):
                block = batch["logits"].to_numpy_ndarray()
                if logits is None:
                    logits = _room(stack, (rows, block.shape[1]), memory)
                end = filled + len(block)
                if end <= rows:
                    logits[filled:end], label[filled:end] = block, batch["label"].to_numpy()
                filled = end
            # Arrow keeps what it freed for later; a budget wants it back.
            pa.default_memory_pool().release_unused()
        if filled != rows or logits is None:
            raise IntegrityError(
                f"{store.locate(source.folder)}: {filled:,} rows, expected {rows:,}; "
                "run `ace-ray logits --repair`"
            )
        yield source.holding(label, logits)


def _room(stack: ExitStack, shape: tuple[int, int], memory: int | None) -> FloatArray:
    if memory is None or shape[0] * (4 * shape[1] + SAMPLE) <= memory // 2:
        return np.empty(shape, np.float32)
    scratch: Any = tempfile.TemporaryFile
    file = stack.enter_context(scratch(prefix="ace-ray-sweep-"))
    return np.asarray(np.memmap(file, np.float32, "w+", shape=shape))


def pooled(calibration: Sequence[EvaluationSplit]) -> Domains:
    """Return the calibration splits as one set that knows its parts."""
    rows, start = {}, 0
    for split in calibration:
        rows[split.split] = slice(start, start + len(split.label))
        start += len(split.label)
    if len(calibration) == 1:
        return Domains(calibration[0].logits, calibration[0].label, rows)
    logits = np.concatenate([split.logits for split in calibration])
    return Domains(logits, np.concatenate([split.label for split in calibration]), rows)
