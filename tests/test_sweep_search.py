"""Difficulties drawn at random become ordinary trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from ray import tune

from ace_ray.config import RangeConfig, SearchConfig, load_plain
from ace_ray.session import ray_session
from ace_ray.sweep.objective import load_splits, objective
from ace_ray.sweep.search import drawn
from ace_ray.sweep.specs import grid
from tests.conftest import SMALL


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


def test_tunes_own_search_and_early_stopping(small_run: dict[str, Any], tmp_path: Path) -> None:
    """Any scheduler: here a poor difficulty is stopped after its first seed."""
    splits = load_splits(str(SMALL), "test_resnet.glyphs", str(small_run["store"]))
    assert {split.role for split in splits} == {"calibration", "id", "ood"}
    with ray_session(2):
        tuner = tune.Tuner(
            tune.with_parameters(objective, splits=splits, seeds=(1, 2, 3)),
            param_space={"difficulty": tune.grid_search([10.0, 0.5])},
            tune_config=tune.TuneConfig(
                metric="ece_ood",
                mode="min",
                max_concurrent_trials=1,
                scheduler=tune.schedulers.AsyncHyperBandScheduler(
                    max_t=3, grace_period=1, reduction_factor=2
                ),
            ),
            run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
        )
        grid = tuner.fit()
    steps = {r.config["difficulty"]: r.metrics["training_iteration"] for r in grid}
    assert steps[10.0] == 3
    assert steps[0.5] == 1
    best = grid.get_best_result()
    rows = pq.read_table(small_run["results"]).to_pylist()
    mine = [r["ece"] for r in rows if r["method"] == "ace" and r["role"] == "ood"]
    assert best.metrics["ece_ood"] == pytest.approx(np.mean(mine), abs=1e-12)
