"""Vector scaling (Guo et al., 2017): one weight and one bias per class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from scipy.optimize import minimize

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.arguments import as_number
from ace_ray.calibration.base import Fit, LogitCalibrator, Space, register_calibrator
from ace_ray.calibration.blocks import row_blocks, working_dtype
from ace_ray.calibration.softmax import true_class
from ace_ray.calibration.temperature import TemperatureScaling

_ITERATIONS: Final = 1000
_STAGE: Final = 50  # iterations between two measurements of the curvature
_GAIN: Final = 1e-2  # a stage that gains less NLL than this times the tolerance was the last
# Largest slope per whitened parameter at the optimum. There the Hessian is about the identity, so
# the NLL is within C times its square of the best: 1e-6 for 1,000 classes in single precision.
_TOLERANCE: Final[dict[type[np.floating[Any]], float]] = {np.float32: 3e-5, np.float64: 1e-8}


# No exp of so small a number overflows, nor does a row's sum vanish: its largest may stay in.
_SAFE: Final = 60.0


class ConvergenceWarning(UserWarning):
    """An optimiser stopped before it reached its tolerance."""


@register_calibrator("vector")
class VectorScaling(LogitCalibrator):
    """Scale and shift each class's logit: z -> w * z + b, minimising the NLL.

    The problem is convex. It is solved by L-BFGS from w = 1/T, in coordinates in which each
    class's 2x2 block of the Hessian is the identity, chosen anew every few steps: the usual Adam
    loop needs many times the passes for a worse NLL.

    Args:
        l2: lambda of Eq. 1, the penalty lambda/2 (|w|^2 + |b|^2).

    Attributes:
        weight_: (C,) w.
        bias_: (C,) b, with mean 0 where `l2` is 0 (a common shift changes nothing).
    """

    space: ClassVar[Space] = "probs"
    weight_: FloatArray
    bias_: FloatArray

    def __init__(self, l2: float = 0.0) -> None:
        self.l2 = l2

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        l2 = as_number(self.l2, "l2", 0)
        c = z.shape[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = TemperatureScaling().fit(z, y, w)
        problem = _Problem(z, y, w, l2)
        inverse = 1 / start.temperature_
        theta = np.concatenate([np.full(c, inverse), np.zeros(c)])
        tolerance = _TOLERANCE[problem.dtype]
        iterations, last = 0, np.inf
        while True:
            # Curvature fades where a class is nearly separable: measured anew, steps stay long.
            whiten = problem.whitening(theta)
            result = minimize(
                problem.value_and_slope,
                np.zeros(2 * c),
                args=(theta, whiten),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _STAGE, "maxcor": 20, "gtol": tolerance, "ftol": 0},
            )
            theta = theta + _apply(whiten, result.x)
            iterations += int(result.nit)
            steepest, gain = float(np.abs(result.jac).max()), last - float(result.fun)
            last = float(result.fun)
            if steepest <= tolerance or gain <= _GAIN * tolerance or iterations >= _ITERATIONS:
                break
        # The line search may give up on rounding noise just above the tolerance.
        converged = steepest <= 10 * tolerance
        self.weight_, self.bias_ = _split(theta)
        if l2 == 0:
            self.bias_ = self.bias_ - self.bias_.mean()
        if not converged:
            warnings.warn(
                f"vector scaling did not converge: after {iterations} iterations the largest slope "
                f"is {steepest:.1e}, the tolerance {tolerance:.0e}",
                ConvergenceWarning,
                stacklevel=4,
            )
        absent = c - len(np.unique(y[w > 0]))
        if absent and l2 == 0:
            warnings.warn(
                f"vector scaling: {absent} of {c} classes have no sample, their biases have no "
                "finite optimum; set l2 > 0",
                ConvergenceWarning,
                stacklevel=4,
            )
        nll = float(result.fun) if l2 == 0 else None
        return Fit(converged, iterations, False, start.report_.nll_before, nll)

    def _map_logits(self, z: FloatArray) -> FloatArray:
        return z * self.weight_.astype(z.dtype) + self.bias_.astype(z.dtype)

    def _classes(self) -> int:
        return len(self.weight_)


class _Block(NamedTuple):
    rows: slice
    z: FloatArray
    e: FloatArray  # probabilities times `total`; may be overwritten
    total: FloatArray
    lse: FloatArray


class _Problem:
    """The NLL of w * z + b and its slope, one pass over row blocks per call."""

    def __init__(self, z: FloatArray, y: IntArray, w: FloatArray, l2: float) -> None:
        self.z, self.y, self.w, self.l2 = z, y, w, l2
        c = z.shape[1]
        self.dtype: type[np.floating[Any]] = working_dtype(z)
        self.reach = max(-float(z.min()), float(z.max()))
        truth = true_class(z, y).astype(np.float64)
        # The part of the slope that the labels make does not change.
        self.label_slope = np.concatenate([np.bincount(y, w * truth, c), np.bincount(y, w, c)])

    def softmax_blocks(self, weight: FloatArray, bias: FloatArray) -> Iterator[_Block]:
        """Yield what a pass needs of each block."""
        a, b = weight.astype(self.dtype), bias.astype(self.dtype)
        ones = np.ones(len(a), self.dtype)
        reach = self.reach * float(np.abs(a).max()) + float(np.abs(b).max())
        buffer: FloatArray | None = None
        for rows in row_blocks(*self.z.shape):
            z = np.asarray(self.z[rows], self.dtype)
            buffer = np.empty_like(z) if buffer is None else buffer
            e = np.multiply(z, a, out=buffer[: len(z)])
            e += b
            top = None
            if reach > _SAFE:
                top = e.max(axis=1)
                e -= top[:, None]
            np.exp(e, out=e)
            total = e @ ones
            lse = np.log(total.astype(np.float64))
            yield _Block(rows, z, e, total, lse if top is None else lse + top)

    def value_and_slope(
        self, phi: FloatArray, origin: FloatArray, whiten: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the objective and its slope in whitened coordinates."""
        theta = origin + _apply(whiten, phi)
        weight, bias = _split(theta)
        value, slope = 0.0, np.zeros_like(theta)
        slope_w, slope_b = _split(slope)
        for rows, z, e, total, lse in self.softmax_blocks(weight, bias):
            value += float(self.w[rows] @ lse)
            # The rows' normalisation rides on their weights: no pass over the block for it.
            w = (self.w[rows] / total).astype(self.dtype)
            slope_b += w @ e
            e *= z
            slope_w += w @ e
        value -= float(self.label_slope @ theta) - self.l2 / 2 * float(theta @ theta)
        slope -= self.label_slope - self.l2 * theta
        return value, _apply_transposed(whiten, slope)

    def whitening(self, theta: FloatArray) -> FloatArray:
        """Return per class a triangular 2x2 map that turns its Hessian block into identity."""
        c = self.z.shape[1]
        ww, wb, bb = np.zeros(c), np.zeros(c), np.zeros(c)
        for rows, z, p, total, _ in self.softmax_blocks(*_split(theta)):
            w = self.w[rows].astype(self.dtype)
            p /= total[:, None]
            p *= 1 - p
            bb += w @ p
            p *= z
            wb += w @ p
            p *= z
            ww += w @ p
        # Damped, so that a class the set hardly shows does not take giant steps.
        floor = 1e-3 / c
        ww, bb = ww + self.l2 + floor, bb + self.l2 + floor
        # Cholesky of [[ww, wb], [wb, bb]] = L L^T; the map is L^-T.
        l11 = np.sqrt(ww)
        l21 = wb / l11
        l22 = np.sqrt(np.maximum(bb - l21**2, floor))
        return np.stack([1 / l11, -l21 / (l11 * l22), 1 / l22])


def _split(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    c = len(theta) // 2
    return theta[:c], theta[c:]


def _apply(whiten: FloatArray, phi: FloatArray) -> FloatArray:
    a, b = _split(phi)
    return np.concatenate([whiten[0] * a + whiten[1] * b, whiten[2] * b])


def _apply_transposed(whiten: FloatArray, slope: FloatArray) -> FloatArray:
    a, b = _split(slope)
    return np.concatenate([whiten[0] * a, whiten[1] * a + whiten[2] * b])
