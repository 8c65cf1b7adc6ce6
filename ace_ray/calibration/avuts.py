"""Temperature scaling by accuracy versus uncertainty (Krishnan & Tickoo, 2020)."""

from __future__ import annotations

import warnings
from typing import ClassVar, Final, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration.arguments import as_number
from ace_ray.calibration.base import Fit, LogitCalibrator, Space, register_calibrator
from ace_ray.calibration.blocks import block_of, row_blocks, working_dtype
from ace_ray.calibration.softmax import true_class
from ace_ray.calibration.temperature import DEFAULT_BOUNDS, BoundWarning, TemperatureScaling
from ace_ray.errors import DataError

_GRID: Final = 41
_REACH: Final = float(np.log(4))  # of the grid on both sides of the start, in log T


@register_calibrator("avuts")
class AvUTS(LogitCalibrator):
    """Divide the logits by the T that minimises NLL + beta * AvUC.

    With confidence p, predictive entropy u and a threshold u_th, AvUC is
    log(1 + (n_AU + n_IC) / (n_AC + n_IU)): soft counts of accurate-uncertain and
    inaccurate-certain samples over accurate-certain and inaccurate-uncertain ones, where an
    accurate sample counts p, an inaccurate one 1 - p, a certain one 1 - tanh u, an uncertain one
    tanh u. u_th lies half-way between the mean entropies of accurate and inaccurate samples of the
    uncalibrated network, and stays fixed.

    Departure: alone, the loss has a trivial minimum at T -> 0, where every sample is certain and an
    inaccurate one counts nothing. We keep the likelihood beside it, as its authors do in training.

    The objective is neither convex nor smooth in T: it is searched on a grid in log T around the
    NLL's optimum, then refined around the best point.

    Args:
        beta: Weight of the accuracy-versus-uncertainty loss.
        bounds: Range of T.

    Attributes:
        temperature_: T, which divides the logits.
        threshold_: u_th in nats.
    """

    space: ClassVar[Space] = "logits"
    temperature_: float
    threshold_: float

    def __init__(self, beta: float = 1.0, bounds: tuple[float, float] = DEFAULT_BOUNDS) -> None:
        self.beta = beta
        self.bounds = bounds

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        beta = as_number(self.beta, "beta", 0)
        correct = np.concatenate([z[r].argmax(axis=1) == y[r] for r in row_blocks(*z.shape)])
        used = w > 0
        if correct[used].all() or not correct[used].any():
            raise DataError(
                f"AvUTS needs right and wrong samples, got {int(correct[used].sum())} right of "
                f"{int(used.sum())}"
            )
        start = TemperatureScaling(self.bounds).fit(z, y, w)
        entropy = _read(z, y, 1.0).entropy
        self.threshold_ = float(
            np.mean(
                [np.average(entropy[m], weights=w[m]) for m in (correct & used, ~correct & used)]
            )
        )

        def objective(log_t: float) -> float:
            read = _read(z, y, float(np.exp(-log_t)))
            loss = avu_loss(read.confidence, read.entropy, correct, w, self.threshold_)
            return float(w @ read.nll) + beta * loss

        low, high = np.log(self.bounds)
        middle = np.log(start.temperature_)
        grid = np.unique(np.clip(middle + np.linspace(-_REACH, _REACH, _GRID), low, high))
        values = [objective(v) for v in grid]
        best = int(np.argmin(values))
        around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        refined = minimize_scalar(
            objective, bounds=around, method="bounded", options={"xatol": 1e-6}
        )
        log_t = refined.x if refined.fun < values[best] else grid[best]
        self.temperature_ = float(np.exp(log_t))
        hit = bool(min(log_t - low, high - log_t) < 1e-5)
        if hit and not start.report_.bound_hit:
            warnings.warn(
                f"AvUTS temperature {self.temperature_:g} is at its bound {tuple(self.bounds)}",
                BoundWarning,
                stacklevel=4,
            )
        return Fit(True, len(grid) + int(refined.nfev), hit, start.report_.nll_before)

    def _map_logits(self, z: FloatArray) -> FloatArray:
        return z / z.dtype.type(self.temperature_)


def avu_loss(
    confidence: FloatArray, entropy: FloatArray, correct: BoolArray, w: FloatArray, threshold: float
) -> float:
    """Return the accuracy-versus-uncertainty loss (their Eq. 3 and 4)."""
    certain = entropy <= threshold
    weight = w * np.where(correct, confidence, 1 - confidence)
    weight = weight * np.where(certain, 1 - np.tanh(entropy), np.tanh(entropy))
    good = float(weight[correct == certain].sum())
    bad = float(weight[correct != certain].sum())
    return float(np.log1p(bad / max(good, 1e-12)))


class _Reading(NamedTuple):
    confidence: FloatArray
    entropy: FloatArray
    nll: FloatArray


def _read(z: FloatArray, y: IntArray, inverse: float) -> _Reading:
    """Return confidence, entropy and NLL of every row at one inverse temperature."""
    out = np.empty((3, len(z)))
    dtype = working_dtype(z)
    for rows in row_blocks(*z.shape):
        u = block_of(z, rows, dtype)
        u -= u.max(axis=1, keepdims=True)
        u *= dtype(inverse)
        e = np.exp(u)
        total = e.sum(axis=1)
        log_total = np.log(total)
        out[0, rows] = 1 / total
        out[1, rows] = log_total - np.einsum("ij,ij->i", e, u) / total
        out[2, rows] = log_total - true_class(u, y[rows])
    return _Reading(*out)
