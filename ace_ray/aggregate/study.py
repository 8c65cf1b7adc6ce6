"""What a study is: the trials that it adds to the grid, and what it makes of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ace_ray.aggregate.arrange import COMPARATORS, Results
from ace_ray.aggregate.figure import Figure
from ace_ray.aggregate.table import Table
from ace_ray.config import Config
from ace_ray.sweep.trial import TrialSpec

NO_SHIFT: Final = "this run has no split with the role `ood`: import or configure one"
NO_TEST: Final = "this run has no split with the role `id`: import or configure one"
NO_CORRUPTION: Final = (
    "this run has no corrupted split: add imagenet-c, cifar10-c, `corrupt`, or splits named "
    "<corruption>/<severity>"
)


Sources: TypeAlias = Mapping[str, Sequence[str]]  # model -> its calibration splits


class Study(NamedTuple):
    """A table or a figure, and what it needs beside the plain grid."""

    show: Callable[[Results], Table | Figure]
    trials: Callable[[Config], list[TrialSpec]] = lambda _: []
    # What it needs of each source domain.
    domains: Callable[[Config, Sources], list[TrialSpec]] = lambda *_: []


def output_path(study: str) -> str:
    """Return where a study's data lie in a run's folder; figures are the studies `fig_...`."""
    return f"{'figures' if study.startswith('fig_') else 'tables'}/{study}.json"


def variants(config: Config, **fields: Any) -> list[TrialSpec]:
    """Return trials model x calibrator x seed with these fields.

    `difficulty` is the sweep's first unless given, `seeds` are all of its.
    """
    sweep = config.sweep
    seeds: Sequence[int] = fields.pop("seeds", sweep.seeds)
    fields = {"difficulty": sweep.difficulty[0], **fields}
    return [
        TrialSpec(
            model=model,
            calibrator=calibrator,
            seed=seed,
            bins=sweep.bins,
            clip_alpha=sweep.clip_alpha,
            **fields,
        )
        for model in config.model_names()
        for calibrator in sweep.calibrators
        for seed in seeds
    ]


def absent(results: Results, names: Sequence[str]) -> list[str]:
    """Return a note that names the comparators without results."""
    found = {s.method for s in results.series}
    lacking = [COMPARATORS[name] for name in names if name not in found]
    return [f"no results of {', '.join(lacking)}"] if lacking else []
