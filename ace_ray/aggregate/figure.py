"""A figure as data: panels of curves, ready for any renderer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Drawn: TypeAlias = Literal["line", "points", "bars", "area"]


class Curve(NamedTuple):
    """A named series of points; bars stand at the positions `x`."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None  # of a band around y
    high: list[float] | None = None
    drawn: Drawn = "line"


class Panel(NamedTuple):
    """A pair of axes."""

    title: str
    curves: list[Curve]
    ticks: list[str] | None = None  # names of the positions 0, 1, 2, ... where x has no numbers
    marks: Sequence[tuple[float, str]] = ()  # vertical lines: position and name


class Figure(NamedTuple):
    """A named figure of one or several panels that share their axes' labels."""

    name: str
    title: str
    x_label: str
    y_label: str
    panels: list[Panel]
    notes: list[str]

    def as_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        panels = [{**p._asdict(), "curves": [c._asdict() for c in p.curves]} for p in self.panels]
        return {**self._asdict(), "panels": panels}

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Figure:
        """Return the figure that `as_plain` described."""
        panels = [
            Panel(
                p["title"],
                [Curve(**c) for c in p["curves"]],
                p["ticks"],
                [(float(at), str(name)) for at, name in p["marks"]],
            )
            for p in data["panels"]
        ]
        return cls(**{**data, "panels": panels})
