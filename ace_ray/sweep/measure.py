"""One measurement: what a calibrator says of a split, as a row of the results and a diagram."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration import brier, ece_of, ks_error, reliability
from ace_ray.sweep.extras import extras
from ace_ray.sweep.trial import ADDED, EvaluationSplit, TrialSpec

Measured: TypeAlias = tuple[dict[str, Any], dict[str, list[float]]]


class Output(NamedTuple):
    """What was said of each sample."""

    confidence: FloatArray
    correct: BoolArray
    truth: FloatArray  # probability of the right class


class Figures(NamedTuple):
    """The metrics of an output, and the reliability diagram behind its ECE."""

    metrics: dict[str, Any]
    diagram: dict[str, list[float]]


def figures(output: Output, spec: TrialSpec) -> Figures:
    """Return the metrics, and the reliability diagram with what else the record keeps."""
    confidence, correct = output.confidence, output.correct
    found = reliability(confidence, correct, spec.bins)
    metrics = {
        "n": len(correct),
        "accuracy": float(correct.mean()),
        "confidence": float(np.mean(confidence)),
        "ece": ece_of(found),
        "ks": ks_error(confidence, correct),
        "brier": brier(confidence, correct),
        "nll": _finite_nll(output.truth),
    }
    diagram = {name: values.tolist() for name, values in found._asdict().items()}
    return Figures(metrics, diagram | extras(spec, confidence, correct, output.truth))


def as_row(
    spec: TrialSpec,
    split: EvaluationSplit,
    found: Figures,
    alpha: float | None = None,
    alpha_raw: float | None = None,
) -> Measured:
    """Return the row of the results, with its diagram."""
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
        **{name: getattr(spec, name) for name in ADDED},
        "alpha": alpha,
        "alpha_raw": alpha_raw,
        **found.metrics,
    }
    return row, found.diagram


def _finite_nll(truth: FloatArray) -> float | None:
    """Return the mean NLL in nats; None where a right class has probability 0 (infinite)."""
    return float(-np.log(truth).mean()) if truth.all() else None
