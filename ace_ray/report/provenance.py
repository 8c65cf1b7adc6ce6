"""Where a report's numbers come from, and what in them deserves a warning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from ace_ray.logits.table import read_marker
from ace_ray.store import Store

_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_FEW: Final = 2  # warnings that differ in a number alone and are still all shown
_TINY: Final = 100  # samples of a hard set below which its calibrator is hardly determined


class LogitSource(NamedTuple):
    """A logit table that a run used; counts are None where the store has another one by now."""

    name: str
    key: str
    rows: int | None
    quarantined: int | None


class Warned(NamedTuple):
    """A warning and the trials that gave it."""

    message: str
    trials: list[str]


def logit_sources(store: Store, manifest: Mapping[str, Any]) -> list[LogitSource]:
    """Return the tables of a run with rows and quarantined images."""
    found = []
    for folder, key in manifest["logits"].items():
        marker = read_marker(store, f"logits/{folder}")
        same = marker if marker is not None and marker["key"] == key else {}
        parts = [unquote(part.partition("=")[2]) for part in folder.split("/")]
        found.append(LogitSource(" · ".join(parts), key, same.get("rows"), same.get("quarantined")))
    return found


def grouped(warnings: Sequence[str]) -> list[Warned]:
    """Return each warning once, with the trials that gave it ("trial: warning").

    Where several differ in a number alone, the first one speaks for them.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for warning in warnings:
        trial, colon, message = warning.partition(": ")
        message = message if colon else warning
        alike = found.setdefault(_NUMBER.sub("#", message), {})
        alike.setdefault(message, []).extend([trial] if colon else [])
    return [one for alike in found.values() for one in _alike(alike)]


def _alike(messages: Mapping[str, list[str]]) -> list[Warned]:
    if len(messages) <= _FEW:
        return [Warned(message, trials) for message, trials in messages.items()]
    first = next(iter(messages))
    trials = [trial for some in messages.values() for trial in some]
    return [Warned(f"{first} (others: other numbers)", trials)]


def noticed(rows: Sequence[Mapping[str, Any]]) -> list[Warned]:
    """Return what the measurements themselves warn of: clipped weights, tiny hard sets."""
    return [*_clipped(rows), *_tiny(rows)]


def _clipped(rows: Sequence[Mapping[str, Any]]) -> list[Warned]:
    found = []
    for model in dict.fromkeys(r["model"] for r in rows):
        weighed = [
            r
            for r in rows
            if (r["model"], r["method"]) == (model, "ace")
            and r["role"] != "calibration"
            and r["alpha_raw"] is not None
            # A study's own weights are not clipped ones.
            and r.get("fixed_alpha") is None
            and r.get("batch") is None
        ]
        splits = {(r["benchmark"], r["split"]) for r in weighed}
        over = [r for r in weighed if r["alpha"] != r["alpha_raw"] and not 0 <= r["alpha_raw"] <= 1]
        names = list(dict.fromkeys(f"{r['benchmark']}:{r['split']}" for r in over))
        if names:
            what = f"alpha clipped to [0, 1] on {len(names)} of {len(splits)} splits of {model}"
            found.append(
                Warned(f"{what}: the model is surer there than on its calibration set", names)
            )
    return found


def _tiny(rows: Sequence[Mapping[str, Any]]) -> list[Warned]:
    """Warn of hard sets that are small; their size follows from accuracy and difficulty."""
    found = []
    for model in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == model]
        sets = [r for r in own if (r["role"], r["method"]) == ("calibration", "uncalibrated")]
        right = sum(round(r["n"] * r["accuracy"]) for r in sets)
        wrong = sum(r["n"] for r in sets) - right
        sizes = {
            d: int(min(wrong, d * right) + min(right, wrong / d))
            for d in sorted({r["difficulty"] for r in own if r["difficulty"] is not None})
        }
        tiny = [f"about {n} samples at difficulty {d:g}" for d, n in sizes.items() if n < _TINY]
        if sets and tiny:
            what = f"tiny hard set of {model}: fewer than {_TINY} samples"
            found.append(Warned(f"{what}; its calibrator follows their noise", tiny))
    return found
