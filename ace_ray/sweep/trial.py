"""A trial: a pure function of its spec and the logits. No Ray, no files, no clock."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration import (
    ACE,
    Calibrator,
    ConfidenceCalibrator,
    Identity,
    LogitCalibrator,
    brier,
    ece_of,
    ks_error,
    make_calibrator,
    reliability,
)
from ace_ray.calibration.softmax import true_class
from ace_ray.errors import ConfigError, DataError
from ace_ray.identity import CALIBRATION_CODE, RECORD_SCHEMA, content_key

Method: TypeAlias = Literal["uncalibrated", "alone", "ace", "hard", "estimation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """What is tried.

    `uncalibrated`, a calibrator `alone` (f_o), the calibrator in an `ace`, its `hard` half alone
    (f_h), or the calibrator fitted anew per test set at its estimated difficulty (`estimation`).
    """

    model: str
    method: Method
    calibrator: str | None = None
    difficulty: float | None = None
    seed: int | None = None
    bins: int = 25
    clip_alpha: bool = True
    # What a study adds; None and False are the plain method.
    fixed_alpha: float | None = None  # a fixed weight of f_o instead of the adaptive one
    batch: int | None = None  # alpha from test batches of this size
    space: str | None = None  # what ACE mixes: logits, probs, confidence, geometric
    size: int | None = None  # f_o is fitted on so many random samples of the calibration set
    hard_size: int | None = None  # f_h is fitted on so many random samples of the hard set
    same_size: bool = False  # f_o is fitted on as many samples as the hard set has
    domain: str | None = None  # calibrate on this split alone, where there are several
    bootstrap: int | None = None  # resamples whose ECE the record keeps beside the measurements

    def as_plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)

    def key(self, logits_keys: list[str]) -> str:
        """Return the content key, given the keys of all tables of the model."""
        return content_key(
            {
                "code": CALIBRATION_CODE,
                "record": RECORD_SCHEMA,
                "spec": self.as_plain(),
                "logits": sorted(logits_keys),
            }
        )

    def __str__(self) -> str:
        if self.method == "uncalibrated":
            return f"{self.model} uncalibrated"
        method = "" if self.method == "alone" else f"+{self.method}"
        difficulty = "" if self.difficulty is None else f" d={self.difficulty:g}"
        added = "".join(
            f" {name}={value}"
            for name in ADDED
            if (value := getattr(self, name)) is not None and value is not False
        )
        return f"{self.model} {self.calibrator}{method}{difficulty}{added} seed {self.seed}"


# Fields of a spec that studies add; columns of the results.
ADDED: Final = ("fixed_alpha", "batch", "space", "size", "hard_size", "same_size", "domain")


class EvaluationSplit(NamedTuple):
    """A committed split in memory."""

    benchmark: str
    split: str
    corruption: str | None
    severity: int | None
    role: str
    label: IntArray
    logits: FloatArray
    subset: tuple[int, ...] | None = None  # classes that the split has; None: all


class TrialResult(NamedTuple):
    """One measurement per split, the reliability diagram behind each, and what was odd."""

    measurements: list[dict[str, Any]]
    diagrams: list[dict[str, list[float]]]
    warnings: list[str]


def fit_trial(spec: TrialSpec, splits: list[EvaluationSplit]) -> TrialResult:
    """Fit on the calibration split (several source domains are pooled), measure on every split."""
    calibration = [s for s in splits if s.role == "calibration"]
    if not calibration:
        raise ConfigError(f"{spec.model}: need a calibration split, got none")
    logits, label = calibration[0].logits, calibration[0].label
    if len(calibration) > 1:
        logits = np.concatenate([s.logits for s in calibration])
        label = np.concatenate([s.label for s in calibration])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = _fitted(spec, logits, label)
    measured = [_measure(spec, fitted, split) for split in splits]
    return TrialResult(
        [row for row, _ in measured],
        [diagram for _, diagram in measured],
        sorted({str(w.message) for w in caught}),
    )


def _fitted(spec: TrialSpec, logits: FloatArray, label: IntArray) -> Calibrator | ACE:
    if spec.method == "uncalibrated":
        return Identity().fit(logits, label)
    assert spec.calibrator is not None
    calibrator = make_calibrator(spec.calibrator)
    if spec.method == "alone":
        return calibrator.fit(logits, label)
    assert spec.difficulty is not None
    assert spec.seed is not None
    ace = ACE(calibrator, spec.difficulty, spec.seed, spec.clip_alpha)
    return ace.fit(logits, label)


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
    position = np.full(split.logits.shape[1], -1)
    position[index] = np.arange(len(index))
    label = position[split.label]
    if label.min() < 0:
        raise DataError(f"{split.benchmark}:{split.split}: has a label outside its class subset")
    kept = split.logits[:, index]
    if isinstance(fitted, ACE):
        chosen = copy.copy(fitted)
        chosen.classes = index
        return chosen, split.logits, kept, label
    if isinstance(fitted, LogitCalibrator):
        return Identity().fit(kept, label), fitted.transform(split.logits)[:, index], kept, label
    return fitted, kept, kept, label


def _measure(
    spec: TrialSpec, whole: Calibrator | ACE, split: EvaluationSplit
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    alpha = alpha_raw = None
    fitted, logits, own_logits, label = _restricted(whole, split)
    if isinstance(fitted, ACE):
        alpha_raw = fitted.alpha_raw(logits)
        alpha = fitted.clipped(alpha_raw)
        proba = fitted.predict_proba(logits, alpha)
        confidence = fitted.predict_confidence(logits, alpha)
    else:
        proba = fitted.predict_proba(logits)
        confidence = fitted.predict_confidence(logits)
    family = fitted.easy_ if isinstance(fitted, ACE) else fitted
    # A calibrator of the confidence alone states it for the network's own prediction.
    own = isinstance(family, ConfidenceCalibrator)
    correct = (own_logits if own else proba).argmax(axis=1) == label
    bins = reliability(confidence, correct, spec.bins)
    row = {
        "model": spec.model,
        "benchmark": split.benchmark,
        "split": split.split,
        "corruption": split.corruption,
        "severity": split.severity,
        "role": split.role,
        "calibrator": spec.calibrator,
        "method": spec.method,
        "difficulty": spec.difficulty,
        "seed": spec.seed,
        "alpha": alpha,
        "alpha_raw": alpha_raw,
        "n": len(correct),
        "accuracy": float(correct.mean()),
        "confidence": float(np.mean(confidence)),
        "ece": ece_of(bins),
        "ks": ks_error(confidence, correct),
        "brier": brier(confidence, correct),
        "nll": _finite_nll(proba, label),
    }
    diagram = {name: values.tolist() for name, values in bins._asdict().items()}
    # Imported here: extras needs the spec.
    from ace_ray.sweep.extras import extras

    return row, diagram | extras(spec, confidence, correct, true_class(proba, label))


def _finite_nll(proba: FloatArray, label: IntArray) -> float | None:
    """Return the mean NLL in nats; None where a right class has probability 0 (infinite)."""
    p = true_class(proba, label)
    return float(-np.log(p).mean()) if p.all() else None
