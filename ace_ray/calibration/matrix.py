"""Matrix scaling (Guo et al., 2017) and Dirichlet calibration (Kull et al., 2019), with ODIR."""

from __future__ import annotations

import warnings
from typing import ClassVar, Final

import numpy as np
from scipy.optimize import minimize

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.arguments import as_number
from ace_ray.calibration.base import Fit, LogitCalibrator, Space, register_calibrator
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.softmax import log_softmax
from ace_ray.calibration.temperature import TemperatureScaling
from ace_ray.calibration.vector import ConvergenceWarning
from ace_ray.errors import DataError

MAX_CLASSES: Final = 128
_ITERATIONS: Final = 2000
_TOLERANCE: Final = 1e-7


@register_calibrator("matrix")
class MatrixScaling(LogitCalibrator):
    """Map logits linearly: z -> W z + b, with off-diagonal and intercept regularisation (ODIR).

    Minimises NLL + off_diagonal * mean_{i != j} W_ij^2 + intercept * mean_j b_j^2: convex, solved
    by L-BFGS. C^2 parameters: refused above 128 classes.

    Args:
        off_diagonal: Penalty of the off-diagonal weights.
        intercept: Penalty of the biases.

    Attributes:
        weight_: (C, C) W; row c makes the logit of class c.
        bias_: (C,) b.
    """

    space: ClassVar[Space] = "probs"
    weight_: FloatArray
    bias_: FloatArray

    def __init__(self, off_diagonal: float = 1e-2, intercept: float = 1e-2) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _features(self, z: FloatArray) -> FloatArray:
        """Return what the matrix acts on; rows without their mean, which softmax ignores."""
        return np.asarray(z - z.mean(axis=1, keepdims=True))

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        c = z.shape[1]
        if c > MAX_CLASSES:
            raise DataError(
                f"{type(self).__name__}: {c} classes make {c * c:,} parameters, the limit is "
                f"{MAX_CLASSES} classes; use VectorScaling or TemperatureScaling"
            )
        for name in ("off_diagonal", "intercept"):
            as_number(getattr(self, name), name, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inverse = 1 / TemperatureScaling().fit(z, y, w).temperature_
        start = np.concatenate([(inverse * np.eye(c)).ravel(), np.zeros(c)])
        result = minimize(
            lambda theta: self.objective(theta, z, y, w),
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": _ITERATIONS,
                "maxfun": 2 * _ITERATIONS,
                "maxcor": 30,
                "gtol": _TOLERANCE,
                "ftol": 0,
            },
        )
        self.weight_, self.bias_ = result.x[: c * c].reshape(c, c), result.x[c * c :]
        converged = bool(np.abs(result.jac).max() <= 100 * _TOLERANCE)
        if not converged:
            warnings.warn(
                f"{type(self).__name__} did not converge in {result.nit} iterations: "
                f"{result.message}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return Fit(converged, int(result.nit))

    def objective(
        self, theta: FloatArray, z: FloatArray, y: IntArray, w: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the penalised NLL and its slope at theta = (W, b) flattened."""
        c = z.shape[1]
        weight, bias = theta[: c * c].reshape(c, c), theta[c * c :]
        value, slope_w, slope_b = 0.0, np.zeros((c, c)), np.zeros(c)
        for rows in row_blocks(*z.shape):
            x = self._features(block_of(z, rows, np.float64))
            log_p = log_softmax(x @ weight.T + bias)
            each = np.arange(len(x))
            value -= float(w[rows] @ log_p[each, y[rows]])
            p = np.exp(log_p)
            p[each, y[rows]] -= 1
            p *= w[rows, None]
            slope_w += p.T @ x
            slope_b += p.sum(axis=0)
        off = weight - np.diag(np.diag(weight))
        pairs = c * (c - 1)
        value += float(self.off_diagonal) * float((off**2).sum()) / pairs
        value += float(self.intercept) * float(bias @ bias) / c
        slope_w += 2 * float(self.off_diagonal) / pairs * off
        slope_b += 2 * float(self.intercept) / c * bias
        return value, np.concatenate([slope_w.ravel(), slope_b])

    def _map_logits(self, z: FloatArray) -> FloatArray:
        return np.asarray(self._features(z) @ self.weight_.T + self.bias_)

    def _classes(self) -> int:
        return len(self.bias_)


@register_calibrator("dirichlet")
class Dirichlet(MatrixScaling):
    """Map log-probabilities linearly: softmax(W log softmax(z) + b), with ODIR.

    The same model as `MatrixScaling`, except that its features are log-probabilities: the row's
    mean stays in, so a row of W can also use the overall confidence.
    """

    def _features(self, z: FloatArray) -> FloatArray:
        return log_softmax(z)
