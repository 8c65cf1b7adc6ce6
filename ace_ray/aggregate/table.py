"""A table as data: cells carry their value and how a person reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

MISSING = "missing"
NOTHING = "–"


class Cell(NamedTuple):
    """A value for machines, a text for people, and how it compares."""

    value: float | str | None
    text: str
    mark: str = ""  # "better", "worse" (than its peer), "missing" or nothing
    rank: int | None = None  # 1: best of its column, 2: second best


class Table(NamedTuple):
    """A named table; the first column is the row's label."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[Cell]]
    notes: list[str]

    def as_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        rows = [[list(cell) for cell in row] for row in self.rows]
        return {**self._asdict(), "rows": rows}

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Table:
        """Return the table that `as_plain` described."""
        rows = [[Cell(*cell) for cell in row] for row in data["rows"]]
        return cls(data["name"], data["title"], data["columns"], rows, data["notes"])


def label(text: str) -> Cell:
    """Return a cell that names its row."""
    return Cell(text, text)


def missing() -> Cell:
    """Return the cell of a measurement that does not exist."""
    return Cell(None, MISSING, MISSING)


def nothing() -> Cell:
    """Return the cell of a measurement that the run was never to make."""
    return Cell(None, NOTHING)


def p_text(p: float | None) -> str:
    """Return a p-value as people write it; None is an exact difference."""
    if p is None:
        return "deterministic"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}"
