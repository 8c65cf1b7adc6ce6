"""The mathematics: calibrators, ACE, metrics and tests. numpy and scipy only; no Ray, no torch."""

from __future__ import annotations

from ace_ray.calibration.ace import ACE, hard_set
from ace_ray.calibration.base import CALIBRATORS, Calibrator, Identity, make_calibrator
from ace_ray.calibration.metrics import (
    Bins,
    brier,
    difficulty,
    ece,
    ece_of,
    ks_error,
    nll,
    reliability,
)
from ace_ray.calibration.statistics import Significance, two_sample_t
from ace_ray.calibration.temperature import TemperatureScaling

__all__ = [
    "ACE",
    "CALIBRATORS",
    "Bins",
    "Calibrator",
    "Identity",
    "Significance",
    "TemperatureScaling",
    "brier",
    "difficulty",
    "ece",
    "ece_of",
    "hard_set",
    "ks_error",
    "make_calibrator",
    "nll",
    "reliability",
    "two_sample_t",
]
