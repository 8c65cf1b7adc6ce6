"""Is a difference real? Tests between two groups of runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ace_ray.arrays import FloatArray
from ace_ray.errors import DataError


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
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.ndim != 1 or b.ndim != 1 or len(a) < 2 or len(b) < 2:
        raise DataError(f"t-test: expected two vectors of length >= 2, got {a.shape}, {b.shape}")
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        if a[0] == b[0]:
            return Significance(0.0, 1.0)
        return Significance(None, None, deterministic=True)
    # From moments, exact where a side is constant: scipy's own moments warn of it.
    result = stats.ttest_ind_from_stats(*_moments(a), *_moments(b), equal_var=True)
    return Significance(float(result.statistic), float(result.pvalue))


def _moments(x: FloatArray) -> tuple[float, float, int]:
    if np.ptp(x) == 0:
        return float(x[0]), 0.0, len(x)
    return float(x.mean()), float(x.std(ddof=1)), len(x)
