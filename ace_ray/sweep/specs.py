"""Which trials a configuration asks for: the grid, and what its studies add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ace_ray.aggregate.studies import STUDIES
from ace_ray.config import Config
from ace_ray.sweep.trial import TrialSpec


def specs_of(config: Config) -> list[TrialSpec]:
    """Return all trials, each once: the grid first, then what each study adds, in their order."""
    specs = grid(config)
    for study in config.studies:
        specs += STUDIES[study].trials(config)
    found: dict[TrialSpec, TrialSpec] = {}
    for spec in specs:
        # A study may ask for a trial that the grid has with a bootstrap.
        found.setdefault(replace(spec, bootstrap=None), spec)
    return list(found.values())


def grid(config: Config) -> list[TrialSpec]:
    """Return the grid: model x calibrator x difficulty x seed, and what it is compared with.

    `alone` is tried once per seed, as `ace` is: a calibrator may use its seed. The first seed also
    draws the resamples of the bootstrap, at the first difficulty.
    """
    sweep = config.sweep

    def drawn(seed: int, difficulty: float) -> int | None:
        first = (sweep.seeds[0], sweep.difficulty[0])
        return sweep.bootstrap if (seed, difficulty) == first else None

    common: dict[str, Any] = {"bins": sweep.bins, "clip_alpha": sweep.clip_alpha}
    specs: list[TrialSpec] = []
    for model in config.model_names():
        specs.append(TrialSpec(model=model, method="uncalibrated", **common))
        for name in sweep.calibrators:
            named: dict[str, Any] = {"model": model, "calibrator": name, **common}
            specs += [
                TrialSpec(
                    method="alone", seed=seed, bootstrap=drawn(seed, sweep.difficulty[0]), **named
                )
                for seed in sweep.seeds
            ]
            specs += [
                TrialSpec(method="ace", difficulty=d, seed=seed, bootstrap=drawn(seed, d), **named)
                for d in sweep.difficulty
                for seed in sweep.seeds
            ]
    return specs
