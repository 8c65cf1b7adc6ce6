"""Is a difference real? Tests between two groups of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ace_ray.arrays import FloatArray
from ace_ray.calibration.arguments import as_array, as_confidence, as_count, as_number
from ace_ray.errors import DataError, nearest


class Significance(NamedTuple):
    """A test's statistic and p-value.

    `deterministic` marks a difference between two groups that both have zero variance: it is
    exact, so there is no p-value (both numbers are None).
    """

    t: float | None
    p: float | None
    deterministic: bool = False


def two_sample_t(first: ArrayLike, second: ArrayLike) -> Significance:
    """Return the two-sample t-test of equal means (pooled variance), first minus second.

    Never NaN: equal means without variance give t = 0, p = 1; different means without variance
    on either side are `deterministic`.
    """
    return _t_test(first, second, equal_variance=True)


def welch(first: ArrayLike, second: ArrayLike) -> Significance:
    """Return Welch's t-test (own variances), first minus second; zero variance as above."""
    return _t_test(first, second, equal_variance=False)


def _t_test(first: ArrayLike, second: ArrayLike, *, equal_variance: bool) -> Significance:
    a, b = _groups(first, second)
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        if a[0] == b[0]:
            return Significance(0.0, 1.0)
        return Significance(None, None, deterministic=True)
    # From moments, exact where a side is constant: scipy's own moments warn of it.
    result = stats.ttest_ind_from_stats(*_moments(a), *_moments(b), equal_var=equal_variance)
    return Significance(float(result.statistic), float(result.pvalue))


def effect_size(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return Hedges' g: the difference of means in pooled standard deviations, bias-corrected.

    None where both groups have no variance but differ.
    """
    a, b = _groups(first, second)
    (mean_a, sd_a, n_a), (mean_b, sd_b, n_b) = _moments(a), _moments(b)
    degrees = n_a + n_b - 2
    pooled = np.sqrt(((n_a - 1) * sd_a**2 + (n_b - 1) * sd_b**2) / degrees)
    if pooled == 0:
        return 0.0 if mean_a == mean_b else None
    return float((mean_a - mean_b) / pooled * (1 - 3 / (4 * degrees - 1)))


def holm(p_values: ArrayLike) -> FloatArray:
    """Return Holm-adjusted p-values: the family-wise error stays at the level they are read at."""
    p: FloatArray = as_array(p_values, "p_values").astype(np.float64)
    if p.ndim != 1 or (len(p) and not ((p >= 0) & (p <= 1)).all()):
        raise DataError("p_values: expected a vector of values in [0, 1]")
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    out = np.empty_like(p)
    out[order] = np.minimum(adjusted, 1)
    return np.asarray(out)


class Interval(NamedTuple):
    """An estimate with a confidence interval."""

    value: float
    low: float
    high: float


class Comparison(NamedTuple):
    """A difference of two methods (first minus second) with interval and p-value."""

    value: float
    low: float
    high: float
    p: float


class Bootstrap:
    """Paired bootstrap over samples: every method sees the same resamples.

    Args:
        confidence: Method name -> top-1 confidences (N,).
        correct: Whether each prediction was right, shared or per method.
        bins: Of the ECE, equal width.
        resamples: How many.
        seed: Of the resamples.
        level: Of the intervals.

    Intervals are normal, centred on the estimate, with the bootstrap's standard error: resampling
    inflates the ECE itself (a resample is noisier than the sample), which would shift percentiles.
    They are intervals of the binned ECE as computed, which sampling noise biases upwards: for a
    calibrated method they do not cover 0. In simulations the test keeps its level where bins hold
    clear gaps, and is cautious (rejects less often) where they hold little but noise.
    """

    def __init__(
        self,
        confidence: Mapping[str, ArrayLike],
        correct: ArrayLike | Mapping[str, ArrayLike],
        bins: int = 25,
        resamples: int = 1000,
        seed: int = 0,
        level: float = 0.95,
    ) -> None:
        if not confidence:
            raise DataError("confidence: expected at least one method")
        as_count(resamples, "resamples", 2)
        as_count(seed, "seed", 0)
        bins = as_count(bins, "bins")
        if not 0 < as_number(level, "level") < 1:
            raise DataError(f"level: expected a number between 0 and 1, got {level}")
        hits = correct if isinstance(correct, Mapping) else dict.fromkeys(confidence, correct)
        lacking = [m for m in confidence if m not in hits]
        if lacking:
            raise DataError(f"correct: nothing for the methods {lacking}")
        pairs = {m: as_confidence(confidence[m], hits[m]) for m in confidence}
        sizes = {len(p) for p, _ in pairs.values()}
        if len(sizes) != 1:
            raise DataError(f"confidence: methods have different lengths {sorted(sizes)}")
        (n,) = sizes
        edges = np.linspace(0, 1, bins + 1)
        index, gap = {}, {}
        for method, (p, hit) in pairs.items():
            index[method] = np.maximum(np.searchsorted(edges, p, side="left") - 1, 0)
            gap[method] = hit - p
        self.methods = list(pairs)
        self.quantile = float(stats.norm.ppf((1 + level) / 2))

        def measured(counts: FloatArray) -> list[float]:
            return [
                float(np.abs(np.bincount(index[m], counts * gap[m], bins)).sum() / n)
                for m in self.methods
            ]

        self.estimates = np.array(measured(np.ones(n)))
        rng = np.random.default_rng(seed)
        draws = (np.bincount(rng.integers(0, n, n), minlength=n) * 1.0 for _ in range(resamples))
        self.samples = np.array([measured(counts) for counts in draws])  # (resamples, methods)

    def _index(self, method: str) -> int:
        if method not in self.methods:
            raise DataError(f"unknown method {method!r}; {nearest(method, self.methods)}")
        return self.methods.index(method)

    def ece(self, method: str) -> Interval:
        """Return a method's ECE with its interval, which does not go below 0."""
        i = self._index(method)
        reach = self.quantile * float(self.samples[:, i].std(ddof=1))
        value = float(self.estimates[i])
        return Interval(value, max(value - reach, 0.0), value + reach)

    def difference(self, first: str, second: str) -> Comparison:
        """Return the difference of two methods' ECE, first minus second."""
        i, j = self._index(first), self._index(second)
        value = float(self.estimates[i] - self.estimates[j])
        error = float((self.samples[:, i] - self.samples[:, j]).std(ddof=1))
        if error == 0:
            return Comparison(value, value, value, 1.0 if value == 0 else 0.0)
        p = 2 * float(stats.norm.sf(abs(value) / error))
        reach = self.quantile * error
        return Comparison(value, value - reach, value + reach, p)


def _groups(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    a, b = (as_array(v, "groups").astype(np.float64) for v in (first, second))
    if a.ndim != 1 or b.ndim != 1 or len(a) < 2 or len(b) < 2:
        raise DataError(f"t-test: expected two vectors of length >= 2, got {a.shape}, {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise DataError("t-test: expected finite values; leave out or repeat a missing run")
    # Tests and effect sizes do not depend on the unit: rescale before squares vanish.
    scale = max(float(np.abs(a).max()), float(np.abs(b).max()))
    return (a / scale, b / scale) if 0 < scale < 1e-100 else (a, b)


def _moments(x: FloatArray) -> tuple[float, float, int]:
    if np.ptp(x) == 0:
        return float(x[0]), 0.0, len(x)
    return float(x.mean()), float(x.std(ddof=1)), len(x)
