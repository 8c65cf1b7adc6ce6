"""Which trials a configuration asks for: the grid, and what its studies add."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ace_ray.aggregate.studies import STUDIES
from ace_ray.aggregate.study import Sources
from ace_ray.config import Config
from ace_ray.sweep.search import drawn
from ace_ray.sweep.trial import TrialSpec

NO_SOURCES: Final[Sources] = MappingProxyType({})


def specs_of(config: Config, sources: Sources = NO_SOURCES) -> list[TrialSpec]:
    """Return all trials, each once: the grid first, then what each study adds, in their order.

    Args:
        config: The run.
        sources: The calibration splits of each model, which only the data know.
    """
    specs = grid(config)
    for study in config.studies:
        specs += STUDIES[study].trials(config) + STUDIES[study].domains(config, sources)
    found: dict[TrialSpec, TrialSpec] = {}
    for spec in specs:
        # A study may ask for a trial that the grid has with a bootstrap.
        found.setdefault(replace(spec, bootstrap=None), spec)
    return list(found.values())


def grid(config: Config) -> list[TrialSpec]:
    """Return the grid: model x calibrator x difficulty x seed, and what it is compared with.

    Difficulties are the listed ones, then those that the search draws.

    `alone` is tried once per seed, as `ace` is: a calibrator may use its seed. The first seed also
    draws the resamples of the bootstrap, at the first difficulty.
    """
    sweep = config.sweep

    def resamples(seed: int, difficulty: float) -> int | None:
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
                    method="alone",
                    seed=seed,
                    bootstrap=resamples(seed, sweep.difficulty[0]),
                    **named,
                )
                for seed in sweep.seeds
            ]
            specs += [
                TrialSpec(
                    method="ace", difficulty=d, seed=seed, bootstrap=resamples(seed, d), **named
                )
                for d in (*sweep.difficulty, *drawn(sweep.search))
                for seed in sweep.seeds
            ]
    return specs
