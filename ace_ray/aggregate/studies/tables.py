"""Tables of the plain grid over splits: table1, table2, metrics, severity, alpha, models, wilds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ace_ray.aggregate.arrange import Results, Series
from ace_ray.aggregate.cells import (
    Row,
    blank,
    body,
    compare,
    holm_note,
    mark,
    percent,
    plain_rows,
    ranked,
    spread_note,
)
from ace_ray.aggregate.study import NO_SHIFT, NO_TEST, Study, absent
from ace_ray.aggregate.table import Cell, Table, label, nothing, p_text


def _wanting(results: Results) -> list[str]:
    return [] if results.shifted else [NO_SHIFT]


def table1(results: Results) -> Table:
    """ECE of each calibrator alone and with ACE, on every shifted split (Tab. 1)."""
    rows = plain_rows(results)
    groups = results.shifted
    return Table(
        "table1",
        "ECE (%) under shift: calibrators alone and with ACE",
        ["method", *(g.name for g in groups)],
        body(results, rows, groups) if groups else [],
        [*_wanting(results), spread_note(results), *holm_note(results, rows, groups)],
    )


def table2(results: Results) -> Table:
    """One calibrator alone, with ACE and with Perturbation, for every model (Tab. 2)."""
    names = results.calibrators()
    calibrator = "spline" if "spline" in names else next(iter(names), None)
    groups = results.shifted
    rows: list[Row] = []
    for model in results.models():
        for method in ("alone", "ace", "perturbation"):
            found = results.of(model, method, calibrator) or [Series(model, calibrator, method)]
            rows += [
                Row(results.name(s), s, None if method == "alone" else s.alone()) for s in found
            ]
    few = ["the paper compares three models; this run has one"] if len(results.models()) < 2 else []
    return Table(
        "table2",
        f"ECE (%) under shift of {calibrator} per model",
        ["method", *(g.name for g in groups)],
        body(results, rows, groups) if groups else [],
        [*_wanting(results), *few, *absent(results, ["perturbation"]), spread_note(results),
         *holm_note(results, rows, groups)],
    )  # fmt: skip


_METRICS: Final = {"ks": "KS error", "brier": "Brier score"}


def metrics(results: Results) -> Table:
    """KS error and top-label Brier score for the rows and columns of table1 (Tab. A1)."""
    groups = results.shifted
    cells: list[list[Cell]] = []
    notes = [*_wanting(results), spread_note(results)]
    for metric, title in _METRICS.items():
        rows = [r._replace(name=f"{title}, {r.name}") for r in plain_rows(results)]
        cells += body(results, rows, groups, metric) if groups else []
        notes += [f"{title}: {note}" for note in holm_note(results, rows, groups, metric)]
    return Table(
        "metrics",
        "KS error and top-label Brier score (%) under shift",
        ["metric, method", *(g.name for g in groups)],
        cells,
        notes,
    )


def severity(results: Results) -> Table:
    """ECE in-distribution and per severity, with alpha and the p-value of each ACE row."""
    cells: list[list[Cell]] = []
    rows = plain_rows(results)
    for model in results.models():
        mine = [row for row in rows if row.series.model == model]
        for row, shown in zip(mine, body(results, mine, results.groups), strict=True):
            cells.append(shown)
            if row.series.method == "ace" and row.base is not None:
                title = f"  p against {row.series.calibrator}"
                cells.append([label(title), *_p_cells(results, row.base, row.series)])
        ace = next((r.series for r in mine if r.series.method == "ace"), None)
        if ace is not None:
            alphas = {g: results.values(ace, g, "alpha") for g in results.groups}
            title = f"{model}: alpha" if len(results.models()) > 1 else "alpha"
            shown = [
                blank(results, ace, g) if a is None else Cell(a[0], f"{a[0]:.3f}")
                for g, a in alphas.items()
            ]
            cells.append([label(title), *shown])
    return Table(
        "severity",
        "ECE (%), in-distribution and mean over corruptions per severity",
        ["method", *(group.name for group in results.groups)],
        cells,
        [
            f"{spread_note(results)}; p: two-sample t-test over seeds, unadjusted",
            *holm_note(results, rows, results.groups),
            "p speaks of the draw of the hard set, not of the test samples",
        ],
    )


def _p_cells(results: Results, alone: Series, ace: Series) -> list[Cell]:
    cells = []
    for group in results.groups:
        pair = results.values(alone, group), results.values(ace, group)
        test = compare(*pair)
        if test is None:
            cells.append(blank(results, ace, group) if None in pair else Cell(None, "one seed"))
        else:
            cells.append(Cell(test.p, p_text(test.p)))
    return cells


def alpha(results: Results) -> Table:
    """The adaptive weight per model and split: no label of the test set enters it (Tab. A8)."""
    known: dict[tuple[str, str], dict[int | None, tuple[float, float]]] = {}
    for model in results.models():
        ace = next(iter(results.of(model, "ace")), None)
        places = results.measured.get(ace, {}) if ace else {}
        for (benchmark, split), seeds in places.items():
            row: dict[str, Any] = next(iter(seeds.values()))
            if row["role"] != "calibration":
                shift = row["corruption"] or f"{benchmark}:{split}"
                found = known.setdefault((model, shift), {})
                found.setdefault(row["severity"], (row["alpha"], row["alpha_raw"]))

    def cell(pair: tuple[float, float] | None) -> Cell:
        if pair is None:
            return Cell(None, "")
        return Cell(pair[0], f"{pair[0]:.3f}{'*' if pair[0] != pair[1] else ''}")

    levels = sorted({level for found in known.values() for level in found if level is not None})
    several = len(results.models()) > 1
    rows = [
        [
            label(f"{model}: {shift}" if several else shift),
            *(cell(found.get(level)) for level in [None, *levels]),
        ]
        for (model, shift), found in known.items()
    ]
    clipped = any(cell.text.endswith("*") for row in rows for cell in row[1:])
    return Table(
        "alpha",
        "Adaptive weight alpha per split",
        ["split", "as it is", *(f"severity {level}" for level in levels)],
        rows,
        ["* clipped to [0, 1]; results.parquet keeps alpha_raw"] if clipped else [],
    )


def weak_models(results: Results) -> Table:
    """Every model with its accuracy: does ACE help where D_o is hard (Tab. A11)?"""
    rows: list[Row] = []
    for model in results.models():
        raw = Series(model, None, "uncalibrated")
        right = results.values(raw, results.inside, "accuracy") if results.inside else None
        accuracy = "?" if right is None else f"{100 * right[0]:.1f} %"
        rows += [
            row._replace(name=f"{model} ({accuracy}): {row.series}")
            for row in plain_rows(results, ["alone", "ace"])
            if row.series.model == model
        ]
    few = "the paper's are lcnet_050 and tinynet_e, of 60 % accuracy"
    return Table(
        "weak_models",
        "ECE (%) by model, with its in-distribution accuracy",
        ["model (accuracy): method", *(g.name for g in results.groups)],
        body(results, rows, results.groups),
        [*([] if results.inside else [NO_TEST]), few, spread_note(results),
         *holm_note(results, rows, results.groups)],
    )  # fmt: skip


def wilds(results: Results) -> Table:
    """Methods as columns, splits as rows (Tab. A12); each row has its own best."""
    rows: list[list[Cell]] = []
    columns = list(dict.fromkeys(str(s) for s in results.series))
    for model in results.models():
        mine = {str(s): s for s in reversed(results.series) if s.model == model}
        for group in results.own(model, results.groups):
            line = []
            for name in columns:
                series = mine.get(name)
                if series is None:
                    line.append(nothing())
                    continue
                values = results.values(series, group)
                base = results.values(series.alone(), group) if series.method == "ace" else None
                line.append(percent(values, mark(base, values)))
            # Ranks are given down a column: turn the row on its side.
            best = [pair[1] for pair in ranked([[label(""), cell] for cell in line])]
            several = len(results.models()) > 1
            rows.append([label(f"{model}: {group.name}" if several else group.name), *best])
    return Table(
        "wilds",
        "ECE (%) per split, in-distribution and under shift",
        ["split", *columns],
        rows,
        [*([] if results.inside else [NO_TEST]), *_wanting(results), spread_note(results)],
    )


TABLES: Final[Mapping[str, Study]] = {
    "table1": Study(table1),
    "table2": Study(table2),
    "metrics": Study(metrics),
    "severity": Study(severity),
    "alpha": Study(alpha),
    "weak_models": Study(weak_models),
    "wilds": Study(wilds),
}
