"""Tables as plain text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import Final
from unicodedata import combining, east_asian_width

from ace_ray.aggregate.table import NOTHING, Cell, Table
from ace_ray.report.escape import clean, csv_text, markdown_text

ARROWS: Final = {"better": "▲", "worse": "▼"}
_RANKS: Final = {1: "¹", 2: "²"}


def rank_of(cell: Cell) -> int | None:
    """Return the place of a cell among its peers, 1 the best, where it has one."""
    rank: int | None = getattr(cell, "rank", None)
    return rank


def number_of(cell: Cell) -> float | None:
    """Return a cell's value where it is a finite number."""
    value = cell.value
    if isinstance(value, str) or value is None or not math.isfinite(value):
        return None
    return float(value)


def shown(cell: Cell) -> str:
    """Return a cell's text with its mark."""
    mark = ARROWS.get(cell.mark)
    return f"{clean(cell.text)} {mark}" if mark else clean(cell.text)


def terminal(table: Table) -> str:
    """Return the table in aligned columns."""
    grid = [
        [clean(name) for name in table.columns],
        *([shown(cell) + _RANKS.get(rank_of(cell) or 0, "") for cell in row] for row in table.rows),
    ]
    widths = [max(_width(row[i]) for row in grid) for i in range(len(table.columns))]
    lines = [
        "  ".join(
            [row[0] + " " * (widths[0] - _width(row[0]))]
            + [" " * (w - _width(text)) + text for text, w in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in grid
    ]
    rule = "-" * max(_width(line) for line in lines)
    notes = [clean(note) for note in notes_of(table)]
    if _ranked(table):
        notes.append("¹ best, ² second best")
    return "\n".join([clean(table.title), rule, lines[0], rule, *lines[1:], rule, *notes])


def markdown(table: Table) -> str:
    """Return a GitHub-flavoured Markdown table; the best is bold, the second underlined."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def text(cell: Cell) -> str:
        inert = markdown_text(shown(cell))
        ranked = {1: f"**{inert}**", 2: f"<ins>{inert}</ins>"}
        return ranked.get(rank_of(cell) or 0, inert)

    names = [markdown_text(name) for name in table.columns]
    head = [line(names), line(["---"] + ["---:"] * (len(names) - 1))]
    body = [line([text(cell) for cell in row]) for row in table.rows]
    notes = [f"\n{markdown_text(note)}." for note in notes_of(table)]
    if _ranked(table):
        notes.append("\nBold: best; underlined: second best.")
    return "\n".join([f"### {markdown_text(table.title)}", "", *head, *body, *notes]) + "\n"


def comma_separated(table: Table) -> str:
    """Return CSV with full-precision values; a missing measurement is the word `missing`."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow([csv_text(name) for name in table.columns])
    for row in table.rows:
        values = ((number_of(cell), cell) for cell in row)
        writer.writerow([csv_text(c.text.strip()) if v is None else v for v, c in values])
    return sink.getvalue()


def notes_of(table: Table) -> list[str]:
    """Return the table's notes and what its marks mean."""
    marks = {cell.mark for row in table.rows for cell in row}
    notes = list(table.notes)
    if marks & ARROWS.keys():
        notes.append("▲ better (lower ECE), ▼ worse than the calibrator alone, p < 0.05")
    if "missing" in marks:
        notes.append("missing: a trial has no record; never a mean over fewer")
    if any(cell.text == NOTHING for row in table.rows for cell in row):
        notes.append(f"{NOTHING}: not asked of this run, which has no such split or trial")
    return notes


def _ranked(table: Table) -> bool:
    return any(rank_of(cell) in _RANKS for row in table.rows for cell in row)


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(combining(letter) > 0 for letter in text)
