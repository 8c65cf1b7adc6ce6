"""The effect of any temperature on a split, from row moments at a few of them.

In x = log b (b = 1/T) the log-sum-exp of a row is a smooth function whose value, slope and
curvature `row_moments` gives at the nodes of a fixed lattice. Between two nodes it is the quintic
with these at both; the node is the same whichever temperatures are asked for, and so is the result.
"""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import FloatArray
from ace_ray.calibration.temperature import row_moments


class Lattice:
    """Log-sum-exp of each row's logits, less the largest, at any inverse temperature.

    >>> import numpy as np
    >>> z = np.random.default_rng(0).normal(size=(100, 10)) * 3
    >>> z -= z.max(axis=1, keepdims=True)
    >>> found = Lattice(z).log_sum_exp(0.7)
    >>> bool(np.abs(found - np.log(np.exp(0.7 * z).sum(axis=1))).max() < 1e-10)
    True
    """

    def __init__(
        self,
        logits: FloatArray,
        top: FloatArray | None = None,
        per_octave: int = 16,
        most: int = 1000,  # nodes that are kept; the oldest are computed again if needed
    ) -> None:
        self._most = max(2, most)
        self._z = logits
        self._top = logits.max(axis=1) if top is None else top
        self._spacing = float(np.log(2)) / per_octave
        self._nodes: dict[int, FloatArray] = {}

    def log_sum_exp(self, inverse: float | FloatArray) -> FloatArray:
        """Return log sum exp(b (z - max z)) of each row, for one b > 0 or one of each row."""
        x = np.log(inverse) / self._spacing
        if np.ndim(x) == 0:
            k = int(np.floor(x))
            return _quintic(self._node(k), self._node(k + 1), float(x) - k)
        left, out = np.floor(x).astype(int), np.empty(len(self._z))
        for k in np.unique(left).tolist():
            rows = left == k
            out[rows] = _quintic(self._node(k)[:, rows], self._node(k + 1)[:, rows], x[rows] - k)
        return out

    def _node(self, k: int) -> FloatArray:
        """Return value, slope and half the curvature in units of the spacing at node k."""
        if k not in self._nodes:
            if len(self._nodes) >= self._most:
                del self._nodes[next(iter(self._nodes))]
            b, d = float(np.exp(self._spacing * k)), self._spacing
            lse, mean, variance = row_moments(self._z, b, self._top, np.float64)
            high = self._top.astype(np.float64)
            slope = b * (mean - high)
            self._nodes[k] = np.stack(
                [lse - b * high, d * slope, d * d / 2 * (b * b * variance + slope)]
            )
        return self._nodes[k]


def _quintic(left: FloatArray, right: FloatArray, t: float | FloatArray) -> FloatArray:
    """Return the polynomial with these values, slopes and half curvatures at 0 and 1, at t."""
    f0, g0, h0 = left
    f1, g1, h1 = right
    r = f1 - f0 - g0 - h0
    s = g1 - g0 - 2 * h0
    u = h1 - h0
    c3, c4, c5 = 10 * r - 4 * s + u, -15 * r + 7 * s - 2 * u, 6 * r - 3 * s + u
    return np.asarray(f0 + t * (g0 + t * (h0 + t * (c3 + t * (c4 + t * c5)))))
