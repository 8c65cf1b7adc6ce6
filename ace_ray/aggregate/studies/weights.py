"""Figures of ACE's two numbers, d and alpha: fig_d, fig_weighting, fig_alpha, fig_batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ace_ray.aggregate.arrange import Results, Series
from ace_ray.aggregate.figure import Curve, Figure
from ace_ray.aggregate.points import Plot, each_panel
from ace_ray.aggregate.study import NO_SHIFT, Study, variants
from ace_ray.config import Config
from ace_ray.sweep.trial import TrialSpec

_DIFFICULTIES: Final = (0.5, *(float(d) for d in range(1, 16)))
_FIXED: Final = (0.2, 0.5, 0.9)
_DENSE: Final = tuple(i / 20 for i in range(21))
_BATCHES: Final = (16, 64, 128, 256, 512)


def _ace(results: Results, model: str, calibrator: str) -> Series:
    return Series(model, calibrator, "ace", results.difficulties[0])


def _d_trials(config: Config) -> list[TrialSpec]:
    return [s for d in _DIFFICULTIES for s in variants(config, method="ace", difficulty=d)]


def fig_d(results: Results) -> Figure:
    """ECE against the difficulty d of the hard set (Fig. 5); the best d of each split is noted."""
    plot = Plot()

    def panel(model: str, calibrator: str) -> tuple[list[Curve], list[tuple[float, str]]]:
        curves = []
        for group in results.own(model, results.shifted):
            points = [
                (d, results.values(Series(model, calibrator, "ace", d), group))
                for d in _DIFFICULTIES
            ]
            curve = plot.curve(group.name, points)
            curves.append(curve)
            if curve.y:
                best = curve.x[int(np.argmin(curve.y))]
                name = results.name(Series(model, calibrator, "alone"))
                plot.notes.append(f"{name}, {group.name}: lowest at d = {best:g}")
        return curves, [(d, f"d = {d:g}") for d in results.difficulties]

    plot.notes += [] if results.shifted else [NO_SHIFT]
    plot.panels = each_panel(results, panel)
    title = "ECE of ACE by the difficulty of the hard set"
    return plot.figure("fig_d", title, "d, wrong : right of the hard set")


def _weighting_trials(config: Config) -> list[TrialSpec]:
    return [s for a in _FIXED for s in variants(config, method="ace", fixed_alpha=a)]


def fig_weighting(results: Results) -> Figure:
    """Fixed weights against the adaptive one: mean ECE over all test columns (Fig. 6)."""
    plot = Plot()

    def panel(model: str, calibrator: str) -> tuple[list[Curve], list[tuple[float, str]]]:
        ace = _ace(results, model, calibrator)
        bars = [ace.alone(), *(ace._replace(fixed_alpha=a) for a in _FIXED), ace]
        points = [(float(i), results.mean(s, results.groups)) for i, s in enumerate(bars)]
        return [plot.curve("mean ECE", points, "bars")], []

    ticks = ["alone", *(f"alpha = {a:g}" for a in _FIXED), "adaptive"]
    plot.panels = each_panel(results, panel, ticks)
    plot.notes.append(f"mean over {', '.join(g.name for g in results.groups)}, of equal weight")
    plot.notes += [] if results.shifted else [NO_SHIFT]
    title = "Fixed weights against the adaptive one: mean ECE over the test sets"
    return plot.figure("fig_weighting", title, "weight of the calibrator fitted on all samples")


def _alpha_trials(config: Config) -> list[TrialSpec]:
    first = config.sweep.seeds[:1]
    return [s for a in _DENSE for s in variants(config, method="ace", fixed_alpha=a, seeds=first)]


def fig_alpha(results: Results) -> Figure:
    """ECE against dense alpha, with the computed alpha of each split marked (Fig. 7)."""
    plot = Plot()

    def panel(model: str, calibrator: str) -> tuple[list[Curve], list[tuple[float, str]]]:
        ace = _ace(results, model, calibrator)
        curves, marks = [], []
        for group in results.own(model, results.shifted):
            found = [(a, results.values(ace._replace(fixed_alpha=a), group)) for a in _DENSE]
            # Other studies may have tried some of these weights with more seeds.
            curves.append(plot.curve(group.name, [(a, v[:1] if v else None) for a, v in found]))
            alpha = results.values(ace, group, "alpha")
            if alpha is not None:
                marks.append((alpha[0], group.name))
        return curves, marks

    plot.notes += [] if results.shifted else [NO_SHIFT]
    plot.panels = each_panel(results, panel)
    plot.notes.append(
        "lines: the alpha that ACE computes without labels, mean over the splits of a column; "
        "the curves are of the first seed"
    )
    title = "ECE of ACE by its weight, and the weight that ACE chooses"
    return plot.figure("fig_alpha", title, "alpha, weight of the calibrator fitted on all samples")


def _batch_trials(config: Config) -> list[TrialSpec]:
    return [s for n in _BATCHES for s in variants(config, method="ace", batch=n)]


def fig_batch(results: Results) -> Figure:
    """Alpha from test batches of several sizes, against the whole set and no ACE (Fig. A1)."""
    plot = Plot()

    def panel(model: str, calibrator: str) -> tuple[list[Curve], list[tuple[float, str]]]:
        ace = _ace(results, model, calibrator)
        steps = [ace.alone(), *(ace._replace(batch=n) for n in _BATCHES), ace]
        curves = [
            plot.curve(g.name, [(float(i), results.values(s, g)) for i, s in enumerate(steps)])
            for g in results.own(model, results.groups)
        ]
        return curves, []

    ticks = ["alone", *(str(n) for n in _BATCHES), "whole"]
    plot.panels = each_panel(results, panel, ticks)
    plot.notes.append("alone: the calibrator without ACE; whole: alpha from the whole test set")
    title = "ECE of ACE by the size of the batch that alpha is computed from"
    return plot.figure("fig_batch", title, "test samples per batch")


FIGURES: Final[Mapping[str, Study]] = {
    "fig_d": Study(fig_d, _d_trials),
    "fig_weighting": Study(fig_weighting, _weighting_trials),
    "fig_alpha": Study(fig_alpha, _alpha_trials),
    "fig_batch": Study(fig_batch, _batch_trials),
}
