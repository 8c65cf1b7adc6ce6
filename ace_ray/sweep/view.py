"""A split, with what all trials on it share: one pass over its logits, a few numbers per sample."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.lattice import Lattice
from ace_ray.calibration.softmax import softmax, top1_confidence
from ace_ray.sweep.fits import LARGE, PER_OCTAVE
from ace_ray.sweep.reference import positions
from ace_ray.sweep.trial import EvaluationSplit, TrialSpec


class Weight(NamedTuple):
    """The weight of f_o: of each sample, and as the results state it."""

    rows: FloatArray
    alpha: float
    raw: float
    batch: int | None

    @property
    def constant(self) -> float | None:
        """The weight, where it is the same of all samples by design."""
        return self.alpha if self.batch is None else None

    @property
    def name(self) -> tuple[float, float, int | None]:
        """What tells it from another weight on the same split."""
        return self.alpha, float(self.rows[0]), self.batch


class View:
    """A split with what all trials on it share."""

    def __init__(self, split: EvaluationSplit, memory: int) -> None:
        self.split = split
        self.memory = memory  # bytes for what is kept of temperatures
        self.z = split.logits
        self.label = positions(split)
        self.classes = None if split.subset is None else np.asarray(split.subset)
        self.width = self.z.shape[1] if self.classes is None else len(self.classes)
        self.large = self.z.size > LARGE
        n = len(self.z)
        self.confidence, self.truth, self.rest = np.empty(n), np.empty(n), np.empty(n)
        self.predicted = np.empty(n, np.intp)
        for rows in row_blocks(*self.z.shape):
            p = softmax(self.kept(rows))
            each, top = np.arange(len(p)), p.argmax(axis=1)
            self.predicted[rows] = top
            self.confidence[rows] = p[each, top]
            self.truth[rows] = p[each, self.label[rows]]
            p[each, top] = 0
            self.rest[rows] = p.sum(axis=1)
        self.correct: BoolArray = self.predicted == self.label

    def kept(self, rows: slice) -> FloatArray:
        """Return a block on the split's classes, in double precision."""
        block = block_of(self.z, rows, np.float64)
        return block if self.classes is None else block[:, self.classes]

    def mean_confidence(self, rows: slice = slice(None)) -> float:
        """Return the mean uncalibrated confidence of some samples, added up as ACE does."""
        found = self.confidence[rows]
        blocks = row_blocks(len(found), self.z.shape[1])
        return sum(float(found[block].sum()) for block in blocks) / len(found)

    @cached_property
    def whole_confidence(self) -> FloatArray:
        """Confidences over all classes, also where the split has only some."""
        if self.classes is None:
            return self.confidence
        blocks = row_blocks(*self.z.shape)
        return np.concatenate([top1_confidence(self.z[rows]) for rows in blocks])

    @cached_property
    def lattice(self) -> Lattice:
        """The effect of any temperature."""
        n = len(self.z)
        at = np.arange(n)
        predicted = self.predicted if self.classes is None else self.classes[self.predicted]
        z = self.z if self.classes is None else self.z[:, self.classes]
        most = self.memory // (24 * n)
        return Lattice(z, np.asarray(self.z[at, predicted]), PER_OCTAVE, most)

    @cached_property
    def lag(self) -> FloatArray:
        """How far the right class's logit lies below the largest (<= 0)."""
        at, keep = np.arange(len(self.z)), np.arange(self.z.shape[1])
        keep = keep if self.classes is None else self.classes
        truth, top = self.z[at, keep[self.label]], self.z[at, keep[self.predicted]]
        return np.asarray(truth.astype(np.float64) - top.astype(np.float64))

    def weight(self, spec: TrialSpec, avg_confidence: float) -> Weight:
        """Return alpha of a trial on this split (Eq. 6), given avgConf of the calibration set."""
        raw = self.mean_confidence() / avg_confidence
        n = len(self.z)
        if spec.batch is not None:
            starts = range(0, n, spec.batch)
            each = [
                _clipped(self.mean_confidence(slice(a, a + spec.batch)) / avg_confidence, spec)
                for a in starts
            ]
            rows = np.repeat(each, spec.batch)[:n]
            return Weight(rows, float(rows.mean()), raw, spec.batch)
        alpha = _clipped(raw, spec) if spec.fixed_alpha is None else spec.fixed_alpha
        return Weight(np.broadcast_to(np.float64(alpha), n), alpha, raw, None)


def _clipped(raw: float, spec: TrialSpec) -> float:
    return min(max(raw, 0.0), 1.0) if spec.clip_alpha else raw
