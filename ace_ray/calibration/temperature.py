"""Temperature scaling (Guo et al., 2017)."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from ace_ray.arrays import FloatArray
from ace_ray.calibration.arguments import as_labels, as_logits, as_weights
from ace_ray.calibration.base import register_calibrator
from ace_ray.calibration.softmax import softmax, top1_confidence, true_class
from ace_ray.errors import DataError


class BoundWarning(UserWarning):
    """A fitted parameter lies on the bound of its range: the optimum is outside."""


@register_calibrator("temperature")
class TemperatureScaling:
    """Divide the logits by one number T that minimises the NLL.

    In the inverse temperature b = 1/T the NLL is convex, with derivative
    `E_p[z] - z_y` averaged over the samples, p = softmax(b z); its root is the optimum.

    Attributes:
        temperature_: T, which divides the logits. The paper's Eq. 8 writes 1/T.
        bound_hit_: Whether the optimum lies outside `bounds`; a `BoundWarning` says so too.
    """

    temperature_: float
    bound_hit_: bool

    def __init__(self, bounds: tuple[float, float] = (0.05, 20.0)) -> None:
        self.bounds = bounds

    def fit(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit T; samples of weight 0 are left out."""
        low, high = self.bounds
        if not 0 < low < high < np.inf:
            raise DataError(f"bounds: expected 0 < low < high, got {self.bounds}")
        z = as_logits(logits)
        y = as_labels(labels, z)
        w = as_weights(weights, len(z))
        used = w > 0
        z, y, w = z[used].astype(np.float64), y[used], w[used] / w.sum()
        z -= z.max(axis=1, keepdims=True)
        target = float(w @ true_class(z, y))

        def slope(inverse: float) -> float:
            p = np.exp(inverse * z)
            expected = np.einsum("ij,ij->i", p, z) / p.sum(axis=1)
            return float(w @ expected) - target

        if slope(1 / high) >= 0:
            self.temperature_, self.bound_hit_ = high, True
        elif slope(1 / low) <= 0:
            self.temperature_, self.bound_hit_ = low, True
        else:
            root = brentq(slope, 1 / high, 1 / low, xtol=1e-13, rtol=1e-12)
            self.temperature_, self.bound_hit_ = 1 / float(root), False
        if self.bound_hit_:
            warnings.warn(
                f"temperature {self.temperature_:g} is at its bound {self.bounds}; "
                "the calibration set asks for more than the bound allows",
                BoundWarning,
                stacklevel=2,
            )
        return self

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Return logits / T in float64."""
        return np.asarray(as_logits(logits).astype(np.float64) / self.temperature_)

    def predict_proba(self, logits: ArrayLike) -> FloatArray:
        """Return softmax(logits / T)."""
        return softmax(self.transform(logits))

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return the largest probability of each row."""
        return top1_confidence(self.transform(logits))
