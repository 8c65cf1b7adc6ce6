"""Figures that the report makes from what it is given: reliability, and ECE by severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ace_ray.aggregate.figure import Curve, Figure, Panel
from ace_ray.aggregate.table import Table
from ace_ray.report.text import number_of

_Z: Final = 1.959963984540054  # 95 % of a normal distribution


def wilson(hits: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion."""
    share, extra = hits / n, _Z * _Z / n
    centre = (share + extra / 2) / (1 + extra)
    reach = _Z / (1 + extra) * (share * (1 - share) / n + extra / (4 * n)) ** 0.5
    return max(0.0, centre - reach), min(1.0, centre + reach)


def reliability_figures(diagrams: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return a figure per model: every calibrator before and after, first group and last."""
    figures = []
    for model in dict.fromkeys(str(d["model"]) for d in diagrams):
        mine = [d for d in diagrams if d["model"] == model]
        groups = list(dict.fromkeys(str(d["group"]) for d in mine))
        panels = []
        for calibrator in dict.fromkeys(str(d["calibrator"]) for d in mine if d["calibrator"]):
            for group in dict.fromkeys([groups[0], groups[-1]]):
                of_group = [d for d in mine if d["group"] == group]
                curves: dict[str, Curve] = {}
                for diagram in of_group:
                    if diagram["calibrator"] in (None, calibrator):
                        # Several difficulties have one name: the first stands for the method.
                        curve = _reliability_curve(diagram, _repeats(diagram, of_group))
                        curves.setdefault(curve.name, curve)
                panels.append(Panel(f"{calibrator}, {group}", list(curves.values())))
        if panels:
            figures.append(
                Figure(
                    f"reliability-{model}",
                    f"Reliability of {model}",
                    "confidence",
                    "accuracy",
                    panels,
                    [
                        "on the diagonal confidence is right, below it is too high",
                        "band: Wilson's 95 % interval of the accuracy in each bin",
                    ],
                )
            )
    return figures


def _repeats(diagram: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> float:
    """Return how often each sample was counted: seeds are not new samples."""
    return float(sum(diagram["samples"]) / (min(sum(d["samples"]) for d in group) or 1))


def _reliability_curve(diagram: Mapping[str, Any], repeats: float) -> Curve:
    bins = zip(diagram["samples"], diagram["confidence"], diagram["correct"], strict=True)
    filled = [(n, p, hit) for n, p, hit in bins if n]
    bands = [wilson(hit / repeats, n / repeats) for n, _, hit in filled]
    return Curve(
        diagram["method"],
        [p / n for n, p, _ in filled],
        [hit / n for n, _, hit in filled],
        [low for low, _ in bands],
        [high for _, high in bands],
    )


def severity_figure(table: Table) -> Figure | None:
    """Return ECE over the columns of the severity table, one line per method."""
    groups = table.columns[1:]
    curves = []
    for row in table.rows:
        name = row[0].text
        found = [
            (x, v, cell) for x, cell in enumerate(row[1:]) if (v := number_of(cell)) is not None
        ]
        if name.startswith("  ") or "alpha" in name or not found:
            continue
        spread = [float(c.text.split("±")[1]) if "±" in c.text else 0.0 for _, _, c in found]
        ys = [v for _, v, _ in found]
        ends = list(zip(ys, spread, strict=True))
        low, high = [y - s for y, s in ends], [y + s for y, s in ends]
        curves.append(Curve(name, [float(x) for x, _, _ in found], ys, low, high))
    if not curves or len(groups) < 2:
        return None
    ticks = [g.replace("in-distribution", "ID").removeprefix("severity ") for g in groups]
    notes = ["band: one standard deviation over seeds"]
    return Figure(
        "ece-by-severity",
        "ECE by severity",
        "severity",
        "ECE (%)",
        [Panel("", curves, ticks)],
        notes,
    )
