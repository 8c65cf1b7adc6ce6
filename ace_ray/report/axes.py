"""Axes: from data to a range with round ticks, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_LOG_RATIO: Final = 8  # the least largest : smallest for which a logarithmic axis is thought of


class Axis(NamedTuple):
    """A range with labelled ticks."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def at(self, value: float) -> float:
        """Return where a value stands, 0 at the low end and 1 at the high end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log(v) for v in (low, high, value))
        return (value - low) / (high - low)


def known(values: Iterable[object]) -> list[float]:
    """Return the finite numbers among values."""
    return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]


def linear(values: Sequence[float], *, zero: bool = False, room: float = 0.0) -> Axis:
    """Return a linear axis over the values that begins and ends at a round tick.

    Args:
        values: What must fit.
        zero: Begin at 0 in any case; otherwise where 0 is near the values.
        room: Share of the range to leave free at the top.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low > 0 and (zero or low < 0.6 * high):
        low = 0.0
    if high < 0 and zero:
        high = 0.0
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    high += room * (high - low)
    step = _step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [(i * step, number(i * step, step)) for i in range(first, last + 1)]
    return Axis(ticks[0][0], ticks[-1][0], ticks)


def tight(values: Sequence[float]) -> Axis:
    """Return a linear axis that ends with the values; round ticks lie within."""
    axis = linear(values)
    if not values or min(values) == max(values):
        return axis
    low, high = min(values), max(values)
    margin = 0.03 * (high - low)
    inside = [(v, name) for v, name in axis.ticks if low - margin <= v <= high + margin]
    return Axis(low - margin, high + margin, inside)


def logarithmic(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis with ticks at the values, thinned where they are many."""
    values = sorted(set(values))
    kept = [values[0]]
    apart = math.log(values[-1] / values[0]) / 7
    for value in values[1:]:
        if math.log(value / kept[-1]) >= apart:
            kept.append(value)
    margin = (values[-1] / values[0]) ** 0.04
    ticks = [(v, number(v, v)) for v in kept]
    return Axis(values[0] / margin, values[-1] * margin, ticks, log=True)


def is_geometric(values: Sequence[float]) -> bool:
    """Return whether positions are spaced by ratio rather than by difference: 16, 64, 256."""
    values = sorted(set(values))
    if len(values) < 4 or values[0] <= 0 or values[-1] / values[0] < _LOG_RATIO:
        return False
    steps = [b - a for a, b in pairwise(values)]
    ratios = [math.log(b / a) for a, b in pairwise(values)]
    return max(ratios) / min(ratios) < max(steps) / min(steps)


def named(names: Sequence[str]) -> Axis:
    """Return an axis of named positions 0, 1, 2, ..."""
    return Axis(-0.5, len(names) - 0.5, list(enumerate(names)))


def number(value: float, step: float) -> str:
    """Return a tick's number with the digits that its step needs."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(step) < 1e-4:
        return f"{value:.3g}"
    digits = max(0, -math.floor(math.log10(abs(step)) + 1e-9))
    if digits < 4 and round(step, digits) != round(step, 4):  # 2.5, 0.25
        digits += 1
    return f"{value:,.{digits}f}"


def _step(least: float) -> float:
    """Return the smallest round step that is at least so large."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(f * size for f in (1, 2, 2.5, 5, 10, 20) if f * size >= least * (1 - 1e-9))
