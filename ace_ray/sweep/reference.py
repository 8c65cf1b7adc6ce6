"""A trial by itself, in straight lines: what the engine must agree with. No Ray, no files."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration import (
    ACE,
    Calibrator,
    ConfidenceCalibrator,
    Estimation,
    Identity,
    LogitCalibrator,
    make_calibrator,
)
from ace_ray.calibration.metrics import difficulty as difficulty_of
from ace_ray.calibration.softmax import mean_confidence, true_class
from ace_ray.errors import ConfigError, DataError
from ace_ray.sweep.draws import hard_part, same_size_part, sized_part
from ace_ray.sweep.measure import Measured, Output, as_row, figures
from ace_ray.sweep.trial import EVERY_DOMAIN, EvaluationSplit, TrialResult, TrialSpec

_DATA: Final = ("logits", "label")


def fit_trial(spec: TrialSpec, splits: list[EvaluationSplit]) -> TrialResult:
    """Fit on the calibration split, measure on every split.

    Several source domains are pooled, or one ACE is fitted on each and their outputs are averaged.
    """
    calibration = [s for s in splits if s.role == "calibration"]
    if spec.domain not in (None, EVERY_DOMAIN):
        calibration = [s for s in calibration if s.split == spec.domain]
    if not calibration:
        what = "a calibration split" if spec.domain is None else f"domain {spec.domain!r}"
        raise ConfigError(f"{spec.model}: need {what}, got none")
    # All pooled, or each by itself.
    sets = [[s] for s in calibration] if spec.domain == EVERY_DOMAIN else [calibration]
    # One thread: how a sum is shared among threads changes its last digits.
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        members = [
            _fitted(spec, *(np.concatenate([getattr(s, name) for s in some]) for name in _DATA))
            for some in sets
        ]
        measured = [_measured(spec, members, split) for split in splits]
    return TrialResult(
        [row for row, _ in measured],
        [diagram for _, diagram in measured],
        sorted({str(w.message) for w in caught}),
    )


def _fitted(spec: TrialSpec, logits: FloatArray, label: IntArray) -> Calibrator | ACE | Estimation:
    if spec.method == "uncalibrated":
        return Identity().fit(logits, label)
    assert spec.calibrator is not None
    assert spec.seed is not None
    calibrator = make_calibrator(spec.calibrator)
    if spec.method == "estimation":
        return Estimation(calibrator, seed=spec.seed).fit(logits, label)
    correct = logits.argmax(axis=1) == label
    easy_part = None
    if spec.size is not None:
        easy_part = sized_part(correct, spec.seed, spec.size)
    elif spec.same_size:
        easy_part = same_size_part(correct, spec.difficulty, spec.seed)
    if spec.method == "alone":
        return calibrator.fit(logits, label, easy_part)
    hard = hard_part(correct, spec.difficulty, spec.seed, spec.hard_size)
    if spec.method == "hard":
        return calibrator.fit(logits, label, hard)
    ace = ACE(calibrator, spec.difficulty, spec.seed, spec.clip_alpha, space=spec.space)
    ace._check_params(logits.shape[1], None)
    ace.width_ = logits.shape[1]
    ace.hard_mask_ = hard
    ace.difficulty_ = difficulty_of(correct[hard])
    ace.avg_confidence_ = mean_confidence(logits)
    ace.easy_ = copy.deepcopy(calibrator).fit(logits, label, easy_part)
    ace.hard_ = copy.deepcopy(calibrator).fit(logits, label, hard)
    return ace


def _restricted(
    fitted: Calibrator | ACE, split: EvaluationSplit
) -> tuple[Calibrator | ACE, FloatArray, FloatArray, IntArray]:
    """Return calibrator, its input, the network's own logits and labels, on the split's classes.

    Maps of logits act on all classes, then the split's are kept; maps of the confidence act on the
    confidence that the kept classes have (as the authors do; see docs/calibration/ace.md).
    """
    if split.subset is None:
        return fitted, split.logits, split.logits, split.label
    index = np.asarray(split.subset)
    label = positions(split)
    kept = split.logits[:, index]
    if isinstance(fitted, ACE):
        chosen = copy.copy(fitted)
        chosen.classes = index
        return chosen, split.logits, kept, label
    if isinstance(fitted, LogitCalibrator):
        return Identity().fit(kept, label), fitted.transform(split.logits)[:, index], kept, label
    return fitted, kept, kept, label


def positions(split: EvaluationSplit) -> IntArray:
    """Return the labels as positions among the split's classes."""
    if split.subset is None:
        return split.label
    position = np.full(split.logits.shape[1], -1)
    position[np.asarray(split.subset)] = np.arange(len(split.subset))
    label = np.asarray(position[split.label])
    if label.min() < 0:
        raise DataError(f"{split.benchmark}:{split.split}: has a label outside its class subset")
    return label


class _Said(NamedTuple):
    """What a calibrator says of a split."""

    proba: FloatArray
    confidence: FloatArray
    by_confidence: bool  # the confidence is stated apart from the probabilities
    own: FloatArray | None  # the network's logits, where its own prediction counts
    alpha: float | None
    alpha_raw: float | None


def _measured(
    spec: TrialSpec, members: Sequence[Calibrator | ACE | Estimation], split: EvaluationSplit
) -> Measured:
    """Measure a calibrator, or the mean of what several say."""
    said = [_said(spec, whole, split) for whole in members]
    proba, confidence, by_confidence, own, alpha, alpha_raw = said[0]
    if len(said) > 1:
        proba = np.mean([s.proba for s in said], axis=0)
        confidence = np.mean([s.confidence for s in said], axis=0)
        if not by_confidence:
            confidence = proba.max(axis=1)
        alpha, alpha_raw = (float(np.mean([s[i] for s in said])) for i in (4, 5))
    label = positions(split)
    # A calibrator of the confidence alone states it for the network's own prediction.
    correct = (proba if own is None else own).argmax(axis=1) == label
    output = Output(confidence, correct, true_class(proba, label))
    return as_row(spec, split, figures(output, spec), alpha, alpha_raw)


def _said(spec: TrialSpec, whole: Calibrator | ACE | Estimation, split: EvaluationSplit) -> _Said:
    if isinstance(whole, Estimation):
        whole = whole.calibrator_for(split.logits)
    alpha = alpha_raw = None
    fitted, logits, own_logits, _ = _restricted(whole, split)
    if isinstance(fitted, ACE):
        alpha_raw = fitted.alpha_raw(logits)
        alpha = fitted.clipped(alpha_raw) if spec.fixed_alpha is None else spec.fixed_alpha
        if spec.batch is not None:
            # The mean over samples of their batches' alpha.
            alphas = np.repeat(fitted.alphas(logits, spec.batch), spec.batch)[: len(logits)]
            alpha = float(alphas.mean())
            proba = fitted.predict_proba(logits, batch_size=spec.batch)
            confidence = fitted.predict_confidence(logits, batch_size=spec.batch)
        else:
            proba = fitted.predict_proba(logits, alpha)
            confidence = fitted.predict_confidence(logits, alpha)
    else:
        proba = fitted.predict_proba(logits)
        confidence = fitted.predict_confidence(logits)
    family = fitted.easy_ if isinstance(fitted, ACE) else fitted
    own = own_logits if isinstance(family, ConfidenceCalibrator) else None
    by_confidence = isinstance(fitted, ACE) and fitted._by_confidence()
    return _Said(proba, confidence, by_confidence, own, alpha, alpha_raw)
