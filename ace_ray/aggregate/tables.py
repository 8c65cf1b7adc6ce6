"""The studies: tables computed from results, refusing means over fewer runs than were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ace_ray.aggregate.table import Cell, Table, label, missing, p_text
from ace_ray.calibration import Significance, two_sample_t

SIGNIFICANT: Final = 0.05


class Group(NamedTuple):
    """A column: one split, or all corruptions of one severity, over which metrics are averaged."""

    name: str
    splits: frozenset[tuple[str, str]]  # benchmark, split


class Series(NamedTuple):
    """A row: one method with its settings, repeated over seeds."""

    model: str
    calibrator: str | None
    method: str
    difficulty: float | None

    def __str__(self) -> str:
        if self.method == "uncalibrated":
            return "uncalibrated"
        return f"{self.calibrator}+ACE" if self.method == "ace" else f"{self.calibrator}"


@dataclass(frozen=True, slots=True)
class Results:
    """Measurements arranged for tables.

    Attributes:
        groups: Columns, in order of appearance; in-distribution first.
        series: Rows, in the order of the sweep.
        seeds: How many repeats a series must have (1 for `uncalibrated`).
    """

    rows: list[dict[str, Any]]
    groups: list[Group]
    series: list[Series]
    seeds: int

    @classmethod
    def arrange(cls, rows: list[dict[str, Any]], series: list[Series], seeds: int) -> Results:
        """Find the groups: the in-distribution test, each severity, each other shifted split."""
        found: dict[str, set[tuple[str, str]]] = {}
        for role in ("id", "ood"):
            for row in (r for r in rows if r["role"] == role):
                if role == "id":
                    name = "in-distribution"
                elif row["severity"] is not None:
                    name = f"severity {row['severity']}"
                else:
                    name = f"{row['benchmark']}:{row['split']}"
                found.setdefault(name, set()).add((row["benchmark"], row["split"]))
        groups = [Group(name, frozenset(splits)) for name, splits in found.items()]
        return cls(rows, groups, series, seeds)

    def models(self) -> list[str]:
        """Return the models in order of appearance."""
        return list(dict.fromkeys(s.model for s in self.series))

    def values(self, series: Series, group: Group, metric: str) -> list[float] | None:
        """Return the metric per seed, averaged over the group; None if a measurement is missing."""
        by_seed: dict[int | None, list[float]] = {}
        for row in self.rows:
            if (row["model"], row["calibrator"], row["method"], row["difficulty"]) != series:
                continue
            if (row["benchmark"], row["split"]) in group.splits and row[metric] is not None:
                by_seed.setdefault(row["seed"], []).append(row[metric])
        expected = 1 if series.method == "uncalibrated" else self.seeds
        complete = [v for v in by_seed.values() if len(v) == len(group.splits)]
        if len(complete) != expected:
            return None
        return [float(np.mean(v)) for v in complete]

    def pairs(self, model: str) -> list[tuple[Series, Series]]:
        """Return each `ace` series of a model with the `alone` series it is compared with."""
        return [
            (Series(s.model, s.calibrator, "alone", None), s)
            for s in self.series
            if s.model == model and s.method == "ace"
        ]


def compare(alone: list[float] | None, ace: list[float] | None) -> Significance | None:
    """Test ace against alone; None where a side is missing or has fewer than two runs."""
    if alone is None or ace is None or min(len(alone), len(ace)) < 2:
        return None
    return two_sample_t(ace, alone)


def _percent(values: list[float] | None, mark: str = "") -> Cell:
    if values is None:
        return missing()
    mean = 100 * float(np.mean(values))
    if len(values) < 2:
        return Cell(mean, f"{mean:.2f}", mark)
    spread = 100 * float(np.std(values, ddof=1))
    return Cell(mean, f"{mean:.2f} ±{spread:.3f}" if spread > 0 else f"{mean:.2f}", mark)


def _mark(alone: list[float] | None, ace: list[float] | None) -> str:
    test = compare(alone, ace)
    if test is None or (test.p is not None and test.p >= SIGNIFICANT):
        return ""
    assert alone is not None
    assert ace is not None
    return "better" if np.mean(ace) < np.mean(alone) else "worse"


def _name(series: Series, results: Results) -> str:
    several = len({s.difficulty for s in results.series if s.method == "ace"}) > 1
    suffix = f" d={series.difficulty:g}" if several and series.method == "ace" else ""
    prefix = f"{series.model}: " if len(results.models()) > 1 else ""
    return f"{prefix}{series}{suffix}"


def severity(results: Results) -> Table:
    """ECE in-distribution and per severity, with alpha and the p-value of each ACE row."""
    rows: list[list[Cell]] = []
    for model in results.models():
        first_ace: Series | None = None
        for series in (s for s in results.series if s.model == model):
            alone = Series(model, series.calibrator, "alone", None)
            cells = []
            for group in results.groups:
                values = results.values(series, group, "ece")
                base = results.values(alone, group, "ece") if series.method == "ace" else None
                cells.append(_percent(values, _mark(base, values) if base else ""))
            rows.append([label(_name(series, results)), *cells])
            if series.method == "ace":
                first_ace = first_ace or series
                rows.append(
                    [label(f"  p against {series.calibrator}"), *_p_cells(results, alone, series)]
                )
        if first_ace is not None:
            alphas = [results.values(first_ace, g, "alpha") for g in results.groups]
            rows.append(
                [
                    label(f"{model}: alpha" if len(results.models()) > 1 else "alpha"),
                    *(missing() if a is None else Cell(a[0], f"{a[0]:.3f}") for a in alphas),
                ]
            )
    return Table(
        "severity",
        "ECE (%), in-distribution and mean over corruptions per severity",
        ["method", *(group.name for group in results.groups)],
        rows,
        [
            f"mean ± standard deviation over {results.seeds} seeds; p: two-sample t-test over "
            "seeds, unadjusted",
            "p speaks of the draw of the hard set, not of the test samples",
        ],
    )


def _p_cells(results: Results, alone: Series, ace: Series) -> list[Cell]:
    cells = []
    for group in results.groups:
        pair = results.values(alone, group, "ece"), results.values(ace, group, "ece")
        test = compare(*pair)
        if test is None:
            cells.append(missing() if None in pair else Cell(None, "one seed"))
        else:
            cells.append(Cell(test.p, p_text(test.p)))
    return cells


def ttest(results: Results) -> Table:
    """Two-sample t-test of each calibrator with ACE against the calibrator alone."""
    rows: list[list[Cell]] = []
    for model in results.models():
        for alone, ace in results.pairs(model):
            for group in results.groups:
                before, after = (results.values(s, group, "ece") for s in (alone, ace))
                test = compare(before, after)
                cells = [label(f"{_name(ace, results)}, {group.name}")]
                cells += [_percent(before), _percent(after, _mark(before, after))]
                if before is None or after is None:
                    cells += [missing()] * 3
                else:
                    change = 100 * float(np.mean(after) - np.mean(before))
                    t, p = (test.t, test.p) if test else (None, None)
                    cells.append(Cell(change, f"{change:+.3f}"))
                    cells.append(Cell(t, "" if t is None else f"{t:.2f}"))
                    cells.append(Cell(p, p_text(p) if test else "one seed"))
                rows.append(cells)
    columns = ["comparison", "alone, ECE (%)", "with ACE, ECE (%)", "change", "t", "p"]
    title = "Two-sample t-test over seeds: calibrator with ACE against the calibrator alone"
    return Table("ttest", title, columns, rows, ["unadjusted p-values"])


def alpha(results: Results) -> Table:
    """The adaptive weight per split: no label of the test set enters it."""
    ood = [r for r in results.rows if r["role"] == "ood" and r["method"] == "ace"]
    levels = sorted({r["severity"] for r in ood if r["severity"] is not None})
    first: dict[tuple[str, str, Any], float] = {}
    raw: dict[tuple[str, str, Any], float] = {}
    names: dict[tuple[str, str], None] = {}
    for row in results.rows:
        if row["method"] != "ace" or row["role"] == "calibration":
            continue
        shift = row["corruption"] or f"{row['benchmark']}:{row['split']}"
        names.setdefault((row["model"], shift))
        first.setdefault((row["model"], shift, row["severity"]), row["alpha"])
        raw.setdefault((row["model"], shift, row["severity"]), row["alpha_raw"])

    def cell(model: str, shift: str, level: int | None) -> Cell:
        value = first.get((model, shift, level))
        if value is None:
            return Cell(None, "")
        star = "*" if raw[model, shift, level] != value else ""
        return Cell(value, f"{value:.3f}{star}")

    several = len(results.models()) > 1
    rows = [
        [
            label(f"{model}: {shift}" if several else shift),
            cell(model, shift, None),
            *(cell(model, shift, level) for level in levels),
        ]
        for model, shift in names
    ]
    return Table(
        "alpha",
        "Adaptive weight alpha per split",
        ["split", "as it is", *(f"severity {level}" for level in levels)],
        rows,
        ["* clipped to [0, 1]; results.parquet keeps alpha_raw"],
    )


STUDIES: Final[Mapping[str, Callable[[Results], Table]]] = {
    "severity": severity,
    "ttest": ttest,
    "alpha": alpha,
}


def summary(results: Results) -> list[str]:
    """Say in words what each ACE did at the strongest shift and in-distribution."""
    if len(results.groups) < 2:
        return []
    sentences = []
    inside = next((g for g in results.groups if g.name == "in-distribution"), None)
    strongest = results.groups[-1]
    for model in results.models():
        for alone, ace in results.pairs(model):
            parts = [
                text
                for group in (strongest, inside)
                if group is not None and (text := _change(results, alone, ace, group))
            ]
            if parts:
                sentences.append(f"{_name(ace, results)}: " + "; ".join(parts) + ".")
    return sentences


def _change(results: Results, alone: Series, ace: Series, group: Group) -> str:
    before, after = (results.values(s, group, "ece") for s in (alone, ace))
    if before is None or after is None:
        return f"{group.name} not known, trials are missing"
    numbers = f"{100 * np.mean(before):.2f} % -> {100 * np.mean(after):.2f} %"
    test = compare(before, after)
    if test is None:
        return f"{group.name} ECE {numbers} (one seed, not tested)"
    if test.p is not None and test.p >= SIGNIFICANT:
        return f"{group.name} ECE {numbers}, no significant change (p {p_text(test.p)})"
    verb = "lower" if np.mean(after) < np.mean(before) else "HIGHER"
    sign = "exact" if test.p is None else f"p {p_text(test.p)}"
    return f"{group.name} ECE {numbers}, {verb} ({sign})"
