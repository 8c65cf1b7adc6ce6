"""Which trials a configuration asks for: the grid, and what its studies add."""

from __future__ import annotations

from typing import Any

from ace_ray.aggregate.studies import STUDIES
from ace_ray.config import Config
from ace_ray.sweep.trial import TrialSpec


def specs_of(config: Config) -> list[TrialSpec]:
    """Return all trials, each once: the grid first, then what each study adds, in their order."""
    specs = grid(config)
    for study in config.studies:
        specs += STUDIES[study].trials(config)
    return list(dict.fromkeys(specs))


def grid(config: Config) -> list[TrialSpec]:
    """Return the grid: model x calibrator x difficulty x seed, and what it is compared with.

    `alone` is tried once per seed, as `ace` is: a calibrator may use its seed.
    """
    sweep = config.sweep
    common: dict[str, Any] = {"bins": sweep.bins, "clip_alpha": sweep.clip_alpha}
    specs: list[TrialSpec] = []
    for model in config.model_names():
        specs.append(TrialSpec(model=model, method="uncalibrated", **common))
        for name in sweep.calibrators:
            named: dict[str, Any] = {"model": model, "calibrator": name, **common}
            specs += [TrialSpec(method="alone", seed=seed, **named) for seed in sweep.seeds]
            specs += [
                TrialSpec(method="ace", difficulty=d, seed=seed, **named)
                for d in sweep.difficulty
                for seed in sweep.seeds
            ]
    return specs
