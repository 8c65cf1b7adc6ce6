"""Temperature scaling (Guo et al., 2017): one fit, or thousands at once.

In the inverse temperature b = 1/T the NLL of a row is LSE(b z) - b z_y: convex, with first
derivative E_p[z] - z_y and second derivative Var_p[z], p = softmax(b z). Newton's method needs
two or three passes over the logits. A hard set changes only the weights of the rows, so one table
of LSE, E and Var at a few b serves every hard set.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.arguments import as_array, as_bounds, as_labels, as_logits
from ace_ray.calibration.base import Fit, LogitCalibrator, register_calibrator
from ace_ray.calibration.blocks import row_blocks, working_dtype
from ace_ray.calibration.softmax import true_class
from ace_ray.errors import DataError

DEFAULT_BOUNDS: Final = (0.05, 20.0)
_START_ROWS: Final = 1024  # rows of the cheap fit that Newton's method starts from
_TOLERANCE: Final = 1e-7  # relative step in b at which Newton's method stops
_PASSES: Final = 60


class BoundWarning(UserWarning):
    """A fitted parameter lies on the bound of its range: the optimum is outside."""


def bound_message(temperature: float, bounds: tuple[float, float]) -> str:
    """Return what a fit that ends on a bound says."""
    return (
        f"temperature {temperature:g} is at its bound {tuple(bounds)}; "
        "the calibration set asks for more than the bound allows"
    )


class Moments(NamedTuple):
    """Per row at one inverse temperature: log-sum-exp, mean and variance of the logits."""

    lse: FloatArray
    mean: FloatArray
    variance: FloatArray


def row_moments(
    logits: FloatArray,
    inverse: float,
    top: FloatArray | None = None,
    dtype: type[np.float32] | type[np.float64] | None = None,
) -> Moments:
    """Return LSE(b z), E_p[z] and Var_p[z] of every row, p = softmax(b z).

    Args:
        logits: (N, C).
        inverse: b.
        top: The largest logit of every row, where it is known.
        dtype: Precision to work in; by default that of `working_dtype`.
    """
    n, c = logits.shape
    dtype = working_dtype(logits) if dtype is None else dtype
    top = logits.max(axis=1) if top is None else top
    out = np.empty((3, n))
    sums, ones = np.empty((3, n), dtype), np.ones(c, dtype)
    buffers: FloatArray | None = None
    for rows in row_blocks(n, c):
        block = logits[rows]
        if buffers is None:
            buffers = np.empty((2, *block.shape), dtype)
        z, e = buffers[:, : len(block)]
        np.subtract(block, top[rows, None], out=z, dtype=dtype)
        np.multiply(z, dtype(inverse), out=e)
        np.exp(e, out=e)
        # Products with BLAS: several times faster than sums along an axis.
        np.dot(e, ones, out=sums[0, rows])
        np.vecdot(e, z, out=sums[1, rows])
        e *= z
        np.vecdot(e, z, out=sums[2, rows])
    s0, s1, s2 = sums.astype(np.float64)
    high = top.astype(np.float64)  # half and single precision would round its multiple
    mean = s1 / s0
    out[0] = inverse * high + np.log(s0)
    out[1] = high + mean
    out[2] = s2 / s0 - mean * mean
    return Moments(*out)


class _Optimum(NamedTuple):
    inverse: float
    passes: int
    nll_first: float  # at b = 1, or the bound nearest to it
    nll_last: float


def _newton(
    z: FloatArray,
    y: IntArray,
    w: FloatArray,
    bounds: tuple[float, float],
    guess: float | None,
    dtype: type[np.float32] | type[np.float64],
) -> _Optimum:
    """Return the inverse temperature where the weighted NLL has slope 0, or the nearer bound.

    The first pass is at b = 1, so that the NLL of the uncalibrated logits is known; the second at
    `guess`, if there is one.
    """
    low, high = 1 / bounds[1], 1 / bounds[0]
    target = float(w @ true_class(z, y))
    top = z.max(axis=1)
    b, first = min(max(1.0, low), high), None
    # A single-precision slope cannot tell closer than this.
    enough = 1e-4 if dtype is np.float32 else _TOLERANCE
    noise = float(np.finfo(dtype).eps) * (1 + float(w @ np.abs(top).astype(np.float64)))
    last: tuple[float, float, float] | None = None
    for passes in range(1, _PASSES + 1):
        moments = row_moments(z, b, top, dtype)
        nll = float(w @ moments.lse) - b * target
        first = nll if first is None else first
        here = b, float(w @ moments.mean) - target, float(w @ moments.variance)
        # Neither slope nor curvature, to rounding: the data say nothing of T, which stays.
        if abs(here[1]) <= noise and here[2] <= noise:
            return _Optimum(b, passes, first, nll)
        # The root lies on one side of b: the bracket shrinks with every pass.
        low, high = (low, b) if here[1] > 0 else (b, high)
        step = guess if passes == 1 and guess is not None else _next(here, last)
        # A step that leaves the bracket is replaced by halving it (in log b).
        new = step if low <= step <= high else float(np.sqrt(low * high))
        # Convergence is at least quadratic: after a step below `enough` the next is below its
        # square.
        if abs(new - b) <= enough * b and (passes > 1 or guess is None):
            move = new - b
            return _Optimum(new, passes, first, nll + move * here[1] + move**2 / 2 * here[2])
        b, last = new, here
    return _Optimum(b, _PASSES, first or 0.0, nll)


def _next(here: tuple[float, float, float], last: tuple[float, float, float] | None) -> float:
    """Return where the slope should be zero, from (b, slope, curvature) at one point or two.

    One point: Newton's step. Two: b as a cubic in the slope, with the exact values and derivatives
    1 / curvature at both, read at slope 0 (inverse Hermite interpolation).
    """
    b, slope, curvature = here
    if curvature <= 0:
        return np.inf
    if last is None or last[2] <= 0 or last[1] == slope:
        return b - slope / curvature
    b0, slope0, curvature0 = last
    h = slope - slope0
    t = -slope0 / h
    return float(
        (1 + 2 * t) * (1 - t) ** 2 * b0
        + t * (1 - t) ** 2 * h / curvature0
        + t * t * (3 - 2 * t) * b
        + t * t * (t - 1) * h / curvature
    )


@register_calibrator("temperature")
class TemperatureScaling(LogitCalibrator):
    """Divide the logits by one number T that minimises the NLL.

    Args:
        bounds: Range of T. The authors' code uses (0.5, 3.0) and saturates silently.

    Attributes:
        temperature_: T, which divides the logits. The paper's Eq. 8 writes 1/T.
        report_: How the fit went; `bound_hit` if the optimum lies outside `bounds` (a
            `BoundWarning` says so too).
    """

    space: ClassVar = "logits"
    temperature_: float

    def __init__(self, bounds: tuple[float, float] = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        low, high = as_bounds(self.bounds)
        guess = None
        if len(z) > 4 * _START_ROWS:
            some = np.linspace(0, len(z) - 1, _START_ROWS).astype(int)
            if w[some].any():
                few = z[some], y[some], w[some] / w[some].sum()
                guess = _newton(*few, (low, high), None, np.float32).inverse
        found = _newton(z, y, w, (low, high), guess, working_dtype(z))
        self.temperature_ = float(min(max(1 / found.inverse, low), high))
        hit = self._at_bound(z, y, w, (low, high))
        if hit:
            warnings.warn(bound_message(self.temperature_, (low, high)), BoundWarning, stacklevel=4)
        before = found.nll_first if low <= 1 <= high else None
        after = None if hit else found.nll_last
        return Fit(found.passes < _PASSES, found.passes, hit, before, after)

    def _at_bound(
        self, z: FloatArray, y: IntArray, w: FloatArray, bounds: tuple[float, float]
    ) -> bool:
        """Return whether the optimum lies beyond a bound; T is then that bound."""
        for bound, sign in ((bounds[0], -1), (bounds[1], 1)):
            if abs(self.temperature_ / bound - 1) < 0.01:
                slope = w @ row_moments(z, 1 / bound).mean - w @ true_class(z, y)
                # Beyond the bound the NLL still falls: in b, upwards at low T, downwards at high.
                if sign * float(slope) > 0:
                    self.temperature_ = bound
                    return True
        return False

    def _map_logits(self, z: FloatArray) -> FloatArray:
        return z / z.dtype.type(self.temperature_)


class TemperatureTable:
    """Row moments at a few inverse temperatures: fits any weighting of the rows for almost nothing.

    Between two nodes the NLL of a weighting is a quintic with the exact value, slope and curvature
    at both, so a fit costs a dot product and a root of a polynomial. Nodes are a third of an octave
    apart (T is good to 3e-6) unless `per_octave` asks for more, and computed only where the asked
    weightings have their optimum (first guessed from a sample of the rows, then extended until
    every optimum is enclosed). `dtype` is the precision to work in, as for `row_moments`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 5, 400)
    >>> logits = 4 * rng.normal(size=(400, 5)) + 4 * np.eye(5)[labels]
    >>> masks = rng.random((3, 400)) < 0.5
    >>> many = TemperatureTable(logits, labels).fit(masks)
    >>> one = TemperatureScaling().fit(logits, labels, masks[0]).temperature_
    >>> bool(abs(many[0] / one - 1) < 1e-6)
    True
    """

    def __init__(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        bounds: tuple[float, float] = DEFAULT_BOUNDS,
        *,
        per_octave: int = 3,
        dtype: type[np.float32] | type[np.float64] | None = None,
    ) -> None:
        self._z = as_logits(logits)
        self._per_octave, self._dtype = per_octave, dtype
        self._spacing = float(np.log(2)) / per_octave  # of the nodes in log b
        y = as_labels(labels, self._z)
        self.bounds = bounds = as_bounds(bounds)
        self._truth = true_class(self._z, y).astype(np.float64)
        self._sample = np.linspace(0, len(y) - 1, min(len(y), _START_ROWS)).astype(int)
        self._ends = (
            int(np.floor(np.log(1 / bounds[1]) / self._spacing)),
            int(np.ceil(np.log(1 / bounds[0]) / self._spacing)),
        )
        self._nodes: dict[int, FloatArray] = {}  # by lattice position: (3, N)
        self._few: dict[int, FloatArray] = {}  # the same of the sample

    def fit(self, weights: ArrayLike) -> FloatArray:
        """Return T for each row of (M, N) weights (or masks)."""
        w = as_array(weights, "weights")
        fits = w.ndim == 2 and w.shape[1] == len(self._z)
        if not fits or not (np.isfinite(w).all() and (w >= 0).all() and w.any(axis=1).all()):
            raise DataError(
                f"weights: expected (M, {len(self._z)}) finite values >= 0, not all 0 in a row, "
                f"got shape {w.shape}"
            )
        if not len(w):
            return np.empty(0)
        w = w.astype(np.float64)
        w /= w.max(axis=1, keepdims=True)
        w /= w.sum(axis=1, keepdims=True)
        low, high = self._guess(w)
        while True:
            at = range(low, high + 1)
            f, g, h = np.stack([self._node(k) @ w.T for k in at]).transpose(1, 2, 0)
            need_low = low > self._ends[0] and bool((g[:, 0] >= 0).any())
            need_high = high < self._ends[1] and bool((g[:, -1] <= 0).any())
            if not (need_low or need_high):
                break
            low, high = low - 2 * need_low, high + 2 * need_high
            low, high = max(low, self._ends[0]), min(high, self._ends[1])
        x = self._spacing * np.array(at)
        return np.clip(np.exp(-_root_of_quintics(x, f, g, h)), *self.bounds)

    def _guess(self, w: FloatArray) -> tuple[int, int]:
        """Return the lattice range in which a sample of the rows puts the optima."""
        some = w[:, self._sample]
        some = some[some.any(axis=1)]
        if not len(some):
            return -1, 1
        coarse = range(self._ends[0], self._ends[1] + 1, self._per_octave)
        g = np.stack([self._sampled(k)[1] @ some.T for k in coarse])
        below = (g < 0).sum(axis=0)
        low = coarse[max(int(below.min()) - 1, 0)]
        high = coarse[min(int(below.max()), len(coarse) - 1)]
        return low, max(high, low + 1)

    def _node(self, k: int) -> FloatArray:
        if k not in self._nodes:
            self._nodes[k] = self._moments(k, None)
        return self._nodes[k]

    def _sampled(self, k: int) -> FloatArray:
        if k not in self._few:
            self._few[k] = self._moments(k, self._sample)
        return self._few[k]

    def _moments(self, k: int, rows: IntArray | None) -> FloatArray:
        """Return the NLL of each row and its first two derivatives in log b, at lattice point k."""
        b = float(np.exp(self._spacing * k))
        z, truth = (self._z, self._truth) if rows is None else (self._z[rows], self._truth[rows])
        m = row_moments(z, b, dtype=self._dtype)
        slope = b * (m.mean - truth)
        return np.stack([m.lse - b * truth, slope, b * b * m.variance + slope])


def _root_of_quintics(x: FloatArray, f: FloatArray, g: FloatArray, h: FloatArray) -> FloatArray:
    """Return where the slope of each row's piecewise quintic crosses zero; the ends where never.

    Args:
        x: Nodes, evenly spaced.
        f: (M, nodes) values.
        g: First derivatives.
        h: Second derivatives.
    """
    rows = np.arange(len(f))
    # The NLL is convex in b, so its slope changes sign once.
    left = np.clip((g < 0).sum(axis=1) - 1, 0, len(x) - 2)
    d = float(x[1] - x[0])
    f0, g0, h0 = f[rows, left], d * g[rows, left], d * d * h[rows, left]
    f1, g1, h1 = f[rows, left + 1], d * g[rows, left + 1], d * d * h[rows, left + 1]
    # Quintic in t = (x - x_left) / d with these values, slopes and curvatures at t = 0 and 1.
    r = f1 - f0 - g0 - h0 / 2
    s = g1 - g0 - h0
    u = h1 - h0
    c3, c4, c5 = 10 * r - 4 * s + u / 2, -15 * r + 7 * s - u, 6 * r - 3 * s + u / 2
    low, high = np.zeros(len(f)), np.ones(len(f))
    t = np.where(g1 > g0, np.clip(-g0 / np.where(g1 > g0, g1 - g0, 1), 0, 1), 0.5)
    for _ in range(60):
        slope = g0 + t * (h0 + t * (3 * c3 + t * (4 * c4 + t * 5 * c5)))
        low, high = np.where(slope < 0, t, low), np.where(slope < 0, high, t)
        curve = h0 + t * (6 * c3 + t * (12 * c4 + t * 20 * c5))
        step = t - np.divide(slope, curve, out=np.full_like(t, 2.0), where=curve > 0)
        new = np.where((step > low) & (step < high), step, (low + high) / 2)
        if np.abs(new - t).max() < 1e-13:
            break
        t = new
    inside = (g[:, 0] < 0) & (g[:, -1] > 0)
    ends = np.where(g[:, 0] > 0, x[0], x[-1])
    # No slope at the upper end: T stays at 1, or at the first node without slope, as a fit does.
    flat = (g[:, 0] <= 0) & (g[:, -1] == 0)
    ends = np.where(flat, np.maximum(x[np.argmax(g >= 0, axis=1)], 0.0), ends)
    return np.asarray(np.where(inside, x[left] + d * t, ends))
