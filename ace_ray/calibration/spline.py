"""Spline calibration (Gupta et al., 2021): recalibrate the top-1 confidence without binning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.interpolate import CubicSpline

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration.arguments import as_count
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
        confidence_: Distinct uncalibrated confidences of the calibration samples, ascending.
        calibrated_: Their calibrated values, not yet clipped to [0, 1].
    """

    space: ClassVar[Space] = "confidence"
    confidence_: FloatArray
    calibrated_: FloatArray

    def __init__(self, knots: int = 6, compat_interpolation: bool = False) -> None:
        self.knots = knots
        self.compat_interpolation = compat_interpolation

    def _fit_confidence(self, confidence: FloatArray, correct: BoolArray, w: FloatArray) -> Fit:
        knots = as_count(self.knots, "knots", 3)
        if len(confidence) < knots:
            raise DataError(
                f"spline: {len(confidence)} samples for {knots} knots; "
                "use a larger calibration set or fewer knots"
            )
        order = np.argsort(confidence, kind="stable")
        s, hit, w = confidence[order], correct[order].astype(np.float64), w[order]
        w = w / w.sum()
        tie = np.cumsum(np.append(False, s[1:] != s[:-1]))
        if not self.compat_interpolation:
            # Equal confidences share their accuracy: the order of the samples does not matter.
            hit = (np.bincount(tie, w * hit) / np.bincount(tie, w))[tie]
        gap = np.cumsum(w * (hit - s))
        # Rank of the first sample 0, of the last 1; evenly spaced where weights are equal.
        rest = 1 - w[0]
        rank = (np.cumsum(w) - w[0]) / rest if rest > 1e-9 else np.linspace(0, 1, len(w))
        rank = np.clip(rank, 0, 1)
        basis = CubicSpline(np.linspace(0, 1, knots), np.eye(knots), bc_type="natural")
        root = np.sqrt(w * len(w))
        values = np.linalg.lstsq(basis(rank) * root[:, None], gap * root, rcond=None)[0]
        calibrated = s + basis(rank, 1) @ values
        if not self.compat_interpolation:
            first = np.flatnonzero(np.append(True, s[1:] != s[:-1]))
            s, calibrated = s[first], np.bincount(tie, calibrated) / np.bincount(tie)
        self.confidence_, self.calibrated_ = s, calibrated
        return Fit()

    def _map(self, confidence: FloatArray) -> FloatArray:
        x, y = self.confidence_, self.calibrated_
        if len(x) == 1:
            return np.full(np.shape(confidence), min(max(float(y[0]), 0.0), 1.0))
        above = np.clip(np.searchsorted(x, confidence, side="left"), 1, len(x) - 1)
        past, ahead = confidence - x[above - 1], x[above] - confidence
        total = np.asarray(past + ahead)
        if self.compat_interpolation:
            past, ahead = ahead, past
        mixed = np.asarray(past * y[above] + ahead * y[above - 1])
        mixed = np.divide(mixed, total, out=np.array(y[above]), where=total > 0)
        out = np.where(confidence >= x[-1], y[-1], np.where(confidence <= x[0], y[0], mixed))
        return np.asarray(np.clip(out, 0, 1))
