"""The ECE of bootstrap resamples: paired across methods because all see the same resamples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import FloatArray
from ace_ray.calibration.arguments import as_confidence, as_count


def ece_resamples(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 25, resamples: int = 200
) -> FloatArray:
    """Return the ECE of each of so many resamples of the samples, drawn with replacement.

    The draws depend on the number of samples and of resamples alone. Two methods on one split, and
    one method on two splits that show the same images in the same order, so see the same resamples:
    differences and means of these numbers have the variance that pairing gives. Where two splits
    have nothing in common but their size, common draws do no harm.
    """
    p, hit = as_confidence(confidence, correct)
    n, resamples = len(p), as_count(resamples, "resamples", 2)
    edges = np.linspace(0, 1, as_count(bins, "bins") + 1)
    index, gap = np.maximum(np.searchsorted(edges, p, side="left") - 1, 0), hit - p
    rng = np.random.default_rng([n, resamples])
    out = np.empty(resamples)
    for i in range(resamples):
        counts = np.bincount(rng.integers(0, n, n), minlength=n)
        out[i] = np.abs(np.bincount(index, counts * gap, bins)).sum() / n
    return out
