"""Every fit of a sweep, once: trials that differ in what they do with a calibrator share it.

A fit is a function of its `FitSpec` and the calibration set alone, never of its neighbours: the
records are the same in whatever order, groups or processes the fits were made.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration import (
    Calibrator,
    ConfidenceCalibrator,
    TemperatureScaling,
    TemperatureTable,
    make_calibrator,
)
from ace_ray.calibration.base import FitReport
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.softmax import top1_confidence
from ace_ray.calibration.temperature import bound_message
from ace_ray.errors import AceRayError, ConfigError
from ace_ray.sweep.draws import hard_part, same_size_part, sized_part
from ace_ray.sweep.trial import EVERY_DOMAIN, TrialSpec

# Tables of more elements than this are worth a lattice of temperatures; below, every temperature
# is fitted and applied by itself, to the last digit as a trial alone would.
LARGE: Final = 1 << 19
# Nodes of the lattice: a temperature between two is exact to about 1e-10.
PER_OCTAVE: Final = 16


class FitSpec(NamedTuple):
    """A family, and the part of the calibration set that it is fitted on."""

    calibrator: str
    domain: str | None
    part: Literal["all", "sized", "same_size", "hard"]
    difficulty: float | None = None
    seed: int | None = None
    size: int | None = None


class Fitted(NamedTuple):
    """What came of a fit: a calibrator, or the reason why there is none."""

    calibrator: Calibrator | None
    avg_confidence: float = 1.0  # of the calibration set
    warnings: tuple[str, ...] = ()
    error: str = ""


class Calibration:
    """The calibration set of a domain, with what all fits on it share."""

    def __init__(
        self, logits: FloatArray, label: IntArray, confidence: FloatArray, correct: BoolArray
    ) -> None:
        self.logits, self.label = logits, label
        self.confidence, self.correct = confidence, correct
        self.large = logits.size > LARGE
        # The denominator of alpha, added up as `mean_confidence` does.
        blocks = row_blocks(*logits.shape)
        self.avg_confidence = sum(float(confidence[r].sum()) for r in blocks) / len(confidence)

    @cached_property
    def temperatures(self) -> TemperatureTable:
        """Fits any part in one pass for all of them."""
        return TemperatureTable(self.logits, self.label, per_octave=PER_OCTAVE, dtype=np.float64)


class Domains:
    """The calibration splits of a model: each by itself, and all pooled."""

    def __init__(
        self,
        logits: FloatArray,
        label: IntArray,
        rows: dict[str, slice],
        top1: tuple[FloatArray, BoolArray] | None = None,
    ) -> None:
        self.logits, self.label, self.rows = logits, label, rows
        self.top1 = _top1(logits, label) if top1 is None else top1
        self._known: dict[str | None, Calibration] = {}

    def __getitem__(self, domain: str | None) -> Calibration:
        if domain is not None and domain not in self.rows:
            raise ConfigError(f"need domain {domain!r}; there are {', '.join(self.rows)}")
        if domain not in self._known:
            rows = slice(None) if domain is None else self.rows[domain]
            confidence, correct = self.top1
            self._known[domain] = Calibration(
                self.logits[rows], self.label[rows], confidence[rows], correct[rows]
            )
        return self._known[domain]

    def __reduce__(self) -> tuple[type[Domains], tuple[Any, ...]]:
        """Travel without what can be computed again."""
        return Domains, (self.logits, self.label, self.rows, self.top1)


def _top1(z: FloatArray, y: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return the uncalibrated confidence of each sample, and whether it is right."""
    confidence, correct = np.empty(len(z)), np.empty(len(z), bool)
    for rows in row_blocks(*z.shape):
        block = block_of(z, rows, np.float64)
        correct[rows] = block.argmax(axis=1) == y[rows]
        confidence[rows] = top1_confidence(block)
    return confidence, correct


def fits_of(spec: TrialSpec) -> tuple[FitSpec | None, FitSpec | None]:
    """Return the fits that a trial needs: f_o and f_h, each where it has one."""
    if spec.method in ("uncalibrated", "estimation"):
        return None, None
    assert spec.calibrator is not None
    easy = FitSpec(spec.calibrator, spec.domain, "all")
    if spec.size is not None:
        easy = easy._replace(part="sized", seed=spec.seed, size=spec.size)
    elif spec.same_size:
        easy = easy._replace(part="same_size", difficulty=spec.difficulty, seed=spec.seed)
    hard = FitSpec(spec.calibrator, spec.domain, "hard", spec.difficulty, spec.seed, spec.hard_size)
    return (
        None if spec.method == "hard" else easy,
        None if spec.method == "alone" else hard,
    )


def each_domain(spec: TrialSpec, domains: Iterable[str]) -> list[TrialSpec]:
    """Return a trial's members: one per domain where it takes every domain, otherwise itself."""
    if spec.domain != EVERY_DOMAIN:
        return [spec]
    return [replace(spec, domain=domain) for domain in domains]


def needed_fits(specs: Iterable[TrialSpec], domains: Collection[str] = ()) -> list[FitSpec]:
    """Return every fit of these trials once, given the names of the calibration splits."""
    members = (member for spec in specs for member in each_domain(spec, domains))
    found = (fit for member in members for fit in fits_of(member) if fit is not None)
    return list(dict.fromkeys(found))


def fit(spec: FitSpec, domains: Domains) -> Fitted:
    """Fit one calibrator; what cannot be fitted says why instead."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            calibration = domains[spec.domain]
            calibrator = _fit(spec, calibration)
        except AceRayError as error:
            return Fitted(None, error=str(error))
    messages = tuple(sorted({str(w.message) for w in caught}))
    return Fitted(calibrator, calibration.avg_confidence, messages)


def _fit(spec: FitSpec, calibration: Calibration) -> Calibrator:
    calibrator = make_calibrator(spec.calibrator)
    part = _part(spec, calibration.correct)
    if isinstance(calibrator, ConfidenceCalibrator):
        return _fit_confidence(calibrator, calibration, part)
    if type(calibrator) is TemperatureScaling and calibration.large:
        return _fit_temperature(calibrator, calibration, part)
    return calibrator.fit(calibration.logits, calibration.label, part)


def _part(spec: FitSpec, correct: BoolArray) -> BoolArray | None:
    if spec.part == "all":
        return None
    assert spec.seed is not None
    if spec.part == "sized":
        assert spec.size is not None
        return sized_part(correct, spec.seed, spec.size)
    if spec.part == "same_size":
        return same_size_part(correct, spec.difficulty, spec.seed)
    return hard_part(correct, spec.difficulty, spec.seed, spec.size)


def _fit_confidence(
    calibrator: ConfidenceCalibrator, calibration: Calibration, part: BoolArray | None
) -> Calibrator:
    """Fit on confidences that are already known; the report's NLLs would need the logits."""
    confidence, correct = calibration.confidence, calibration.correct
    if part is not None:
        confidence, correct = confidence[part], correct[part]
    w = np.ones(len(correct))
    done = calibrator._fit_confidence(confidence, correct, w / len(w))
    calibrator.report_ = FitReport(done.converged, done.iterations, done.bound_hit, None, None)
    return calibrator


def _fit_temperature(
    calibrator: TemperatureScaling, calibration: Calibration, part: BoolArray | None
) -> Calibrator:
    mask = np.ones(len(calibration.label), bool) if part is None else part
    # One at a time: a batch of fits would share its stopping rule, and so its last digits.
    calibrator.temperature_ = float(calibration.temperatures.fit(mask[None])[0])
    hit = calibrator.temperature_ in calibrator.bounds
    if hit:
        warnings.warn(bound_message(calibrator.temperature_, calibrator.bounds), stacklevel=2)
    calibrator.report_ = FitReport(True, 1, hit, None, None)
    return calibrator
