"""ACE as a Tune trainable of one's own: any search algorithm and scheduler, with early stopping.

A run's own sweep does not stop early, so that its records depend on nothing but their specs. Who
looks for a difficulty by hand takes this; what it finds goes into a configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from ray import tune

from ace_ray.config import load
from ace_ray.plan import make_plan
from ace_ray.run import split_sources
from ace_ray.store import Store
from ace_ray.sweep.engine import sweep
from ace_ray.sweep.splits import opened
from ace_ray.sweep.trial import EvaluationSplit, TrialSpec


def load_splits(path: str | None, model: str, store: str | None = None) -> list[EvaluationSplit]:
    """Return the committed splits of a configuration's model."""
    config = load(path, {"store": store} if store else {})
    plan = make_plan(config, Store.open(config.store))
    with ExitStack() as stack:
        return [
            stack.enter_context(opened(plan.store, source, None))
            for source in split_sources(plan, model)
        ]


def objective(
    config: Mapping[str, Any],
    *,
    splits: Sequence[EvaluationSplit],
    calibrator: str = "temperature",
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
) -> None:
    """Report `ece_id` and `ece_ood`, the means over splits and seeds so far, after every seed.

    Args:
        config: Fields of a trial, such as `difficulty`; `calibrator` may be among them.
        splits: From `load_splits`, handed over by `tune.with_parameters`.
        calibrator: The family, where `config` has none.
        seeds: As many steps as Tune sees.
    """
    found: dict[str, list[float]] = {"id": [], "ood": []}
    for seed in seeds:
        given = {"calibrator": calibrator, **config, "seed": seed}
        result = sweep({"": TrialSpec(model="", method="ace", **given)}, list(splits))[""]
        if isinstance(result, str):
            raise ValueError(result)
        for row in result.measurements:
            if row["role"] in found:
                found[row["role"]].append(row["ece"])
        tune.report({f"ece_{k}": float(np.mean(v)) for k, v in found.items() if v})
