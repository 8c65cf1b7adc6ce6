"""Tests of each calibrator with ACE against the calibrator alone: ttest and welch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ace_ray.aggregate.arrange import Results
from ace_ray.aggregate.cells import compare, holm_adjusted, mark, percent, plain_rows
from ace_ray.aggregate.study import Study
from ace_ray.aggregate.table import Cell, Table, label, missing, p_text
from ace_ray.calibration import effect_size

_COLUMNS: Final = [
    "comparison", "alone, ECE (%)", "with ACE, ECE (%)", "change", "t", "p", "p (Holm)", "effect",
    "low", "high",
]  # fmt: skip
_INTERVAL: Final = (
    "low, high: 95 % interval of the change over test samples, paired bootstrap of the first seed"
)


def ttest(results: Results) -> Table:
    """Two-sample t-test, pooled variance, one-to-one with table1 (Tab. A2)."""
    return _tested(results, "ttest", "Two-sample t-test", own_variances=False)


def welch(results: Results) -> Table:
    """Welch's t-test, one-to-one with table1 (Tab. A3)."""
    return _tested(results, "welch", "Welch's t-test", own_variances=True)


def _tested(results: Results, name: str, title: str, *, own_variances: bool) -> Table:
    pairs = [
        (f"{row.name}, {group.name}", results.values(row.base, group),
         results.values(row.series, group), results.interval(row.base, row.series, group))
        for row in plain_rows(results, ["ace"])
        if row.base is not None
        for group in results.own(row.series.model, results.groups)
    ]  # fmt: skip
    tests = {key: compare(alone, ace, own_variances=own_variances) for key, alone, ace, _ in pairs}
    adjusted = holm_adjusted(tests)
    rows: list[list[Cell]] = []
    for key, alone, ace, interval in pairs:
        verdict = mark(alone, ace, own_variances=own_variances)
        cells = [label(key), percent(alone), percent(ace, verdict)]
        test = tests[key]
        if alone is None or ace is None:
            cells += [missing()] * 7
        else:
            cells.append(_change(float(np.mean(ace) - np.mean(alone))))
            if test is None:
                cells += [Cell(None, ""), Cell(None, "one seed"), Cell(None, ""), Cell(None, "")]
            else:
                effect = effect_size(ace, alone)
                holm = adjusted.get(key)
                cells += [
                    Cell(test.t, "" if test.t is None else f"{test.t:.2f}"),
                    Cell(test.p, p_text(test.p)),
                    Cell(holm, "" if holm is None else p_text(holm)),
                    Cell(effect, "" if effect is None else f"{effect:.2f}"),
                ]
            for end in interval or (None, None):
                cells.append(Cell(None, "") if end is None else _change(end))
        rows.append(cells)
    return Table(
        name,
        f"{title} over seeds: calibrator with ACE against the calibrator alone",
        _COLUMNS,
        rows,
        [
            "t: with ACE minus alone, negative where ACE is lower (the paper's sign is opposite)",
            f"p (Holm): adjusted for the {len(adjusted)} comparisons of this table; effect: "
            "Hedges' g",
            *([_INTERVAL] if any(pair[3] for pair in pairs) else []),
        ],
    )


def _change(fraction: float) -> Cell:
    return Cell(100 * fraction, f"{100 * fraction:+.3f}")


TABLES: Final[Mapping[str, Study]] = {"ttest": Study(ttest), "welch": Study(welch)}
