"""Records of trials that nobody ran: numbers by a formula, for tests of aggregation."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ace_ray.aggregate.arrange import Results
from ace_ray.aggregate.study import Sources
from ace_ray.config import STUDIES, Config, load_plain
from ace_ray.sweep.specs import NO_SOURCES, specs_of


class Place(NamedTuple):
    benchmark: str
    split: str
    role: str
    shift: float  # how far from the calibration set, 0 to 1
    corruption: str | None = None
    severity: int | None = None


PLACES = (
    Place("shop", "cal", "calibration", 0.0),
    Place("shop", "test", "id", 0.0),
    Place("shop", "street", "ood", 0.4),
    Place("shop", "fog/5", "ood", 0.9, "fog", 5),
    Place("shop", "fog/1", "ood", 0.2, "fog", 1),
    Place("shop", "snow/5", "ood", 0.7, "snow", 5),
    Place("shop", "snow/1", "ood", 0.1, "snow", 1),
    Place("shop", "blur/5", "ood", 0.5, "blur", 5),
    Place("shop", "blur/1", "ood", 0.15, "blur", 1),
)


def config_of(**keys: Any) -> Config:
    plain = {"models": ["mine"], "benchmarks": ["shop"], "studies": list(STUDIES)}
    sweep = {"calibrators": ["temperature", "spline"], "seeds": [1, 2, 3]}
    return load_plain({**plain, "sweep": {**sweep, **keys.pop("sweep", {})}, **keys}, "test")


def noise(*what: object) -> float:
    """A number in [0, 1) that depends on all of `what`, on every machine the same."""
    return zlib.crc32(repr(what).encode()) % 10_000 / 10_000


def ece_of(spec: Mapping[str, Any], place: Place) -> float:
    """ACE undoes most of the shift; the hard half is bad without one; small noise by seed."""
    shift = place.shift
    family = {None: 0.10, "temperature": 0.02, "spline": 0.015}.get(spec["calibrator"], 0.03)
    if spec["method"] == "uncalibrated":
        return family + 0.30 * shift
    if spec["method"] == "alone":
        spread = 0.001 * noise(spec["seed"], place.split) if spec["same_size"] else 0.0
        return family + 0.20 * shift + spread
    alpha = spec["fixed_alpha"]
    adaptive = 1 - 0.6 * shift
    off = 0.0 if alpha is None else abs(alpha - adaptive) * 0.2
    if spec["method"] == "hard":
        off = 0.05 * abs(math.log(spec["difficulty"] / 0.25))
    off += 0.1 / spec["batch"] if spec["batch"] else 0.0
    off += 0.01 if spec["space"] or spec["method"] == "estimation" else 0.0
    off += 1 / spec["size"] if spec["size"] else 0.0
    off += 0.5 / spec["hard_size"] if spec["hard_size"] else 0.0
    off += 0.002 * abs((spec["difficulty"] or 10) - 10)
    seeded = (spec["calibrator"], spec["difficulty"], spec["seed"], place.split)
    return family + 0.08 * shift + off + 0.002 * (noise(*seeded) - 0.5)


def record_of(key: str, spec: Mapping[str, Any], places: tuple[Place, ...]) -> dict[str, Any]:
    rows, diagrams = [], []
    for place in places:
        ece = round(ece_of(spec, place), 6)
        ace = spec["method"] == "ace"
        raw = round(1.01 - 0.6 * place.shift, 6)
        rows.append(
            {
                "model": spec["model"],
                "benchmark": place.benchmark,
                "split": place.split,
                "corruption": place.corruption,
                "severity": place.severity,
                "role": place.role,
                "calibrator": spec["calibrator"],
                "method": spec["method"],
                "difficulty": spec["difficulty"],
                "seed": spec["seed"],
                "alpha": min(raw, 1.0) if ace else None,
                "alpha_raw": raw if ace else None,
                "n": 2000,
                "accuracy": 0.8 - 0.5 * place.shift,
                "confidence": 0.8,
                "ece": ece,
                "ks": round(0.9 * ece, 6),
                "brier": round(0.1 + 0.5 * ece, 6),
                "nll": 1.0,
            }
        )
        diagram = {"samples": [1.0, 3.0], "confidence": [0.2, 2.4], "correct": [0.0, 2.0]}
        if spec["method"] == "uncalibrated":
            right = [1000 >> i for i in range(10)] + [0] * 140
            wrong = [0] * 10 + [40, 20, 10] + [0] * 137
            diagram |= {"nll_right": right, "nll_wrong": wrong}
        if spec["bootstrap"] is not None:
            diagram["ece_resampled"] = [
                round(
                    ece + 0.01 * noise(place.split, i) + 0.002 * noise(place.split, i, str(spec)), 9
                )
                for i in range(20)
            ]
        diagrams.append(diagram)
    return {
        "key": key, "spec": dict(spec), "measurements": rows, "diagrams": diagrams, "warnings": [],
    }  # fmt: skip


def records(
    config: Config, places: tuple[Place, ...] = PLACES, sources: Sources = NO_SOURCES
) -> list[dict[str, Any]]:
    specs = enumerate(specs_of(config, sources))
    return [record_of(str(i), spec.as_plain(), places) for i, spec in specs]


def arranged(
    config: Config, given: list[dict[str, Any]] | None = None, sources: Sources = NO_SOURCES
) -> Results:
    specs = [spec.as_plain() for spec in specs_of(config, sources)]
    return Results.arrange(
        records(config) if given is None else given, specs, config.sweep.difficulty
    )


GOLDEN = Path(__file__).parent / "golden" / "studies.txt"
