"""Which samples a fit sees: every draw of a trial is a function of its seed and nothing else.

The hard set is drawn by `numpy.random.default_rng(seed)`, exactly as `ACE` does, and so is the
part of the calibration set of its size. A further cut has a generator of its own, derived from the
seed and a fixed word (`default_rng([seed, *word])`), so that it changes no other draw.
"""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import BoolArray, IntArray
from ace_ray.calibration import hard_set


def hard_part(
    correct: BoolArray, difficulty: float | None, seed: int, size: int | None
) -> BoolArray:
    """Return the mask of the hard set (None: all samples), cut to `size` random ones."""
    mask = _hard(correct, difficulty, np.random.default_rng(seed))
    if size is None:
        return mask
    found = np.flatnonzero(mask)
    rng = np.random.default_rng([seed, *b"hard_size"])
    # More than there are: all of them. A study asks before anyone has counted.
    return _mask(len(correct), found[rng.choice(len(found), min(size, len(found)), replace=False)])


def sized_part(correct: BoolArray, seed: int, size: int) -> BoolArray:
    """Return the mask of `size` random samples."""
    rng = np.random.default_rng([seed, *b"size"])
    return _mask(len(correct), rng.choice(len(correct), min(size, len(correct)), replace=False))


def same_size_part(correct: BoolArray, difficulty: float | None, seed: int) -> BoolArray:
    """Return the mask of as many random samples as the hard set has, as `ACE(same_size=True)`."""
    rng = np.random.default_rng(seed)
    size = int(_hard(correct, difficulty, rng).sum())
    return _mask(len(correct), rng.choice(len(correct), size, replace=False))


def _hard(correct: BoolArray, difficulty: float | None, rng: np.random.Generator) -> BoolArray:
    return np.ones(len(correct), bool) if difficulty is None else hard_set(correct, difficulty, rng)


def _mask(n: int, chosen: IntArray) -> BoolArray:
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return mask
