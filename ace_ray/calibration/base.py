"""What a calibrator is, and the registry by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import FloatArray
from ace_ray.calibration.arguments import as_labels, as_logits
from ace_ray.calibration.softmax import softmax, top1_confidence
from ace_ray.errors import UsageError, nearest


class Calibrator(Protocol):
    """A post-hoc map from logits to calibrated probabilities, fitted on labelled logits."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit on (N, C) logits and N labels; a sample of weight 0 is as if absent."""
        ...

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Return calibrated logits."""
        ...

    def predict_proba(self, logits: ArrayLike) -> FloatArray:
        """Return calibrated probabilities (N, C)."""
        ...

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return the calibrated confidence of the top-1 prediction (N,)."""
        ...


CALIBRATORS: dict[str, Callable[[], Calibrator]] = {}
_C = TypeVar("_C", bound=Callable[[], Calibrator])


def register_calibrator(name: str) -> Callable[[_C], _C]:
    """Make a calibrator available under a name in configs and on the command line."""

    def add(factory: _C) -> _C:
        CALIBRATORS[name] = factory
        return factory

    return add


def make_calibrator(name: str) -> Calibrator:
    """Return a fresh calibrator with its default settings."""
    if name not in CALIBRATORS:
        raise UsageError(f"unknown calibrator {name!r}; {nearest(name, CALIBRATORS)}")
    return CALIBRATORS[name]()


class Identity:
    """The calibrator that changes nothing: plain softmax, for the uncalibrated rows."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Do nothing but check the arguments."""
        as_labels(labels, as_logits(logits))
        return self

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Return the logits in float64."""
        return as_logits(logits).astype(np.float64)

    def predict_proba(self, logits: ArrayLike) -> FloatArray:
        """Return softmax(logits)."""
        return softmax(as_logits(logits))

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return the largest probability of each row."""
        return top1_confidence(as_logits(logits))
