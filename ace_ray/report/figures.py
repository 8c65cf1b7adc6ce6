"""The figures of a run: reliability diagrams and ECE by severity."""

from __future__ import annotations

from typing import Any

from ace_ray.aggregate.table import Table
from ace_ray.report.svg import Axis, Line, chart, nice_axis


def reliability_figures(diagrams: list[dict[str, Any]]) -> dict[str, str]:
    """Return reliability diagrams per model and calibrator, for the first group and the last."""
    figures = {}
    unit = [(v / 5, f"{v / 5:g}") for v in range(6)]
    for model in dict.fromkeys(d["model"] for d in diagrams):
        mine = [d for d in diagrams if d["model"] == model]
        groups = list(dict.fromkeys(d["group"] for d in mine))
        for calibrator in dict.fromkeys(d["calibrator"] for d in mine if d["calibrator"]):
            for group in dict.fromkeys([groups[0], groups[-1]]):
                lines = [
                    _reliability_line(d, i)
                    for i, d in enumerate(
                        d
                        for d in mine
                        if d["group"] == group and d["calibrator"] in (None, calibrator)
                    )
                ]
                name = f"reliability-{model}-{calibrator}-{group.replace(' ', '-')}"
                figures[name] = chart(
                    f"Reliability, {group}",
                    Axis("confidence", 0, 1, unit),
                    Axis("accuracy", 0, 1, unit),
                    lines,
                    diagonal=True,
                )
    return figures


def _reliability_line(diagram: dict[str, Any], colour: int) -> Line:
    bins = zip(diagram["samples"], diagram["confidence"], diagram["correct"], strict=True)
    points = [(p / n, hit / n) for n, p, hit in bins if n]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    return Line(diagram["method"], xs, ys, colour=colour)


def severity_figure(table: Table) -> dict[str, str]:
    """Return ECE over the columns of the severity table, one line per method."""
    lines = []
    groups = table.columns[1:]
    methods = [r for r in table.rows if not r[0].text.startswith("  ") and "alpha" not in r[0].text]
    for i, row in enumerate(methods):
        known = [(x, cell) for x, cell in enumerate(row[1:]) if isinstance(cell.value, float)]
        ys = [float(cell.value) for _, cell in known if isinstance(cell.value, float)]
        error = [float(cell.text.split("±")[1]) if "±" in cell.text else 0.0 for _, cell in known]
        lines.append(Line(row[0].text, [x for x, _ in known], ys, error, i))
    if not lines or len(groups) < 2:
        return {}
    top = max((v + e for line in lines for v, e in zip(line.y, line.error, strict=True)), default=1)
    ticks = [(i, name.replace("in-distribution", "ID")) for i, name in enumerate(groups)]
    short = [(i, name.removeprefix("severity ")) for i, name in ticks]
    x = Axis("severity", -0.3, len(groups) - 0.7, short)
    return {"ece-by-severity": chart("ECE by severity", x, nice_axis("ECE (%)", top), lines)}
