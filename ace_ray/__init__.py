"""How far a classifier's confidence can be trusted under distribution shift, and what fixes it."""

from __future__ import annotations

from ace_ray.calibration import (
    ACE,
    TemperatureScaling,
    brier,
    ece,
    ks_error,
    nll,
)

__version__ = "0.1.0"
__all__ = ["ACE", "TemperatureScaling", "__version__", "brier", "ece", "ks_error", "nll"]
