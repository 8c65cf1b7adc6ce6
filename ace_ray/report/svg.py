"""Panels of a figure as SVG text, readable in light and dark and without this package."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from ace_ray.aggregate.figure import Curve, Panel
from ace_ray.report.axes import Axis, is_geometric, known, linear, logarithmic, named, tight
from ace_ray.report.escape import clean, markup
from ace_ray.report.palette import Look

WIDTH: Final = 360
_PLOT: Final = 190  # height of the plot
_RIGHT: Final = 12
_LETTER: Final = 6.1  # mean width of a letter at 12 px
_BOLD: Final = 7.4
_MANY: Final = 26  # points above which a line has no markers
_BINS: Final = 40  # of a density, at most twice as many
_MARKERS: Final = (
    '<circle cx="{x}" cy="{y}" r="3.4"',
    '<path d="M{x} {y}m-3.2 -3.2h6.4v6.4h-6.4z"',
    '<path d="M{x} {y}m0 -4.4l4.2 7.2h-8.4z"',
    '<path d="M{x} {y}m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z"',
)


class Drawing(NamedTuple):
    """An SVG element without its style, and its size."""

    svg: str
    height: int


class _Plot(NamedTuple):
    """Where data stand on the panel, in pixels."""

    x: Axis
    y: Axis
    left: float
    top: float

    def px(self, value: float) -> float:
        return self.left + self.x.at(value) * (WIDTH - _RIGHT - self.left)

    def py(self, value: float) -> float:
        return self.top + (1 - min(max(self.y.at(value), 0.0), 1.0)) * _PLOT

    @property
    def foot(self) -> float:
        return self.top + _PLOT


def vertical(panel: Panel) -> Axis:
    """Return the panel's own axis of y: everything fits, bars and areas stand on 0."""
    ends = (v for c in map(_coarse, panel.curves) for v in (c.y, c.low or (), c.high or ()))
    values = [value for some in ends for value in known(some)]
    standing = any(c.drawn in ("bars", "area") for c in panel.curves)
    return linear(values, zero=standing, room=0.12 if _labelled(panel) else 0.02)


def horizontal(panel: Panel) -> Axis:
    """Return the panel's axis of x: named positions, ratios, or numbers."""
    values = known(v for curve in panel.curves for v in curve.x)
    if panel.ticks is not None:
        return named(panel.ticks)
    if is_geometric(values) and all(at > 0 for at, _ in panel.marks):
        return logarithmic(values)
    return tight([*values, *known(at for at, _ in panel.marks)])


def draw(
    panel: Panel,
    labels: tuple[str, str],
    looks: Mapping[str, Look],
    y: Axis | None = None,
    x: Axis | None = None,
    *,
    diagonal: bool = False,
) -> Drawing:
    """Return a panel as an SVG element.

    Args:
        panel: What to draw.
        labels: Of the axes x and y.
        looks: Of the curves, by name.
        y: Axis that panels share; None: the panel's own.
        x: As `y`.
        diagonal: Draw x = y.
    """
    panel = panel._replace(curves=[_coarse(curve) for curve in panel.curves])
    x, y = x or horizontal(panel), y or vertical(panel)
    title = wrapped(panel.title, int((WIDTH - 16) / _BOLD), 2) if panel.title else []
    widest = max((len(name) for _, name in y.ticks), default=1)
    plot = _Plot(x, y, 30 + _LETTER * widest, 10 + 16 * len(title))
    names, below = _x_names(plot)
    height = round(plot.foot + below + 22)
    spoken = f"{panel.title or labels[1]}: {labels[1]} by {labels[0]}"
    out = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {WIDTH} {height}" aria-label="{markup(spoken)}">',
        *(
            f'<text class="t" x="8" y="{14 + 16 * i}">{markup(t)}</text>'
            for i, t in enumerate(title)
        ),
        _grid(plot),
        names,
        f'<text x="{(plot.left + WIDTH - _RIGHT) / 2:.1f}" y="{height - 6}" '
        f'text-anchor="middle">{markup(shortened(labels[0], 54))}</text>',
        f'<text transform="translate(13 {plot.top + _PLOT / 2:.1f}) rotate(-90)" '
        f'text-anchor="middle">{markup(shortened(labels[1], 30))}</text>',
    ]
    if diagonal:
        ends = (max(x.low, y.low), min(x.high, y.high))
        points = " ".join(f"{plot.px(v):.1f},{plot.py(v):.1f}" for v in ends)
        out.append(f'<polyline class="d" points="{points}"/>')
    bars = [curve for curve in panel.curves if curve.drawn == "bars"]
    out += [_bars(plot, curve, i, bars, looks[curve.name]) for i, curve in enumerate(bars)]
    others = [curve for curve in panel.curves if curve.drawn != "bars"]
    out += [_band(plot, curve, looks[curve.name]) for curve in others]
    out += [_curve(plot, curve, looks[curve.name]) for curve in others]
    out.append(_marks(plot, panel, looks))
    if not any(known(curve.y) for curve in panel.curves):
        middle = f'x="{(plot.left + WIDTH) / 2:.1f}" y="{plot.top + _PLOT / 2:.1f}"'
        out.append(f'<text {middle} text-anchor="middle">no data</text>')
    return Drawing("".join(out) + "</svg>", height)


def _coarse(curve: Curve) -> Curve:
    """Return a density in wider bins where it has more than can be seen: the area is the same."""
    if curve.drawn != "area" or len(curve.y) <= 2 * _BINS:
        return curve
    step = -(-len(curve.y) // _BINS)
    starts = range(0, len(curve.y) - step + 1, step)
    x, y = ([sum(v[a : a + step]) / step for a in starts] for v in (curve.x, curve.y))
    return Curve(curve.name, x, y, drawn="area")


def _grid(plot: _Plot) -> str:
    return "".join(
        f'<line class="g" x1="{plot.left:.1f}" x2="{WIDTH - _RIGHT}" y1="{plot.py(value):.1f}" '
        f'y2="{plot.py(value):.1f}"/><text x="{plot.left - 6:.1f}" y="{plot.py(value) + 4:.1f}" '
        f'text-anchor="end">{markup(name)}</text>'
        for value, name in plot.y.ticks
    )


def _x_names(plot: _Plot) -> tuple[str, float]:
    """Return the names under the axis, slanted where they would touch, and their height."""
    room = (WIDTH - _RIGHT - plot.left) / max(len(plot.x.ticks), 1)
    names = [(value, shortened(name, 22), name) for value, name in plot.x.ticks]
    widest = _LETTER * max((len(name) for _, name, _ in names), default=0)
    slanted = widest > room
    out = []
    for value, name, whole in names:
        at = f"{plot.px(value):.1f} {plot.foot + (13 if slanted else 16):.1f}"
        how = 'rotate(-38)" text-anchor="end' if slanted else '" text-anchor="middle'
        tip = f"<title>{markup(whole)}</title>" if whole != name else ""
        out.append(f'<text transform="translate({at}) {how}">{markup(name)}{tip}</text>')
    return "".join(out), 10 + 0.64 * widest if slanted else 18


def _points(curve: Curve, plot: _Plot) -> list[tuple[int, float, float]]:
    """Return index and position of every point that is known."""
    pairs = zip(curve.x, curve.y, strict=True)
    return [
        (i, plot.px(a), plot.py(b))
        for i, (a, b) in enumerate(pairs)
        if known((a, b)) == [a, b] and (a > 0 or not plot.x.log)
    ]


def _band(plot: _Plot, curve: Curve, look: Look) -> str:
    """Return the band around a line."""
    if curve.low is None or curve.high is None or curve.drawn == "points":
        return ""
    inside = [
        (px, plot.py(curve.low[i]), plot.py(curve.high[i]))
        for i, px, _ in _points(curve, plot)
        if len(known((curve.low[i], curve.high[i]))) == 2
    ]
    there = [f"{px:.1f},{high:.1f}" for px, _, high in inside]
    back = [f"{px:.1f},{low:.1f}" for px, low, _ in reversed(inside)]
    return f'<polygon class="b c{look.colour}" points="{" ".join(there + back)}"/>'


def _curve(plot: _Plot, curve: Curve, look: Look) -> str:
    points = _points(curve, plot)
    out = []
    if curve.drawn != "points" and len(points) > 1:
        path = f"M{points[0][1]:.1f} {points[0][2]:.1f}" + "".join(
            # A gap in the data is a gap in the line.
            f"{'L' if j == i + 1 else 'M'}{px:.1f} {py:.1f}"
            for (i, _, _), (j, px, py) in pairwise(points)
        )
        if curve.drawn == "area":
            foot = plot.py(max(plot.y.low, 0.0))
            ground = f"L{points[-1][1]:.1f} {foot:.1f}L{points[0][1]:.1f} {foot:.1f}Z"
            solid = path.replace("M", "L").replace("L", "M", 1)
            out.append(f'<path class="a c{look.colour}" d="{solid}{ground}"/>')
        tip = f"<title>{markup(curve.name)}</title>"
        out.append(f'<path class="l c{look.colour} s{look.dash}" d="{path}">{tip}</path>')
    if curve.drawn == "points":
        out.append(_whiskers(plot, curve, {i: px for i, px, _ in points}, f"c{look.colour}"))
    if curve.drawn == "points" or (curve.drawn == "line" and len(points) <= _MANY):
        for i, px, py in points:
            tip = f"{curve.name}: {_at(plot, curve.x[i])}, {curve.y[i]:.4g}"
            out.append(marker(look, px, py, tip))
    return "".join(out)


def marker(look: Look, x: float, y: float, tip: str) -> str:
    """Return the marker of a curve at a position."""
    shape = _MARKERS[look.marker].format(x=f"{x:.1f}", y=f"{y:.1f}")
    end = "</circle>" if shape.startswith("<c") else "</path>"
    return f'{shape} class="p c{look.colour}"><title>{markup(tip)}</title>{end}'


def bar_dash(look: Look) -> int:
    """Return how a bar is filled where a line would be dashed; grey is always full."""
    return look.dash if look.colour else 0


def _bars(plot: _Plot, curve: Curve, i: int, bars: list[Curve], look: Look) -> str:
    places = sorted({plot.px(v) for c in bars for v in known(c.x)})
    room = min((b - a for a, b in pairwise(places)), default=80.0)
    slot = min(0.8 * room, 90.0) / len(bars)
    foot = plot.py(max(plot.y.low, min(0.0, plot.y.high)))
    out, centres = [], {}
    for k, px, py in _points(curve, plot):
        centres[k] = px + (i + 0.5 - len(bars) / 2) * slot
        tip = f"{curve.name}: {_at(plot, curve.x[k])}, {curve.y[k]:.4g}"
        out.append(
            f'<rect class="r c{look.colour} r{bar_dash(look)}" x="{centres[k] - 0.45 * slot:.1f}" '
            f'y="{min(py, foot):.1f}" width="{0.9 * slot:.1f}" height="{abs(foot - py):.1f}" '
            f'rx="1"><title>{markup(tip)}</title></rect>'
        )
    return "".join(out) + _whiskers(plot, curve, centres, "m0")


def _whiskers(plot: _Plot, curve: Curve, centres: Mapping[int, float], colour: str) -> str:
    if curve.low is None or curve.high is None:
        return ""
    style = ' style="stroke:var(--ink)"' if colour == "m0" else ""
    return "".join(
        f'<line class="w {colour}"{style} x1="{px:.1f}" x2="{px:.1f}" '
        f'y1="{plot.py(curve.low[i]):.1f}" y2="{plot.py(curve.high[i]):.1f}"/>'
        for i, px in centres.items()
        if len(known((curve.low[i], curve.high[i]))) == 2
    )


def _labelled(panel: Panel) -> list[tuple[float, str]]:
    """Return the marks that need their name written: no curve has it."""
    names = {curve.name for curve in panel.curves}
    return [(at, name) for at, name in panel.marks if name not in names and known([at])]


def _marks(plot: _Plot, panel: Panel, looks: Mapping[str, Look]) -> str:
    """Return marks: a point on the curve of that name, or a vertical line with the name."""
    out = []
    curves = {curve.name: curve for curve in panel.curves}
    for at, name in panel.marks:
        if not known([at]):
            continue
        tip = f"<title>{markup(name)}: {at:.4g}</title>"
        place = f'x1="{plot.px(at):.1f}" x2="{plot.px(at):.1f}" y2="{plot.foot:.1f}"'
        if name in curves:
            colour, height = looks[name].colour, _height(plot, curves[name], at)
            out.append(
                f'<line class="w c{colour}" stroke-dasharray="2 3" {place} y1="{height:.1f}"/>'
                f'<circle class="p c{colour}" cx="{plot.px(at):.1f}" cy="{height:.1f}" r="5">'
                f"{tip}</circle>"
            )
        else:
            out.append(f'<line class="m" {place} y1="{plot.top:.1f}">{tip}</line>')
    return "".join(out) + _mark_names(plot, panel)


def _height(plot: _Plot, curve: Curve, at: float) -> float:
    """Return where the curve is at a position, in pixels."""
    places = [(px, py) for _, px, py in _points(curve, plot)]
    for (a, first), (b, second) in pairwise(sorted(places)):
        if a <= plot.px(at) <= b:
            return first + (second - first) * (plot.px(at) - a) / ((b - a) or 1.0)
    return plot.top


def _mark_names(plot: _Plot, panel: Panel) -> str:
    """Return the names of marks beside their lines, in rows where they would touch."""
    out = []
    ends = [0.0] * 6  # where each row is free
    for at, name in sorted(_labelled(panel)):
        px, text = plot.px(at), shortened(name, 26)
        width = 5.6 * len(text) + 8
        left = px + 4 if px + 4 + width < WIDTH - 4 else px - 4 - width
        row = next((r for r, end in enumerate(ends) if end <= left), len(ends) - 1)
        ends[row] = left + width
        y = plot.top + 10 + 12 * row
        out.append(f'<text class="ml" x="{left:.1f}" y="{y:.1f}">{markup(text)}</text>')
    return "".join(out)


def _at(plot: _Plot, value: float) -> str:
    return next((clean(name) for at, name in plot.x.ticks if at == value), f"{value:.4g}")


def shortened(text: str, length: int) -> str:
    """Return text that is at most so long."""
    text = clean(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def wrapped(text: str, length: int, lines: int) -> list[str]:
    """Return text as so many lines at most; what does not fit ends with an ellipsis."""
    return textwrap.wrap(clean(text), length, max_lines=lines, placeholder=" …") or [""]
