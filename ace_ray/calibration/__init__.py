"""The mathematics: calibrators, ACE, metrics and tests. numpy and scipy only; no Ray, no torch."""

from __future__ import annotations

from ace_ray.calibration.ace import ACE
from ace_ray.calibration.avuts import AvUTS
from ace_ray.calibration.base import (
    CALIBRATORS,
    Calibrator,
    ConfidenceCalibrator,
    FitReport,
    Identity,
    LogitCalibrator,
    make_calibrator,
    register_calibrator,
)
from ace_ray.calibration.binning import HistogramBinning, Isotonic
from ace_ray.calibration.estimation import (
    Estimation,
    average_thresholded_confidence,
    difference_of_confidences,
)
from ace_ray.calibration.hard_set import hard_set
from ace_ray.calibration.matrix import Dirichlet, MatrixScaling
from ace_ray.calibration.metrics import (
    Bins,
    Streaming,
    aurc,
    brier,
    brier_full,
    classwise_ece,
    difficulty,
    ece,
    ece_of,
    ks_error,
    mce,
    nll,
    reliability,
    smooth_ece,
    split_score,
)
from ace_ray.calibration.persistence import load, save
from ace_ray.calibration.sources import MultiSourceACE
from ace_ray.calibration.spline import Spline
from ace_ray.calibration.statistics import (
    Bootstrap,
    Significance,
    effect_size,
    holm,
    two_sample_t,
    welch,
)
from ace_ray.calibration.temperature import TemperatureScaling, TemperatureTable
from ace_ray.calibration.vector import VectorScaling

__all__ = [
    "ACE",
    "CALIBRATORS",
    "AvUTS",
    "Bins",
    "Bootstrap",
    "Calibrator",
    "ConfidenceCalibrator",
    "Dirichlet",
    "Estimation",
    "FitReport",
    "HistogramBinning",
    "Identity",
    "Isotonic",
    "LogitCalibrator",
    "MatrixScaling",
    "MultiSourceACE",
    "Significance",
    "Spline",
    "Streaming",
    "TemperatureScaling",
    "TemperatureTable",
    "VectorScaling",
    "aurc",
    "average_thresholded_confidence",
    "brier",
    "brier_full",
    "classwise_ece",
    "difference_of_confidences",
    "difficulty",
    "ece",
    "ece_of",
    "effect_size",
    "hard_set",
    "holm",
    "ks_error",
    "load",
    "make_calibrator",
    "mce",
    "nll",
    "register_calibrator",
    "reliability",
    "save",
    "smooth_ece",
    "split_score",
    "two_sample_t",
    "welch",
]
