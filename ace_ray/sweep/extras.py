"""What a record keeps of a measurement beside its reliability diagram, where it is asked for."""

from __future__ import annotations

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration.density import nll_histograms
from ace_ray.calibration.resample import ece_resamples
from ace_ray.sweep.trial import TrialSpec


def extras(
    spec: TrialSpec, confidence: FloatArray, correct: BoolArray, truth: FloatArray
) -> dict[str, list[float]]:
    """Return more entries of a measurement's diagram.

    `nll_right` and `nll_wrong` of the uncalibrated network (fig_nll), `ece_resampled` where the
    spec asks for a bootstrap (intervals in ttest and welch).

    Args:
        spec: The trial.
        confidence: (N,) calibrated top-1 confidences.
        correct: (N,) whether each prediction was right.
        truth: (N,) calibrated probabilities of the true class.
    """
    found: dict[str, list[float]] = {}
    if spec.method == "uncalibrated":
        found |= nll_histograms(truth, correct)
    if spec.bootstrap is not None:
        drawn = ece_resamples(confidence, correct, spec.bins, spec.bootstrap)
        # Nine digits are far below the noise, and a third of the file.
        found["ece_resampled"] = [round(float(v), 9) for v in drawn]
    return found
