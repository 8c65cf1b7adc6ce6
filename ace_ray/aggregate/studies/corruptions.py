"""Tables over corruptions at the highest severity: table3 and quartiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ace_ray.aggregate.arrange import Group, Results, Series
from ace_ray.aggregate.cells import (
    Row,
    blank,
    body,
    compare,
    holm_note,
    holm_verdict,
    mark,
    percent,
    plain_rows,
    ranked,
)
from ace_ray.aggregate.study import NO_CORRUPTION, Study, absent
from ace_ray.aggregate.table import Cell, Table, label
from ace_ray.calibration import Significance

_RIVALS: Final = ("ensemble", "svi", "ll_svi", "svi_avuts", "svi_avuc")
_QUARTILES: Final = {"lower quartile": 25, "median": 50, "upper quartile": 75}


def table3(results: Results) -> Table:
    """Mean ECE over corruptions at the highest severity, against other methods (Tab. 3)."""
    groups = results.strongest
    rows = plain_rows(results)
    found = {s.method for s in results.series}
    rows += [
        Row(results.name(series), series)
        for model in results.models()
        for name in _RIVALS
        if name not in found
        for series in [Series(model, None, name)]
    ]
    return Table(
        "table3",
        f"Mean ECE (%) over corruptions{_level(groups)}",
        ["method", *(_benchmark(g) for g in groups)],
        body(results, rows, groups) if groups else [],
        [*([] if groups else [NO_CORRUPTION]), *absent(results, _RIVALS),
         "marks: against the calibrator alone", *holm_note(results, rows, groups)],
    )  # fmt: skip


def _level(groups: Sequence[Group]) -> str:
    return f" at severity {groups[0].severity}" if groups else ""


def _benchmark(group: Group) -> str:
    return group.splits[0][0]


def quartiles(results: Results) -> Table:
    """Quartiles and mean of ECE over corruptions at the highest severity (Tab. A6, A7).

    Each seed has its own quartiles over corruptions; their mean and spread over seeds is shown.
    """
    groups = results.strongest
    blocks: dict[tuple[str, str], list[list[Cell]]] = {}
    tests: dict[tuple[str, str], Significance | None] = {}
    for group in groups:
        prefix = f"{_benchmark(group)}: " if len(groups) > 1 else ""
        for row in plain_rows(results):
            base = {} if row.base is None else _per_seed(results, row.base, group)
            mine = _per_seed(results, row.series, group)
            cells = [label(prefix + row.name)]
            for name in _COLUMNS:
                if name not in mine:
                    cells.append(blank(results, row.series, group))
                    continue
                pair = base.get(name), mine[name]
                tests[prefix + row.name, name] = compare(*pair)
                cells.append(percent(mine[name], mark(*pair)))
            blocks.setdefault((group.name, row.series.model), []).append(cells)
    count = f"{len(groups[0].splits)} corruptions" if groups else "corruptions"
    return Table(
        "quartiles",
        f"ECE (%): mean and quartiles over {count}{_level(groups)}",
        ["method", *_COLUMNS],
        [cells for block in blocks.values() for cells in ranked(block)],
        [*([] if groups else [NO_CORRUPTION]), *absent(results, _RIVALS),
         f"quartiles over corruptions of each seed, mean ± standard deviation over {results.seeds} "
         "seeds", *holm_verdict(tests)],
    )  # fmt: skip


_COLUMNS: Final = ("lower quartile", "median", "mean", "upper quartile")


def _per_seed(results: Results, series: Series, group: Group) -> dict[str, list[float]]:
    """Return each column's values per seed; nothing where a measurement is missing."""
    ece = results.matrix(series, group, "ece")
    if ece is None:
        return {}
    found = {name: np.percentile(ece, q, axis=1).tolist() for name, q in _QUARTILES.items()}
    return {**found, "mean": ece.mean(axis=1).tolist()}


TABLES: Final[Mapping[str, Study]] = {"table3": Study(table3), "quartiles": Study(quartiles)}
