"""What the results say in words: which method to ship, and what ACE did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ace_ray.aggregate.arrange import Group, Results, Series
from ace_ray.aggregate.cells import compare, plain_rows, significant
from ace_ray.aggregate.table import p_text


def summary(results: Results) -> list[str]:
    """Return a recommendation per model, then a sentence per ACE."""
    return [recommendation(results, model) for model in results.models()] + changes(results)


class _Candidate(NamedTuple):
    name: str
    series: Series
    shifted: float  # mean ECE over the shifted columns
    level: float | None  # ECE in-distribution
    inside: str  # what it does there, in words; empty for the network itself
    harms: bool  # significantly worse in-distribution than the calibrator alone


def recommendation(results: Results, model: str) -> str:
    """Say which method to ship.

    The rule: the lowest mean ECE over the shifted columns, of equal weight, among methods whose
    in-distribution ECE is not significantly higher than that of their calibrator alone: over seeds
    (t-test) and, where there is a bootstrap, over test samples too. Nor may a method cost more
    in-distribution than it gains under shift, against its calibrator alone or the network as it
    is. One that is significantly higher but beats that choice on both counts is taken instead.
    """
    prefix = f"{model}: " if len(results.models()) > 1 else ""
    if not results.own(model, results.shifted):
        what = "this model" if prefix else "this run"
        return f"{prefix}No recommendation: {what} has no split under shift (role `ood`)."
    known, lost = [], []
    for series in (s for s in results.series if s.model == model):
        candidate = _candidate(results, series)
        if candidate is None:
            lost.append(results.name(series).removeprefix(f"{model}: "))
        else:
            known.append(candidate)
    gone = f" Not compared, measurements are missing: {', '.join(lost)}." if lost else ""
    raw = next((c for c in known if c.series.method == "uncalibrated"), None)
    if raw is None or len(known) < 2:
        return f"{prefix}No recommendation: too few complete measurements.{gone}"
    dear = [c for c in known if any(_costs_more(c, b) for b in known if _is_base(b, c))]
    harmless = min((c for c in known if not c.harms and c not in dear), key=lambda c: c.shifted)
    better = [
        c for c in known if c not in dear and c.shifted < harmless.shifted and _lower(c, harmless)
    ]
    best = min(better, key=lambda c: c.shifted, default=harmless)
    if best is raw:
        rival = min((c for c in known if c is not raw), key=lambda c: c.shifted)
        cost = "" if rival.level is None else f" ({_percent(rival.level)})"
        but = f" but is worse in-distribution{cost}" if rival.shifted < raw.shifted else ""
        text = (
            "Ship the network as it is: nothing tried lowers its mean OOD ECE of "
            f"{_percent(raw.shifted)} without harm; "
            f"{rival.name} has {_percent(rival.shifted)}{but}."
        )
    else:
        text = (
            f"Ship {best.name}: mean OOD ECE {_percent(raw.shifted)} -> {_percent(best.shifted)} "
            f"against uncalibrated{_peer(best, known)}; {best.inside}"
        )
        if best.harms and harmless.level is not None:
            text += f", yet lower than {harmless.name} ({_percent(harmless.level)})"
        text += "."
        tempting = [c for c in known if (c.harms or c in dear) and c.shifted < best.shifted]
        if tempting:
            low = min(tempting, key=lambda c: c.shifted)
            why = (
                "is significantly worse in-distribution"
                if low.harms
                else "costs more in-distribution than it gains"
            )
            text += f" {low.name} is lower under shift ({_percent(low.shifted)}) but {why}"
            text += "." if low.level is None else f" ({_percent(low.level)})."
    return prefix + text + gone


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _candidate(results: Results, series: Series) -> _Candidate | None:
    shifted = results.mean(series, results.shifted)
    if shifted is None:
        return None
    name = results.name(series).removeprefix(f"{series.model}: ")
    group = _own_inside(results, series.model)
    inside = results.values(series, group) if group else None
    level = None if inside is None else float(np.mean(inside))
    return _Candidate(name, series, float(np.mean(shifted)), level, *_inside(results, series))


def _own_inside(results: Results, model: str) -> Group | None:
    """Return the in-distribution test of a model; models need not have the same splits."""
    inside = [results.inside] if results.inside else []
    return next(iter(results.own(model, inside)), None)


def _lower(one: _Candidate, other: _Candidate) -> bool:
    """Whether one is lower than the other in-distribution."""
    return one.level is not None and other.level is not None and one.level < other.level


def _is_base(base: _Candidate, of: _Candidate) -> bool:
    """Whether a method is to be compared with this one: its calibrator alone, or the network."""
    own = of.series.method != "alone" and base.series == of.series.alone()
    return base is not of and (own or base.series.method == "uncalibrated")


def _costs_more(one: _Candidate, base: _Candidate) -> bool:
    """Whether one is worse in-distribution by more than it is better under shift."""
    if one.level is None or base.level is None or one.level <= base.level:
        return False
    return one.level - base.level > base.shifted - one.shifted


def _inside(results: Results, series: Series) -> tuple[str, bool]:
    """Return what a method does in-distribution, in words, and whether it harms."""
    group = _own_inside(results, series.model)
    if series.method == "uncalibrated":
        return "", False
    if group is None:
        return "in-distribution not measured, there is no split with the role `id`", False
    raw = Series(series.model, None, "uncalibrated")
    plain = series.method == "alone" or series.calibrator is None
    base = raw if plain else series.alone()
    before, after = results.values(base, group), results.values(series, group)
    if before is None or after is None:
        return "in-distribution not known, measurements are missing", False
    numbers = f"{_percent(float(np.mean(before)))} -> {_percent(float(np.mean(after)))}"
    against = "" if base == raw else f" against {base} alone"
    if plain:
        # One number against a few: there is no test, and none is needed to ship a calibrator.
        return f"in-distribution {numbers}", False
    test = compare(before, after)
    if test is None:
        return f"in-distribution {numbers}{against} (one seed, not tested)", False
    if not significant(test):
        return f"no significant change in-distribution ({numbers}{against})", False
    if np.mean(after) < np.mean(before):
        return f"in-distribution lower too ({numbers}{against})", False
    interval = results.interval(base, series, group)
    if interval is not None and interval[0] <= 0:
        low, high = (f"{100 * end:+.2f}" for end in interval)
        return (
            f"no significant change in-distribution over test samples ({numbers}{against}, "
            f"95 % interval of the change {low} to {high})"
        ), False
    return f"in-distribution HIGHER ({numbers}{against})", True


def _peer(best: _Candidate, known: list[_Candidate]) -> str:
    """Return what ACE adds to the best's calibrator, or why it is left out."""
    if best.series.method == "alone":
        with_ace = [
            c for c in known
            if c.series.method == "ace" and c.series.calibrator == best.series.calibrator
        ]  # fmt: skip
        if not with_ace:
            return ""
        other = min(with_ace, key=lambda c: c.shifted)
        if other.shifted < best.shifted:
            return ""  # it harms in-distribution, which is said apart
        return f" (ACE does not help it: {_percent(other.shifted)})"
    alone = next((c for c in known if c.series == best.series.alone()), None)
    return f" ({alone.name} alone: {_percent(alone.shifted)})" if alone else ""


def changes(results: Results) -> list[str]:
    """Say in words what each ACE did at the strongest shift and in-distribution."""
    sentences = []
    for row in plain_rows(results, ["ace"]):
        shifted = results.own(row.series.model, results.shifted)
        groups = [*shifted[-1:], _own_inside(results, row.series.model)]
        parts = [_change(results, row.series, group) for group in groups if group is not None]
        if parts:
            sentences.append(f"{row.name}: " + "; ".join(parts) + ".")
    return sentences


def _change(results: Results, ace: Series, group: Group) -> str:
    before, after = (results.values(s, group) for s in (ace.alone(), ace))
    if before is None or after is None:
        return f"{group.name} not known, trials are missing"
    numbers = f"{100 * np.mean(before):.2f} % -> {100 * np.mean(after):.2f} %"
    if np.array_equal(before, after):
        return f"{group.name} ECE unchanged at {_percent(float(np.mean(after)))}"
    test = compare(before, after)
    if test is None:
        return f"{group.name} ECE {numbers} (one seed, not tested)"
    # Seeds draw the hard set alone: what is clear over them may be luck of the test samples.
    sign = "exact" if test.p is None else f"p {p_text(test.p)} over seeds"
    if not significant(test):
        return f"{group.name} ECE {numbers}, no significant change ({sign})"
    verb = "lower" if np.mean(after) < np.mean(before) else "HIGHER"
    interval = results.interval(ace.alone(), ace, group)
    if interval is not None and interval[0] <= 0 <= interval[1]:
        return f"{group.name} ECE {numbers}, {verb.lower()} ({sign}, not clear over test samples)"
    return f"{group.name} ECE {numbers}, {verb} ({sign})"
