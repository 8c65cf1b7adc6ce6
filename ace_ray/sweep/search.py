"""Difficulties drawn at random: the search's part of the grid.

They are drawn when the run is planned, from the search's own seed, by the rule of Tune's `uniform`
and `loguniform`, and become ordinary trials: pure functions of their spec, recorded by key, fitted
and measured with all others. A rerun draws the same ones and finds its records.
"""

from __future__ import annotations

import numpy as np

from ace_ray.config import SearchConfig


def drawn(search: SearchConfig | None) -> tuple[float, ...]:
    """Return the difficulties of a search, in the order of the draw; none without one."""
    if search is None:
        return ()
    rng = np.random.default_rng(search.seed)
    low, high = search.difficulty.low, search.difficulty.high
    if search.difficulty.type == "loguniform":
        found = np.exp(rng.uniform(np.log(low), np.log(high), search.samples))
    else:
        found = rng.uniform(low, high, search.samples)
    return tuple(float(value) for value in found)
