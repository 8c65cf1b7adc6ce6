"""A page with everything on it, from made-up numbers: every kind of figure, mark and warning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ace_ray.aggregate.figure import Curve, Figure, Panel
from ace_ray.aggregate.table import Cell, Table, label, missing, nothing
from ace_ray.report.compose import compose
from ace_ray.report.figures import reliability_figures
from ace_ray.report.page import Contents, page
from ace_ray.report.provenance import LogitSource, Warned

MODELS = ["resnet152.tv_in1k", "vit_small_patch32_224.augreg_in21k_ft_in1k"]
SPLITS = ["V2-A", "V2-B", "V2-C", "Sketch", "R", "Adversarial"]
METHODS = ["uncalibrated", "temperature", "temperature+ACE", "spline", "spline+ACE"]


def figures() -> list[Figure]:
    rng = np.random.default_rng(0)
    levels = [float(i) for i in range(6)]

    def rising(name: str, slope: float) -> Curve:
        y = [2 + slope * i + rng.normal() / 5 for i in levels]
        return Curve(name, levels, y, [v - 0.6 for v in y], [v + 0.6 for v in y])

    severity = [
        Panel(m, [rising(n, 4.2 - 0.8 * i) for i, n in enumerate(METHODS)], ["ID", *"12345"])
        for m in MODELS
    ]
    ds = [0.5, *map(float, range(1, 16))]
    sweep = [
        Panel(s, [Curve(n, ds, [3 + i + 8 / (1 + d) for d in ds]) for i, n in enumerate(METHODS)])
        for s in SPLITS
    ]
    grid = np.linspace(0, 1, 51)
    dense = [
        Panel(
            m,
            [
                Curve(s, grid.tolist(), (4 + 30 * (grid - 0.5 - i / 15) ** 2).tolist())
                for i, s in enumerate(SPLITS)
            ],
            None,
            [(0.5 + i / 15, s) for i, s in enumerate(SPLITS)],
        )
        for m in MODELS
    ]
    x = np.linspace(0, 8, 90)
    density = [
        Panel(
            f"difficulty {d}",
            [
                Curve("right", x.tolist(), (np.exp(-x * 2) * 2).tolist(), drawn="area"),
                Curve("wrong", x.tolist(), (x * np.exp(-x / d)).tolist(), drawn="area"),
            ],
            None,
            [(1.4, "mean of right"), (2.0, "mean of wrong"), (7.5, "a long name of a mark")],
        )
        for d in (1, 2)
    ]
    sizes = [16.0, 64.0, 128.0, 256.0, 512.0]
    batch = [Curve(s, sizes, [8 - math.log2(v) / 2 for v in sizes]) for s in SPLITS[:3]]
    bars = [
        Curve(n, levels, [5 + i + v for v in levels], [4.0 + i + v for v in levels],
              [6.0 + i + v for v in levels], drawn="bars")
        for i, n in enumerate(METHODS[:4])
    ]  # fmt: skip
    points = Curve("points", [0.0, 1.0, 2.0], [1.0, -2.0, 3.0], [0.5, -3.0, 2], [1.5, -1.0, 4],
                   drawn="points")  # fmt: skip
    return [
        Figure("severity", "ECE by severity", "severity", "ECE (%)", severity, ["band: 1 s.d."]),
        Figure("fig_d", "ECE against difficulty", "d", "ECE (%)", sweep,
               [f"{s}: lowest at d = 15" for s in SPLITS]),
        Figure("fig_alpha", "ECE against a fixed weight", "alpha", "ECE (%)", dense,
               ["dashed: the weight that Eq. 6 computes"]),
        Figure("fig_nll", "NLL of right and wrong samples", "NLL", "density", density, []),
        Figure("fig_batch", "Alpha from batches", "batch size", "ECE (%)", [Panel("", batch)], []),
        Figure("fig_id", "In-distribution", "split", "ECE (%)", [Panel("", bars, SPLITS)], []),
        Figure("points", "Points", "x", "y", [Panel("", [points])], []),
    ]  # fmt: skip


def diagrams(model: str = MODELS[0]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    found = []
    for group, gap in (("in-distribution", 0.02), ("severity 5", 0.25)):
        for method, calibrator, share in (
            ("uncalibrated", None, 1.0),
            ("spline", "spline", 0.7),
            ("spline+ACE", "spline", 0.1),
        ):
            samples = np.round(np.linspace(3, 90, 25) * (1 if calibrator is None else 5))
            middle = (np.arange(25) + 0.5) / 25
            accuracy = np.clip(middle * (1 - gap * share) + rng.normal(0, 0.02, 25), 0, 1)
            found.append(
                {
                    "model": model, "calibrator": calibrator, "method": method, "group": group,
                    "samples": samples.tolist(), "confidence": (samples * middle).tolist(),
                    "correct": (samples * accuracy).tolist(),
                }
            )  # fmt: skip
    return found


def tables() -> list[Table]:
    rng = np.random.default_rng(2)
    rows = []
    for i, method in enumerate(METHODS):
        values = 20 - 3 * i + rng.normal(0, 4, len(SPLITS))
        marks = ["better", "", "worse"] if method.endswith("ACE") else [""]
        cells = [
            Cell(float(v), f"{v:.2f} ±{abs(v) / 90:.3f}", marks[k % len(marks)])
            for k, v in enumerate(values)
        ]
        rows.append([label(method), *cells])
        if method.endswith("ACE"):
            rows.append([label(f"  p against {METHODS[i - 1]}"), *[Cell(0.01, "0.0100")] * 6])
    rows.append([label("lost"), *[missing()] * 5, Cell(None, "")])
    rows.append([label("not asked"), *[nothing()] * 6])
    wide = Table("table1", "ECE (%) on six shifts", ["method", *SPLITS], rows, ["5 seeds"])
    numbers = [9.5, 10.25, -3.0, 100.0, 0.001]
    short = Table(
        "order",
        "Numbers that text would put in another order",
        ["name", "value", "p"],
        [[label(f"row {i}"), Cell(v, f"{v:g}"), Cell(None, "")] for i, v in enumerate(numbers)],
        [],
    )
    return [wide, short]


def contents(**changed: Any) -> Contents:
    sweep = {"calibrators": ["temperature", "spline"], "difficulty": [10.0], "seeds": [1, 2, 3]}
    config = {"models": MODELS, "benchmarks": [{"name": "imagenet"}], "sweep": sweep}
    whole = Contents(
        {
            "run_id": "3f9a21c07b4e", "key": "3f9a21c07b4e" * 5, "config": config,
            "versions": {"python": "3.12.1", "ray": "2.60"}, "trials": dict.fromkeys("abcdefg"),
            "git": {"commit": "0ab522a", "dirty": False},
        },
        ["Ship spline+ACE: ECE 19.20 % -> 6.90 % at severity 5 (p <0.0001), no significant change "
         "in-distribution (p 0.3100).",
         "temperature+ACE: severity 5 ECE 19.20 % -> 8.10 %, lower (p <0.0001)."],
        {
            "resnet152.tv_in1k spline+ace d=10 seed 3": "its worker died",
            **dict.fromkeys(
                [f"resnet152.tv_in1k temperature+ace d=3 seed {seed}" for seed in (1, 2)],
                "hard set: difficulty 3 needs at least one right and one wrong sample",
            ),
        },
        [Warned("temperature at its bound 20", ["a seed 1", "a seed 2"]), Warned("tiny", [])],
        tables(),
        [compose(f) for f in figures()]
        + [compose(f, reliability=True) for f in reliability_figures(diagrams())],
        [LogitSource(f"m · imagenet · {s}", "k" * 64, 50_000, i) for i, s in enumerate(SPLITS)],
        "models: [resnet152.tv_in1k]\nsweep: {seeds: [1, 2, 3]}\n",
    )  # fmt: skip
    return whole._replace(**changed)


def gallery() -> str:
    return page(contents())
