"""Figures of the calibration set: fig_nll, fig_difficulty, fig_id, fig_size."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ace_ray.aggregate.arrange import Results, Series
from ace_ray.aggregate.cells import compare, plain_rows, significant
from ace_ray.aggregate.figure import Curve, Figure, Panel
from ace_ray.aggregate.points import Plot
from ace_ray.aggregate.study import NO_TEST, Study, absent, variants
from ace_ray.calibration.density import EDGES, density
from ace_ray.config import Config
from ace_ray.sweep.trial import TrialSpec

_DIFFICULTIES: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES: Final = (100, 300, 1000, 3000, 10_000)
_HARD_SIZES: Final = (30, 100, 300, 1000, 3000)


def fig_nll(results: Results) -> Figure:
    """Density of the NLL of right and wrong samples of the calibration set (Fig. 1)."""
    plot = Plot()
    middle = [float(x) for x in (EDGES[:-1] + EDGES[1:]) / 2]
    for model in results.models():
        found = results.densities.get(model)
        curves = []
        for name, counts in zip(("right", "wrong"), found or ((), ()), strict=True):
            values = density(list(counts))
            if values is not None:
                curves.append(Curve(name, middle, values, drawn="area"))
        if not curves:
            plot.notes.append(f"missing: the trial `{model} uncalibrated` has no densities")
        plot.panels.append(Panel(model, curves))
    title = "NLL of right and wrong samples of the calibration set"
    plot.notes.append(f"what lies beyond {EDGES[-1]:g} is counted at the right end")
    return plot.figure("fig_nll", title, "NLL (nats)", "density")


def _difficulty_trials(config: Config) -> list[TrialSpec]:
    return [s for d in _DIFFICULTIES for s in variants(config, method="hard", difficulty=d)]


def _natural_difficulty(results: Results, model: str) -> float | None:
    """Return wrong : right of the calibration set, all its splits together."""
    wrong = right = 0.0
    for rows in results.measured.get(Series(model, None, "uncalibrated"), {}).values():
        row = rows.get(None)
        if row is not None and row["role"] == "calibration":
            wrong += row["n"] * (1 - row["accuracy"])
            right += row["n"] * row["accuracy"]
    return wrong / right if right else None


def fig_difficulty(results: Results) -> Figure:
    """ECE on the in-distribution test as the calibration set's difficulty varies (Fig. 2)."""
    plot = Plot()
    inside = results.inside
    if inside is None:
        plot.notes.append(NO_TEST)
    ticks = [f"{d:g}" for d in _DIFFICULTIES]
    for model in results.models():
        if inside is None or not results.own(model, [inside]):
            continue
        curves = []
        for calibrator in results.calibrators():
            series = [Series(model, calibrator, "hard", d) for d in _DIFFICULTIES]
            points = [(float(i), results.values(s, inside)) for i, s in enumerate(series)]
            curves.append(plot.curve(calibrator, points))
        natural = _natural_difficulty(results, model)
        marks = [] if natural is None else [(_position(natural), f"as it is: {natural:.3g}")]
        plot.panels.append(Panel(model, curves, ticks, marks))
    title = "Calibration sets of other difficulty: ECE on the in-distribution test"
    return plot.figure("fig_difficulty", title, "difficulty of the calibration set, wrong : right")


def _position(difficulty: float) -> float:
    """Return where a difficulty lies between the ticks, which stand at equal distances."""
    known = _DIFFICULTIES
    if difficulty <= known[0]:
        return 0.0
    for i, (low, high) in enumerate(pairwise(known)):
        if difficulty <= high:
            return i + (difficulty - low) / (high - low)
    return len(known) - 1.0


def fig_id(results: Results) -> Figure:
    """In-distribution test: calibrators alone and with ACE, "n.s." where the same (Fig. 3)."""
    plot = Plot()
    inside = results.inside
    plot.notes += [] if inside else [NO_TEST]
    for model in results.models():
        if inside is None or not results.own(model, [inside]):
            continue
        ticks, points = [], []
        rows = [row for row in plain_rows(results) if row.series.model == model]
        for i, row in enumerate(rows):
            values = results.values(row.series, inside)
            test = compare(results.values(row.base, inside), values) if row.base else None
            same = " (n.s.)" if test is not None and not significant(test) else ""
            ticks.append(row.name.removeprefix(f"{model}: ") + same)
            points.append((float(i), values))
        plot.panels.append(Panel(model, [plot.curve("ECE", points, "bars")], ticks))
    plot.notes.append("n.s.: no significant difference from the calibrator alone, p >= 0.05")
    plot.notes += absent(results, ["perturbation"])
    return plot.figure("fig_id", "ECE on the in-distribution test", "")


def _size_trials(config: Config) -> list[TrialSpec]:
    easy = [s for n in _SIZES for s in variants(config, method="ace", size=n)]
    return easy + [s for n in _HARD_SIZES for s in variants(config, method="ace", hard_size=n)]


def _sizes(results: Results, model: str) -> tuple[int, int]:
    """Return how many samples D_o and D_h have, at the first difficulty."""
    wrong = total = 0
    for rows in results.measured.get(Series(model, None, "uncalibrated"), {}).values():
        row = rows.get(None)
        if row is not None and row["role"] == "calibration":
            total += row["n"]
            wrong += round(row["n"] * (1 - row["accuracy"]))
    d = results.difficulties[0]
    # The largest subset of difficulty d: all of the scarce side.
    scarce = min(wrong, d * (total - wrong))
    return total, int(scarce + scarce / d)


def _cut(plain: Series, field: str, n: int) -> Series:
    return plain._replace(size=n) if field == "size" else plain._replace(hard_size=n)


def fig_size(results: Results) -> Figure:
    """ECE against the size of D_o and of D_h, one cut at a time (Fig. 4)."""
    plot = Plot()
    for field, name, sizes in (("size", "D_o", _SIZES), ("hard_size", "D_h", _HARD_SIZES)):
        for model in results.models():
            whole = dict(zip(("size", "hard_size"), _sizes(results, model), strict=True))[field]
            kept = [n for n in sizes if n < whole]
            tests = [results.inside, *results.own(model, results.shifted)[:1]]
            shown = [g for g in tests if g is not None]
            for calibrator in results.calibrators():
                plain = Series(model, calibrator, "ace", results.difficulties[0])
                series = [*(_cut(plain, field, n) for n in kept), plain]
                curves = [
                    plot.curve(
                        g.name, [(float(i), results.values(s, g)) for i, s in enumerate(series)]
                    )
                    for g in results.own(model, shown)
                ]
                prefix = f"{model}: " if len(results.models()) > 1 else ""
                ticks = [*(f"{n:,}" for n in kept), f"all {whole:,}"]
                plot.panels.append(Panel(f"{prefix}{calibrator}, {name} cut", curves, ticks))
    plot.notes.append("D_o is the calibration set, D_h its hard part; the other one stays whole")
    title = "ECE of ACE by the size of its calibration sets"
    return plot.figure("fig_size", title, "samples")


FIGURES: Final[Mapping[str, Study]] = {
    "fig_nll": Study(fig_nll),
    "fig_difficulty": Study(fig_difficulty, _difficulty_trials),
    "fig_id": Study(fig_id),
    "fig_size": Study(fig_size, _size_trials),
}
