"""A figure of several panels: shared looks and axes, a legend, one file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final, NamedTuple

from ace_ray.aggregate.figure import Drawn, Figure, Panel
from ace_ray.report.axes import Axis, linear
from ace_ray.report.escape import markup
from ace_ray.report.palette import Look, looks
from ace_ray.report.svg import WIDTH, Drawing, bar_dash, draw, marker, shortened, vertical, wrapped

_GAP: Final = 12
_TITLE_LETTER: Final = 9.4  # width of a bold one at 15 px, in a wide font
_ALIKE: Final = 3.0  # panels share their y axis unless their ranges differ more than this
_UNIT: Final = Axis(0, 1, [(v / 5, f"{v / 5:g}") for v in range(6)])


class Entry(NamedTuple):
    """A line of the legend."""

    name: str
    look: Look
    drawn: Drawn


class Composed(NamedTuple):
    """A figure whose panels are drawn."""

    figure: Figure
    panels: list[Drawing]
    legend: list[Entry]


def compose(figure: Figure, *, reliability: bool = False) -> Composed:
    """Draw a figure's panels; `reliability` is the unit square with its diagonal."""
    curves = {curve.name: curve.drawn for panel in figure.panels for curve in panel.curves}
    chosen = looks(list(curves))
    x = _UNIT if reliability else None
    y = _UNIT if reliability else _shared(figure.panels)
    labels = (figure.x_label, figure.y_label)
    panels = [draw(panel, labels, chosen, y, x, diagonal=reliability) for panel in figure.panels]
    return Composed(figure, panels, [Entry(n, chosen[n], how) for n, how in curves.items()])


def _shared(panels: list[Panel]) -> Axis | None:
    """Return one y axis for all panels, or None where that would flatten some."""
    axes = [vertical(panel) for panel in panels]
    spans = [axis.high - axis.low for axis in axes]
    if len(axes) < 2 or max(spans) > _ALIKE * min(spans):
        return None
    return linear([end for axis in axes for end in (axis.low, axis.high)])


def style() -> str:
    """Return the style that panels need, once per page or file."""
    return files("ace_ray.report").joinpath("chart.css").read_text(encoding="utf-8")


def swatch(entry: Entry) -> str:
    """Return a small sample of a curve for the legend."""
    colour = f"c{entry.look.colour}"
    if entry.drawn in ("bars", "area"):
        fill = f"r{bar_dash(entry.look) if entry.drawn == 'bars' else 0}"
        shape = f'<rect class="r {colour} {fill}" x="2" y="2" width="22" height="9" rx="2"/>'
    elif entry.drawn == "points":
        shape = marker(entry.look, 13, 6.5, entry.name)
    else:
        line = f'<path class="l {colour} s{entry.look.dash}" d="M0 6.5H26"/>'
        shape = line + marker(entry.look, 13, 6.5, entry.name)
    return f'<svg class="chart swatch" viewBox="0 0 26 13" width="26" height="13">{shape}</svg>'


def standalone(composed: Composed) -> str:
    """Return the whole figure as one SVG file: title, panels in rows, legend."""
    columns = max(min(3, len(composed.panels)), 1)
    width = columns * (WIDTH + _GAP) + _GAP
    title = wrapped(composed.figure.title, int((width - 2 * _GAP) / _TITLE_LETTER), 3)
    out = [
        f'<text class="t" style="font-size:15px" x="{_GAP}" y="{24 + 19 * i}">{markup(line)}</text>'
        for i, line in enumerate(title)
    ]
    y = 17 + 19 * len(title)
    for first in range(0, len(composed.panels), columns):
        row = composed.panels[first : first + columns]
        for i, panel in enumerate(row):
            place = f'<svg x="{_GAP + i * (WIDTH + _GAP)}" y="{y}" width="{WIDTH}" '
            out.append(panel.svg.replace("<svg ", f'{place}height="{panel.height}" ', 1))
        y += max(panel.height for panel in row) + _GAP
    at = _GAP
    # One name is said by the axis already.
    legend = composed.legend if len(composed.legend) > 1 else []
    y += 8 if legend else -10
    for entry in legend:
        name = shortened(entry.name, 60)
        length = 44 + round(7 * len(name))
        if at > _GAP and at + length > width:
            at, y = _GAP, y + 20
        place = f'<svg x="{at}" y="{y - 10}" '
        out.append(swatch(entry).replace("<svg ", place, 1))
        out.append(f'<text x="{at + 32}" y="{y + 1}">{markup(name)}</text>')
        at += length
    height = y + 18
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<title>{markup(composed.figure.title)}</title><style>{style()}</style>"
        f'<rect class="paper" width="{width}" height="{height}"/>{"".join(out)}</svg>\n'
    )
