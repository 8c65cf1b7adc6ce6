"""Small line charts as SVG text, readable in light and dark and without this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple, TypeAlias

_WIDTH: Final = 420
_HEIGHT: Final = 300
_LEFT: Final = 52
_RIGHT: Final = 12
_TOP: Final = 30
_BOTTOM: Final = 62
_COLOURS: Final = 8
STYLE: Final = """
.chart{font:12px system-ui,sans-serif;--ink:#1c2430;--faint:#d5dae1;--c0:#8a93a0;--c1:#c4572f;
--c2:#1a6fb5;--c3:#2f8f4e;--c4:#8d4fb0;--c5:#b58a1a;--c6:#0f8f8f;--c7:#b0407f}
@media (prefers-color-scheme:dark){.chart{--ink:#e6eaf0;--faint:#3a4250;--c0:#8f99a8;--c1:#f0885f;
--c2:#6db4f2;--c3:#6fcf8e;--c4:#c79be6;--c5:#e3bd5c;--c6:#5fd0d0;--c7:#f08cc0}}
.chart text{fill:var(--ink)}.chart .t{font-weight:600}.chart .g{stroke:var(--faint)}
.chart .d{stroke:var(--ink);stroke-dasharray:4 4;opacity:.6}.chart path{fill:none;stroke-width:2}
"""


Scale: TypeAlias = Callable[[float], float]  # data to pixels


class Line(NamedTuple):
    """A named row of points, with an optional half-width of an error bar at each."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()
    colour: int = 0


class Axis(NamedTuple):
    """A linear axis with labelled ticks."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line], *, diagonal: bool = False) -> str:
    """Return a line chart; `diagonal` draws x = y."""

    def px(value: float) -> float:
        return _LEFT + (value - x.low) / (x.high - x.low) * (_WIDTH - _LEFT - _RIGHT)

    def py(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - y.low) / (y.high - y.low) * (_HEIGHT - _TOP - _BOTTOM)

    legend, height = _legend(lines)
    out = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {_WIDTH} {height}"><title>{escape(title)}</title><style>{STYLE}</style>',
        f'<text class="t" x="{_LEFT}" y="16">{escape(title)}</text>',
    ]
    for value, name in y.ticks:
        out.append(
            f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{py(value):.1f}" '
            f'y2="{py(value):.1f}"/><text x="{_LEFT - 6}" y="{py(value) + 4:.1f}" '
            f'text-anchor="end">{escape(name)}</text>'
        )
    for value, name in x.ticks:
        out.append(
            f'<text x="{px(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    out.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - _BOTTOM + 33}" '
        f'text-anchor="middle">{escape(x.name)}</text>'
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.name)}</text>"
    )
    if diagonal:
        out.append(
            f'<line class="d" x1="{px(x.low):.1f}" y1="{py(x.low):.1f}" '
            f'x2="{px(x.high):.1f}" y2="{py(x.high):.1f}"/>'
        )
    out += [_drawn(line, px, py, y) for line in lines]
    out.append(legend)
    return "".join(out) + "</svg>"


def _drawn(line: Line, px: Scale, py: Scale, axis: Axis) -> str:
    xs, ys = [px(v) for v in line.x], [py(v) for v in line.y]
    colour = _colour(line, "stroke")
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(xs, ys, strict=True))
    out = [f'<path style="{colour}" d="{path}"/>'] if xs else []
    for i, (a, b) in enumerate(zip(xs, ys, strict=True)):
        tip = f"{line.name}: {line.y[i]:.4g}"
        out.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" style="{_colour(line, "fill")}">'
            f"<title>{escape(tip)}</title></circle>"
        )
        if line.error and line.error[i] > 0:
            top = py(min(line.y[i] + line.error[i], axis.high))
            foot = py(max(line.y[i] - line.error[i], axis.low))
            out.append(
                f'<line style="{colour}" x1="{a:.1f}" x2="{a:.1f}" y1="{top:.1f}" y2="{foot:.1f}"/>'
            )
    return "".join(out)


def _legend(lines: Sequence[Line]) -> tuple[str, int]:
    """Return the legend, wrapped, and the height of the chart with it."""
    out, at, row = [], float(_LEFT), 0
    for line in lines:
        width = 30 + 6.6 * len(line.name)
        if at > _LEFT and at + width > _WIDTH:
            at, row = float(_LEFT), row + 1
        y = _HEIGHT - 18 + 16 * row
        out.append(
            f'<rect x="{at:.0f}" y="{y}" width="12" height="4" style="{_colour(line, "fill")}"/>'
            f'<text x="{at + 17:.0f}" y="{y + 6}">{escape(line.name)}</text>'
        )
        at += width
    return "".join(out), _HEIGHT + 16 * row


def _colour(line: Line, what: str) -> str:
    return f"{what}:var(--c{line.colour % _COLOURS})"


def nice_axis(name: str, top: float) -> Axis:
    """Return an axis from 0 to a round number at or above `top`, with about five ticks."""
    top = max(top, 1e-9)
    steps = (f * 10.0**e for e in range(-9, 10) for f in (1, 2, 2.5, 5))
    step = next(s for s in steps if s * 6 >= top)
    count = int(-(-top // step))
    return Axis(name, 0, step * count, [(i * step, f"{i * step:g}") for i in range(count + 1)])
