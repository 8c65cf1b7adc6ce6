"""Tables as plain text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from typing import Final

from ace_ray.aggregate.table import Cell, Table

_ARROW: Final = {"better": " ▲", "worse": " ▼"}


def shown(cell: Cell) -> str:
    """Return a cell's text with its mark."""
    return cell.text + _ARROW.get(cell.mark, "")


def terminal(table: Table) -> str:
    """Return the table in aligned columns."""
    grid = [table.columns, *([shown(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.columns))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in grid
    ]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([table.title, rule, lines[0], rule, *lines[1:], rule, *_notes(table)])


def markdown(table: Table) -> str:
    """Return a GitHub-flavoured Markdown table."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(c.strip().replace("|", "\\|") for c in cells) + " |"

    head = [line(table.columns), line(["---"] + ["---:"] * (len(table.columns) - 1))]
    body = [line([shown(cell) for cell in row]) for row in table.rows]
    notes = [f"\n{note}." for note in _notes(table)]
    return "\n".join([f"### {table.title}", "", *head, *body, *notes]) + "\n"


def comma_separated(table: Table) -> str:
    """Return CSV with full-precision values; a missing measurement is the word `missing`."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([c.text.strip() if c.value is None else c.value for c in row])
    return sink.getvalue()


def _notes(table: Table) -> list[str]:
    marks = {cell.mark for row in table.rows for cell in row}
    notes = list(table.notes)
    if marks & _ARROW.keys():
        notes.append("▲ better (lower ECE), ▼ worse than the calibrator alone, p < 0.05")
    if "missing" in marks:
        notes.append("missing: a trial has no record; never a mean over fewer")
    return notes
