"""Cells of tables: mean and spread over seeds, marks of significance, ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from ace_ray.aggregate.arrange import Group, Results, Series
from ace_ray.aggregate.table import Cell, label, missing, nothing
from ace_ray.calibration import Significance, holm, two_sample_t, welch

SIGNIFICANT: Final = 0.05
_Key = TypeVar("_Key", bound=Hashable)


class Row(NamedTuple):
    """A table's row: a series, and the one it is compared with."""

    name: str
    series: Series
    base: Series | None = None


def compare(
    base: list[float] | None, other: list[float] | None, *, own_variances: bool = False
) -> Significance | None:
    """Test other against base; None where a side is missing or has fewer than two runs."""
    if base is None or other is None or min(len(base), len(other)) < 2:
        return None
    return welch(other, base) if own_variances else two_sample_t(other, base)


def significant(test: Significance | None) -> bool:
    """Whether a difference is real: p < 0.05, or exact."""
    return test is not None and (test.p is None or test.p < SIGNIFICANT)


def holm_adjusted(tests: Mapping[_Key, Significance | None]) -> dict[_Key, float]:
    """Return Holm-adjusted p-values of a family; an exact difference has none and is no member."""
    known = {key: test.p for key, test in tests.items() if test and test.p is not None}
    return dict(zip(known, holm(list(known.values())).tolist(), strict=True)) if known else {}


def percent(values: list[float] | None, mark: str = "") -> Cell:
    """Return mean and standard deviation over seeds, in per cent."""
    if values is None:
        return missing()
    mean = 100 * float(np.mean(values))
    if len(values) < 2:
        return Cell(mean, f"{mean:.2f}", mark)
    spread = 100 * float(np.std(values, ddof=1))
    # The mean of equal numbers may differ from them by a rounding.
    return Cell(mean, f"{mean:.2f} ±{spread:.3f}" if spread > 1e-12 else f"{mean:.2f}", mark)


def blank(results: Results, series: Series, group: Group) -> Cell:
    """Return the cell of a series without values: missing, or never asked for."""
    return missing() if results.planned(series, group) else nothing()


def mark(
    base: list[float] | None, other: list[float] | None, *, own_variances: bool = False
) -> str:
    """Return "better" (lower), "worse", or nothing where the difference is not significant."""
    if not significant(compare(base, other, own_variances=own_variances)):
        return ""
    assert base is not None
    assert other is not None
    return "better" if np.mean(other) < np.mean(base) else "worse"


def ranked(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Return the rows with the lowest and second lowest value of each column ranked 1 and 2."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in columns[1:]:
        known = {round(c.value, 9) for c in column if isinstance(c.value, float)}
        place = (
            {value: i + 1 for i, value in enumerate(sorted(known)[:2])} if len(known) > 1 else {}
        )
        for i, cell in enumerate(column):
            if isinstance(cell.value, float):
                column[i] = cell._replace(rank=place.get(round(cell.value, 9)))
    return [list(row) for row in zip(*columns, strict=True)]


def body(
    results: Results, rows: Sequence[Row], groups: Sequence[Group], metric: str = "ece"
) -> list[list[Cell]]:
    """Return rows of mean ± spread with marks; ranks are given within each model."""
    blocks: dict[str, list[list[Cell]]] = {}
    for row in rows:
        cells = [label(row.name)]
        for group in groups:
            values = results.values(row.series, group, metric)
            base = results.values(row.base, group, metric) if row.base else None
            if values is None:
                cells.append(blank(results, row.series, group))
            else:
                cells.append(percent(values, mark(base, values)))
        blocks.setdefault(row.series.model, []).append(cells)
    return [cells for block in blocks.values() for cells in ranked(block)]


def holm_note(
    results: Results, rows: Sequence[Row], groups: Sequence[Group], metric: str = "ece"
) -> list[str]:
    """Say which marks of a table do not survive Holm's correction over its cells."""
    tests = {
        (row.name.strip(), group.name): compare(
            results.values(row.base, group, metric), results.values(row.series, group, metric)
        )
        for row in rows
        if row.base is not None
        for group in groups
    }
    return holm_verdict(tests)


def holm_verdict(tests: Mapping[tuple[str, str], Significance | None]) -> list[str]:
    """Say which of a table's tests, by row and column, do not survive Holm's correction."""
    adjusted = holm_adjusted(tests)
    if not adjusted:
        return []
    lost = [
        f"{name} on {group}"
        for (name, group), p in adjusted.items()
        if p >= SIGNIFICANT and significant(tests[name, group])
    ]
    marked = any(test is not None and significant(test) for test in tests.values())
    stands = "all marks stand" if marked else "still no mark"
    verdict = f"not significant any more: {', '.join(lost)}" if lost else stands
    return [f"after Holm's correction over the {len(adjusted)} comparisons: {verdict}"]


def spread_note(results: Results) -> str:
    """Return what ± means, and over which splits a mean is taken where models differ."""
    pairs = ((results.own(m, [g]), g) for m in results.models() for g in results.groups)
    apart = any(own and own != [group] for own, group in pairs)
    note = f"mean ± standard deviation over {results.seeds} seeds"
    return f"{note}; each model over its own splits" if apart else note


def plain_rows(results: Results, methods: Sequence[str] = ()) -> list[Row]:
    """Return the run's plain series as rows, each method but `alone` compared with it."""
    chosen = [s for s in results.series if not methods or s.method in methods]
    return [
        Row(
            results.name(s),
            s,
            s.alone() if s.method not in ("uncalibrated", "alone") and s.calibrator else None,
        )
        for s in chosen
    ]
