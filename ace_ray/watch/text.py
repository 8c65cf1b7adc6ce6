"""A board as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.aggregate.table import Cell, Table, label
from ace_ray.report.text import terminal


def board_table(board: Mapping[str, Any]) -> str:
    """Return the board in aligned columns, ECE in per cent."""
    first = board["models"][0]
    columns = ["model"]
    for b in first["benchmarks"]:
        where = f"{b['benchmark']} {'ID' if b['group'] == 'in-distribution' else 'shifted'}"
        columns += [f"{where} raw", "calibrated", "+ACE"]
    rows = []
    for model in board["models"]:
        row = [label(model["model"])]
        for b in model["benchmarks"]:
            row += [_cell(b[f"ece_{name}"]) for name in ("uncalibrated", "before", "after")]
        date = model["date"][:10]
        row += [Cell(date, date), Cell(model["run_id"], model["run_id"])]
        worse = "worse" if model["regressions"] else ""
        rows.append([*row, Cell(worse, worse)])
    title = f"ECE (%), {board['calibrator']}; settings {board['settings'][:12]}"
    return terminal(Table("leaderboard", title, [*columns, "date", "run", ""], rows, []))


def _cell(value: float | None) -> Cell:
    return Cell(value, "-" if value is None else f"{100 * value:.2f}")
