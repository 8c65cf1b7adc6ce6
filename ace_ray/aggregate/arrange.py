"""Measurements arranged for studies: which series and columns there are, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ace_ray.arrays import FloatArray
from ace_ray.calibration.density import Densities
from ace_ray.sweep.trial import ADDED

Place: TypeAlias = tuple[str, str]  # benchmark, split

# Methods by name, as tables write them. The last ones come with their own trials or not at all.
ADDITIONS: Final = {"ace": "ACE", "hard": "hard", "estimation": "Estimation"}
COMPARATORS: Final = {
    "perturbation": "Perturbation",
    "ensemble": "Ensemble",
    "svi": "SVI",
    "ll_svi": "LL-SVI",
    "svi_avuts": "SVI-AvUTS",
    "svi_avuc": "SVI-AvUC",
}


# What tables of the grid show; other methods come from studies.
GRID: Final = frozenset({"uncalibrated", "alone", "ace", *COMPARATORS})
_REACH: Final = 1.959964  # standard errors on either side of a 95 % interval


class Group(NamedTuple):
    """A column: one split, or all corruptions of one severity, over which metrics are averaged."""

    name: str
    splits: tuple[Place, ...]  # in a fixed order, so that sums have the same bits
    role: str = "ood"
    severity: int | None = None


class Series(NamedTuple):
    """A row: one method with its settings, repeated over seeds. The fields of a trial's spec."""

    model: str
    calibrator: str | None
    method: str
    difficulty: float | None = None
    fixed_alpha: float | None = None
    batch: int | None = None
    space: str | None = None
    size: int | None = None
    hard_size: int | None = None
    same_size: bool = False
    domain: str | None = None

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Series:
        """Return the series that a trial belongs to."""
        return cls(**{name: spec[name] for name in cls._fields})

    @property
    def plain(self) -> bool:
        """Whether no study added anything."""
        # By identity: a fixed alpha of 0 is something.
        return all((v := getattr(self, name)) is None or v is False for name in ADDED)

    def alone(self) -> Series:
        """Return the plain calibrator alone, which this is compared with."""
        return Series(self.model, self.calibrator, "alone")

    def __str__(self) -> str:
        if self.method == "uncalibrated":
            return "uncalibrated"
        if self.method == "alone":
            return str(self.calibrator)
        title = ADDITIONS.get(self.method) or COMPARATORS.get(self.method, self.method)
        return title if self.calibrator is None else f"{self.calibrator}+{title}"


@dataclass(frozen=True, slots=True)
class Results:
    """Measurements by series, split and seed.

    Attributes:
        groups: Columns: in-distribution, shifted splits, severities in ascending order.
        series: Rows of the plain grid, in the order of the sweep; what a study added is not here.
        difficulties: Of the plain grid.
        asked: Series -> the seeds that were asked for: what a complete series has.
        measured: Series -> split -> seed -> measurement.
        densities: Model -> the NLL of right and wrong samples of the calibration set.
        resampled: Series -> split -> the first seed's ECE, and that of its bootstrap resamples.
        roles: Model -> split -> its role; models need not have the same splits.
    """

    groups: list[Group]
    series: list[Series]
    difficulties: tuple[float, ...]
    asked: dict[Series, list[int | None]]
    measured: dict[Series, dict[Place, dict[int | None, dict[str, Any]]]]
    densities: dict[str, Densities]
    resampled: dict[Series, dict[Place, tuple[float, list[float]]]]
    roles: dict[str, dict[Place, str]]

    @classmethod
    def arrange(
        cls,
        records: Iterable[Mapping[str, Any]],
        specs: Iterable[Mapping[str, Any]],
        difficulties: Sequence[float],
    ) -> Results:
        """Index the measurements of records once.

        Args:
            records: Of the trials that have one.
            specs: Of all trials that were asked for, in order.
            difficulties: Of the plain grid; others were added by a study.
        """
        asked: dict[Series, list[int | None]] = {}
        for spec in specs:
            asked.setdefault(Series.of(spec), []).append(spec["seed"])
        measured: dict[Series, dict[Place, dict[int | None, dict[str, Any]]]] = {}
        densities: dict[str, Densities] = {}
        resampled: dict[Series, dict[Place, tuple[float, list[float]]]] = {}
        seen: dict[tuple[Place, str], dict[str, Any]] = {}
        roles: dict[str, dict[Place, str]] = {}
        for record in records:
            series = Series.of(record["spec"])
            places = measured.setdefault(series, {})
            for row, diagram in zip(record["measurements"], record["diagrams"], strict=True):
                place = (row["benchmark"], row["split"])
                seen.setdefault((place, row["role"]), row)
                roles.setdefault(series.model, {})[place] = row["role"]
                places.setdefault(place, {})[record["spec"]["seed"]] = row
                if "ece_resampled" in diagram:
                    drawn = (row["ece"], diagram["ece_resampled"])
                    resampled.setdefault(series, {})[place] = drawn
                if row["role"] == "calibration" and "nll_right" in diagram:
                    density = Densities(diagram["nll_right"], diagram["nll_wrong"])
                    model = record["spec"]["model"]
                    known = densities.get(model)
                    densities[model] = density if known is None else known.plus(density)
        grid = {None, *difficulties}
        rows = [s for s in asked if s.plain and s.method in GRID and s.difficulty in grid]
        return cls(
            _groups(seen), rows, tuple(difficulties), asked, measured, densities, resampled, roles
        )

    @property
    def inside(self) -> Group | None:
        """The in-distribution test."""
        return next((g for g in self.groups if g.role == "id"), None)

    @property
    def shifted(self) -> list[Group]:
        """The columns under shift."""
        return [g for g in self.groups if g.role == "ood"]

    @property
    def strongest(self) -> list[Group]:
        """The columns of the highest severity, one per corrupted benchmark."""
        top = max((g.severity for g in self.groups if g.severity is not None), default=None)
        return [g for g in self.groups if top is not None and g.severity == top]

    @property
    def seeds(self) -> int:
        """The number of repeats."""
        return max((len(v) for s, v in self.asked.items() if s.method != "uncalibrated"), default=0)

    def models(self) -> list[str]:
        """Return the models in order of appearance."""
        return list(dict.fromkeys(s.model for s in self.series))

    def calibrators(self) -> list[str]:
        """Return the calibrators in order of appearance."""
        return list(dict.fromkeys(s.calibrator for s in self.series if s.calibrator is not None))

    def of(self, model: str, method: str, calibrator: str | None = None) -> list[Series]:
        """Return a model's plain series of a method, of one calibrator or of all."""
        return [
            s
            for s in self.series
            if s.model == model and s.method == method and calibrator in (None, s.calibrator)
        ]

    def own(self, model: str, groups: Sequence[Group]) -> list[Group]:
        """Return the groups cut to a model's own splits, without those it has no split for."""
        roles = self.roles.get(model)
        if roles is None:
            return list(groups)  # no trial of it has a record: all of them are missing
        cut = [
            group._replace(splits=tuple(p for p in group.splits if roles.get(p) == group.role))
            for group in groups
        ]
        return [group for group in cut if group.splits]

    def planned(self, series: Series, group: Group) -> bool:
        """Whether the run was to measure this: otherwise nothing is missing."""
        return series in self.asked and bool(self.own(series.model, [group]))

    def matrix(self, series: Series, group: Group, metric: str) -> FloatArray | None:
        """Return the metric (seeds, the model's splits); None if one measurement is missing."""
        places, seeds = self.measured.get(series), self.asked.get(series)
        own = self.own(series.model, [group])
        if places is None or seeds is None or not own:
            return None
        rows = []
        for seed in seeds:
            found = [places.get(place, {}).get(seed) for place in own[0].splits]
            values = [None if row is None else row.get(metric) for row in found]
            if None in values:
                return None
            rows.append(values)
        return np.array(rows, np.float64)

    def values(self, series: Series, group: Group, metric: str = "ece") -> list[float] | None:
        """Return the metric per seed, averaged over the group; None if a measurement is missing."""
        matrix = self.matrix(series, group, metric)
        return None if matrix is None else [float(np.mean(row)) for row in matrix]

    def interval(self, base: Series, other: Series, group: Group) -> tuple[float, float] | None:
        """Return the 95 % interval of the change in ECE from base to other, over test samples.

        Paired bootstrap of the first seed, averaged over the group: normal, centred on the
        estimate, since resampling inflates the ECE itself. None where no resamples were kept.
        """
        pairs = [self.resampled.get(series, {}) for series in (base, other)]
        own = self.own(other.model, [group])
        if not own:
            return None
        (group,) = own
        if not all(place in found for found in pairs for place in group.splits):
            return None
        drawn = [[found[place] for place in group.splits] for found in pairs]
        estimates = [float(np.mean([ece for ece, _ in side])) for side in drawn]
        # One row per split: resamples of different splits are averaged in step.
        lengths = {len(values) for side in drawn for _, values in side}
        if len(lengths) != 1:
            return None
        means = [np.mean([values for _, values in side], axis=0) for side in drawn]
        change = estimates[1] - estimates[0]
        reach = _REACH * float(np.std(means[1] - means[0], ddof=1))
        return change - reach, change + reach

    def mean(
        self, series: Series, groups: Sequence[Group], metric: str = "ece"
    ) -> list[float] | None:
        """Return the metric per seed, averaged over the model's groups, of equal weight."""
        found = [self.values(series, g, metric) for g in self.own(series.model, groups)]
        if not found or None in found:
            return None
        return [float(np.mean(v)) for v in zip(*(f for f in found if f), strict=True)]

    def name(self, series: Series) -> str:
        """Return a series' name, with what tells it from the others of the run."""
        several = len(self.difficulties) > 1 and series.difficulty is not None
        suffix = f" d={series.difficulty:g}" if several else ""
        prefix = f"{series.model}: " if len(self.models()) > 1 else ""
        return f"{prefix}{series}{suffix}"


def _groups(seen: Mapping[tuple[Place, str], Mapping[str, Any]]) -> list[Group]:
    inside = tuple(place for place, role in seen if role == "id")
    groups = [Group("in-distribution", inside, "id")] if inside else []
    levels: dict[tuple[int, str], list[Place]] = {}
    for (place, role), row in seen.items():
        if role == "ood" and row["severity"] is None:
            groups.append(Group(f"{place[0]}:{place[1]}", (place,)))
        elif role == "ood":
            levels.setdefault((row["severity"], row["benchmark"]), []).append(place)
    several = len({benchmark for _, benchmark in levels}) > 1
    for level, benchmark in sorted(levels, key=lambda k: k[0]):
        name = f"{benchmark} severity {level}" if several else f"severity {level}"
        groups.append(Group(name, tuple(levels[level, benchmark]), "ood", level))
    return groups
