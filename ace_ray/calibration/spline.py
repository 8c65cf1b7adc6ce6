"""Spline calibration (Gupta et al., 2021): recalibrate the top-1 confidence without binning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from ace_ray.arrays import FloatArray
from ace_ray.calibration.base import ConfidenceCalibrator, Fit, Space, register_calibrator
from ace_ray.errors import DataError


@register_calibrator("spline")
class Spline(ConfidenceCalibrator):
    """Fit a natural cubic spline to the integrated gap between accuracy and confidence.

    With samples sorted by confidence s and t their rank in [0, 1], the spline approximates
    `sum_{i <= t} (correct_i - s_i) / N` in least squares; its derivative at t is how much the
    accuracy exceeds the confidence there, and is added to it. Between calibration samples the map
    is interpolated, outside it is constant.

    Args:
        knots: Number of evenly spaced knots.
        compat_interpolation: Reproduce the published code, which swaps the two interpolation
            weights (a bug: the result steps backwards between neighbours).

    Attributes:
        confidence_: Sorted uncalibrated confidences of the calibration samples.
        calibrated_: Their calibrated values, not yet clipped to [0, 1].
    """

    space: ClassVar[Space] = "confidence"
    confidence_: FloatArray
    calibrated_: FloatArray

    def __init__(self, knots: int = 6, compat_interpolation: bool = False) -> None:
        self.knots = knots
        self.compat_interpolation = compat_interpolation

    def _fit_confidence(self, confidence: FloatArray, correct: FloatArray, w: FloatArray) -> Fit:
        if self.knots < 3:
            raise DataError(f"knots: expected at least 3, got {self.knots}")
        if len(confidence) < self.knots:
            raise DataError(
                f"spline: {len(confidence)} samples for {self.knots} knots; "
                "use a larger calibration set or fewer knots"
            )
        order = np.argsort(confidence, kind="stable")
        s, hit, w = confidence[order], correct[order], w[order]
        w = w / w.sum()
        gap = np.cumsum(w * (hit - s))
        # Rank of the first sample 0, of the last 1; evenly spaced where weights are equal.
        rank = (np.cumsum(w) - w[0]) / (1 - w[0])
        at = np.linspace(0, 1, self.knots)
        basis = CubicSpline(at, np.eye(self.knots), bc_type="natural")
        root = np.sqrt(w * len(w))
        values = np.linalg.lstsq(basis(rank) * root[:, None], gap * root, rcond=None)[0]
        self.confidence_ = s
        self.calibrated_ = s + basis(rank, 1) @ values
        return Fit()

    def map_confidence(self, confidence: ArrayLike) -> FloatArray:
        """Return calibrated confidences, clipped to [0, 1]."""
        p = np.asarray(confidence, np.float64)
        x, y = self.confidence_, self.calibrated_
        above = np.clip(np.searchsorted(x, p, side="left"), 1, len(x) - 1)
        past, ahead = p - x[above - 1], x[above] - p
        total = past + ahead
        if self.compat_interpolation:
            past, ahead = ahead, past
        mixed = np.divide(
            past * y[above] + ahead * y[above - 1], total, out=y[above].copy(), where=total > 0
        )
        out = np.where(p >= x[-1], y[-1], np.where(p <= x[0], y[0], mixed))
        return np.clip(out, 0, 1)
