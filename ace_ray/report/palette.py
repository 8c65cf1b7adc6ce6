"""Which colour, dash and marker a curve has: told apart without seeing colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

COLOURS: Final = 7  # beside grey, which is number 0; chart.css defines them
DASHES: Final = 4
_GREY: Final = "uncalibrated"


class Look(NamedTuple):
    """Numbers of a colour, a dash and a marker."""

    colour: int
    dash: int
    marker: int


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return the look of every name, the same wherever the names come in the same order.

    `spline` and `spline+ACE` share a colour: with ACE the line is solid, alone it is dashed. With
    one family, or with more variants than dashes, every name has its own colour.
    """
    names = list(dict.fromkeys(names))
    others = [name for name in names if _family(name) != _GREY]
    families: dict[str, list[str]] = {}
    for name in others:
        families.setdefault(_family(name), []).append(name)
    paired = all(len(f) <= DASHES for f in families.values()) and len(families) < len(others)
    found = {name: Look(0, 2, 0) for name in names if name not in others}
    if paired and 1 < len(families) <= COLOURS:
        for i, variants in enumerate(families.values()):
            # The plain name comes second: the dashed one.
            for j, name in enumerate(sorted(variants, key=lambda n: "+" not in n)):
                found[name] = Look(1 + i, j, j)
        return found
    for i, name in enumerate(others):
        found[name] = Look(1 + i % COLOURS, i // COLOURS % DASHES, i % DASHES)
    return found


def _family(name: str) -> str:
    return name.split("+")[0].split(" d=")[0].strip()
