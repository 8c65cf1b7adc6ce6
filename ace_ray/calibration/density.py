"""How the NLL is spread over right and wrong samples: counts on a fixed grid, which add up."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ace_ray.arrays import BoolArray, FloatArray

# The last bin also holds what lies beyond, infinity included.
EDGES: Final = np.linspace(0, 15, 151)


class Densities(NamedTuple):
    """Samples per bin of `EDGES`, of right and of wrong predictions."""

    right: list[float]
    wrong: list[float]

    def plus(self, other: Densities) -> Densities:
        """Return both sets of samples together."""
        pairs = zip(self, other, strict=True)
        right, wrong = ([a + b for a, b in zip(x, y, strict=True)] for x, y in pairs)
        return Densities(right, wrong)


def nll_histograms(p: FloatArray, correct: BoolArray) -> dict[str, list[float]]:
    """Return `nll_right` and `nll_wrong` of a split, for its diagram in a trial's record.

    Args:
        p: (N,) uncalibrated probabilities of the true class.
        correct: (N,) whether each prediction was right.
    """
    with np.errstate(divide="ignore"):
        loss = -np.log(p)
    return {"nll_right": _counts(loss[correct]), "nll_wrong": _counts(loss[~correct])}


def _counts(loss: FloatArray) -> list[float]:
    # Rounding may leave a probability a hair above 1.
    counts, _ = np.histogram(np.clip(loss, EDGES[0], EDGES[-1]), EDGES)
    return [int(c) for c in counts]


def density(counts: list[float]) -> list[float] | None:
    """Return the counts as a probability density; None where there are no samples."""
    total = sum(counts)
    width = float(EDGES[1] - EDGES[0])
    return [c / total / width for c in counts] if total else None
