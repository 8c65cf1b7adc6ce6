"""Difficulties drawn at random become ordinary trials."""

from __future__ import annotations

import numpy as np
import pytest
from ray import tune

from ace_ray.config import RangeConfig, SearchConfig, load_plain
from ace_ray.sweep.search import drawn
from ace_ray.sweep.specs import grid


@pytest.mark.parametrize("kind", ["uniform", "loguniform"])
def test_the_draw_is_tunes_own(kind: str) -> None:
    search = SearchConfig(difficulty=RangeConfig(type=kind, low=0.5, high=15.0), samples=20, seed=3)
    domain = getattr(tune, kind)(0.5, 15.0)
    theirs = domain.sample(size=20, random_state=np.random.default_rng(3))
    assert drawn(search) == pytest.approx(theirs, rel=1e-14)
    assert drawn(search) == drawn(search)


def test_drawn_difficulties_are_trials_like_the_listed_ones() -> None:
    search = {"difficulty": {"type": "uniform", "low": 1, "high": 20}, "samples": 4}
    sweep = {"difficulty": [10], "seeds": [1, 2], "search": search}
    config = load_plain({"sweep": sweep}, "test")
    found = [spec.difficulty for spec in grid(config) if spec.method == "ace"]
    assert config.sweep.search is not None
    assert found == [d for d in (10.0, *drawn(config.sweep.search)) for _ in (1, 2)]
    more = load_plain({"sweep": {**sweep, "search": {**search, "samples": 6}}}, "test")
    # More samples keep those that there were, and so their records.
    assert drawn(more.sweep.search)[:4] == drawn(config.sweep.search)
