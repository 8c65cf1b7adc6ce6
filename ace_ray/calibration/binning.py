"""Calibrators of the top-1 confidence by grouping: isotonic regression and histogram binning."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration.arguments import as_count
from ace_ray.calibration.base import ConfidenceCalibrator, Fit, Space, register_calibrator
from ace_ray.errors import DataError


@register_calibrator("isotonic")
class Isotonic(ConfidenceCalibrator):
    """Map confidence to accuracy by the best non-decreasing step function (Zadrozny & Elkan, 2002).

    Attributes:
        confidence_: Distinct confidences of the calibration set, ascending.
        accuracy_: The fitted accuracy at each; linear in between, constant outside.
    """

    space: ClassVar[Space] = "confidence"
    confidence_: FloatArray
    accuracy_: FloatArray

    def __init__(self) -> None:
        pass

    def _fit_confidence(self, confidence: FloatArray, correct: BoolArray, w: FloatArray) -> Fit:
        x, group = np.unique(confidence, return_inverse=True)
        mass = np.bincount(group, w)
        mean = np.bincount(group, w * correct) / mass
        self.confidence_, self.accuracy_ = x, np.asarray(isotonic_regression(mean, weights=mass).x)
        return Fit()

    def _map(self, confidence: FloatArray) -> FloatArray:
        return np.asarray(np.interp(confidence, self.confidence_, self.accuracy_))


@register_calibrator("histogram")
class HistogramBinning(ConfidenceCalibrator):
    """Replace a confidence by the accuracy of its bin (Zadrozny & Elkan, 2001).

    Args:
        bins: Number of bins.
        strategy: "width" for bins of equal width, "mass" for bins of equal count.

    Attributes:
        edges_: (bins + 1,) edges; a bin is (lo, hi].
        accuracy_: Accuracy per bin; an empty bin keeps the middle of its range.
    """

    space: ClassVar[Space] = "confidence"
    edges_: FloatArray
    accuracy_: FloatArray

    def __init__(self, bins: int = 25, strategy: Literal["width", "mass"] = "width") -> None:
        self.bins = bins
        self.strategy = strategy

    def _fit_confidence(self, confidence: FloatArray, correct: BoolArray, w: FloatArray) -> Fit:
        as_count(self.bins, "bins")
        if self.strategy not in ("width", "mass"):
            raise DataError(f"strategy: expected 'width' or 'mass', got {self.strategy!r}")
        edges = np.linspace(0, 1, self.bins + 1)
        if self.strategy == "mass":
            order = np.argsort(confidence)
            share = np.cumsum(w[order]) / w.sum()
            cut = np.searchsorted(share, edges[1:-1] - 1e-12)
            edges = np.concatenate([[0.0], confidence[order][cut], [1.0]])
        self.edges_ = edges
        index = self._bin(confidence)
        mass = np.bincount(index, w, self.bins)
        middle = (edges[1:] + edges[:-1]) / 2
        hits = np.bincount(index, w * correct, self.bins)
        self.accuracy_ = np.divide(hits, mass, out=middle, where=mass > 0)
        return Fit()

    def _bin(self, confidence: FloatArray) -> FloatArray:
        return np.clip(np.searchsorted(self.edges_, confidence, side="left") - 1, 0, self.bins - 1)

    def _map(self, confidence: FloatArray) -> FloatArray:
        return np.asarray(self.accuracy_[self._bin(confidence)])
