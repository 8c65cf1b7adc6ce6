"""Curves of figures: mean over seeds in per cent with a band of one standard deviation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ace_ray.aggregate.arrange import Results
from ace_ray.aggregate.figure import Curve, Drawn, Figure, Panel


class Plot:
    """A figure in the making: leaves out points with a measurement missing, and says so."""

    def __init__(self) -> None:
        self.panels: list[Panel] = []
        self.notes: list[str] = []
        self.lost = 0

    def curve(
        self, name: str, points: Iterable[tuple[float, list[float] | None]], drawn: Drawn = "line"
    ) -> Curve:
        """Return a curve of (x, values over seeds)."""
        given = list(points)
        known = [(x, 100 * np.array(values)) for x, values in given if values is not None]
        self.lost += len(given) - len(known)
        mean = [float(np.mean(v)) for _, v in known]
        spread = [float(np.std(v, ddof=1)) if len(v) > 1 else 0.0 for _, v in known]
        band = any(s > 1e-12 for s in spread)
        return Curve(
            name,
            [float(x) for x, _ in known],
            mean,
            [m - s for m, s in zip(mean, spread, strict=True)] if band else None,
            [m + s for m, s in zip(mean, spread, strict=True)] if band else None,
            drawn,
        )

    def figure(self, name: str, title: str, x_label: str, y_label: str = "ECE (%)") -> Figure:
        """Return the figure; curves and panels without a point are left out."""
        panels = [p._replace(curves=[c for c in p.curves if c.x]) for p in self.panels]
        missing = f"missing: {self.lost} points, whose trials have no record" if self.lost else ""
        notes = self.notes + ([missing] if missing else [])
        return Figure(name, title, x_label, y_label, [p for p in panels if p.curves], notes)


def each_panel(
    results: Results, make: Callable[[str, str], tuple[list[Curve], list[tuple[float, str]]]],
    ticks: Sequence[str] | None = None,
) -> list[Panel]:  # fmt: skip
    """Return a panel per model and calibrator; `make` gives its curves and marks."""
    panels = []
    for model in results.models():
        for calibrator in results.calibrators():
            curves, marks = make(model, calibrator)
            title = f"{model}: {calibrator}" if len(results.models()) > 1 else calibrator
            panels.append(Panel(title, curves, list(ticks) if ticks else None, marks))
    return panels
