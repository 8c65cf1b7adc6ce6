"""All trials of a model on one split, each by the cheapest way that its family has.

- a map of the confidence needs the confidences alone,
- a temperature a lattice of row moments (`calibration.lattice`),
- vector scaling one walk over the logits for all fitted parameters (`vector_mixture`),
- anything else, and any small table, the calibrator itself, block by block.

Which way is taken depends on the family and the table, never on the other trials.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from ace_ray.arrays import FloatArray
from ace_ray.calibration import (
    ACE,
    AvUTS,
    Calibrator,
    ConfidenceCalibrator,
    LogitCalibrator,
    TemperatureScaling,
    VectorScaling,
)
from ace_ray.calibration.ace import mix_confidence
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.softmax import softmax, true_class
from ace_ray.calibration.vector_mixture import mix_probabilities
from ace_ray.sweep.measure import Figures, Measured, Output, as_row, figures
from ace_ray.sweep.trial import TrialSpec
from ace_ray.sweep.view import View, Weight

_BYTES_PER_SAMPLE: Final = 24  # of a job's outputs while it is computed


class Job(NamedTuple):
    """A trial with its calibrators: f_o, f_h or both; neither is the network itself."""

    spec: TrialSpec
    easy: Calibrator | None
    hard: Calibrator | None
    weight: Weight | None  # of f_o, where there are both

    @property
    def calibrator(self) -> Calibrator | None:
        """The one that there is, or either."""
        return self.hard if self.easy is None else self.easy

    def says(self) -> Hashable:
        """Return what its outputs depend on: trials that say the same are computed once."""
        if self.weight is None:
            return id(self.calibrator), self.spec.bins, self.spec.bootstrap
        # f_h has no weight where alpha is 1.
        hard = None if self.weight.constant == 1 else id(self.hard)
        weight = (self.spec.space, self.weight.name)
        return id(self.easy), hard, *weight, self.spec.bins, self.spec.bootstrap


def evaluate(view: View, jobs: Sequence[Job], memory: int) -> list[Measured]:
    """Return the measurement of each trial on the split.

    Args:
        view: The split.
        jobs: The trials.
        memory: Bytes for what the jobs of one walk over the logits keep; more jobs, more walks.
    """
    different = {job.says(): job for job in jobs}
    found: dict[Hashable, Figures] = {}
    walking: dict[str, list[tuple[Hashable, Job]]] = {"vector": [], "blocks": []}
    for says, job in different.items():
        way = _way(view, job)
        if way == "direct":
            found[says] = figures(_direct(view, job), job.spec)
        else:
            walking[way].append((says, job))
    most = max(1, memory // (_BYTES_PER_SAMPLE * len(view.z)))
    for kind, members in walking.items():
        walk = _vector if kind == "vector" else _blocks
        for start in range(0, len(members), most):
            some = members[start : start + most]
            outputs = walk(view, [job for _, job in some])
            for (says, job), output in zip(some, outputs, strict=True):
                found[says] = figures(output, job.spec)
    return [
        as_row(
            job.spec,
            view.split,
            found[job.says()],
            *((None, None) if job.weight is None else (job.weight.alpha, job.weight.raw)),
        )
        for job in jobs
    ]


def _way(view: View, job: Job) -> Literal["direct", "vector", "blocks"]:
    f = job.calibrator
    if f is None or isinstance(f, ConfidenceCalibrator):
        return "direct"
    inside = job.weight is None or bool(((job.weight.rows >= 0) & (job.weight.rows <= 1)).all())
    if not view.large or not inside:
        return "blocks"
    if isinstance(f, TemperatureScaling | AvUTS):
        return "direct"
    mixed = job.weight is not None and job.weight.constant != 1
    if isinstance(f, VectorScaling) and mixed and job.spec.space in (None, "probs"):
        return "vector"
    return "blocks"


def _direct(view: View, job: Job) -> Output:
    f = job.calibrator
    if f is None:
        return Output(view.confidence, view.correct, view.truth)
    if isinstance(f, ConfidenceCalibrator):
        return _confidences(view, job)
    return _temperatures(view, job)


def _confidences(view: View, job: Job) -> Output:
    maps = [f for f in (job.easy, job.hard) if isinstance(f, ConfidenceCalibrator)]
    each = [f._map(view.confidence) for f in maps]
    confidence = each[0]
    if job.weight is not None:
        geometric = job.spec.space == "geometric"
        confidence = mix_confidence(each[0], each[1], job.weight.rows, geometric=geometric)
    # As `with_top`: the other classes share what the first leaves, in proportion.
    lost = view.rest < 1e-290
    left = np.divide(1 - confidence, view.rest, out=np.zeros_like(confidence), where=~lost)
    truth = np.where(lost, (1 - confidence) / (view.width - 1), view.truth * left)
    return Output(confidence, view.correct, np.where(view.correct, confidence, truth))


def _temperatures(view: View, job: Job) -> Output:
    inverse = [
        1 / f.temperature_
        for f in (job.easy, job.hard)
        if isinstance(f, TemperatureScaling | AvUTS)
    ]
    if job.weight is None:
        return Output(*_scaled(view, inverse[0]))
    alpha = job.weight.rows if job.weight.constant is None else job.weight.constant
    if job.spec.space in (None, "logits", "geometric"):
        return Output(*_scaled(view, alpha * inverse[0] + (1 - alpha) * inverse[1]))
    (c_o, hit, t_o), (c_h, _, t_h) = (_scaled(view, b) for b in inverse)
    return Output(alpha * c_o + (1 - alpha) * c_h, hit, alpha * t_o + (1 - alpha) * t_h)


def _scaled(view: View, inverse: float | FloatArray) -> Output:
    lse = view.lattice.log_sum_exp(inverse)
    return Output(np.exp(-lse), view.correct, np.exp(inverse * view.lag - lse))


def _vector(view: View, jobs: list[Job]) -> list[Output]:
    outputs: dict[int, Output] = {}
    for easy in {id(job.easy): job.easy for job in jobs}.values():
        assert isinstance(easy, VectorScaling)
        mine = [i for i, job in enumerate(jobs) if job.easy is easy]
        hard = [f for i in mine if isinstance(f := jobs[i].hard, VectorScaling)]
        alpha = [w.rows for i in mine if (w := jobs[i].weight) is not None]
        mixed = mix_probabilities(view.z, view.label, easy, hard, alpha, view.classes)
        for i, confidence, predicted, truth in zip(mine, *mixed, strict=True):
            outputs[i] = Output(confidence, predicted == view.label, truth)
    return [outputs[i] for i in range(len(jobs))]


def _blocks(view: View, jobs: list[Job]) -> list[Output]:
    n = len(view.z)
    outputs = [Output(np.empty(n), np.empty(n, bool), np.empty(n)) for _ in jobs]
    mixtures = [None if job.weight is None else mixture(view, job) for job in jobs]
    for rows in row_blocks(*view.z.shape):
        block = block_of(view.z, rows, np.float64)
        for job, ace, output in zip(jobs, mixtures, outputs, strict=True):
            if ace is not None and job.weight is not None:
                weight = job.weight.rows[rows]
                p = ace._proba(block, weight)
                stated = ace._mixed_confidence(block, weight) if ace._by_confidence() else None
            else:
                p, stated = _single(view, job, block)
            output.confidence[rows] = p.max(axis=1) if stated is None else stated
            output.correct[rows] = p.argmax(axis=1) == view.label[rows]
            output.truth[rows] = true_class(p, view.label[rows])
    return outputs


def _single(view: View, job: Job, block: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    f = job.calibrator
    assert f is not None
    if isinstance(f, LogitCalibrator):
        mapped = f._map_logits(block)
        return softmax(mapped if view.classes is None else mapped[:, view.classes]), None
    kept = block if view.classes is None else block[:, view.classes]
    return f._proba(kept), f._confidence(kept)


def mixture(view: View, job: Job) -> ACE:
    """Return the ACE of a job that has both calibrators, on the split's classes."""
    assert job.easy is not None
    assert job.hard is not None
    ace = ACE(job.easy, space=job.spec.space, classes=view.classes)
    ace.easy_, ace.hard_ = job.easy, job.hard
    return ace
