"""Did it become worse? Against the model's last run and against the median of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from ace_ray.calibration.statistics import holm
from ace_ray.compare import LEVEL, compare_runs, difference, name_of, read_run
from ace_ray.store import Store
from ace_ray.sweep.records import read_record
from ace_ray.watch.history import Entry

_FLEET: Final = 2  # other models that a median needs
Against: TypeAlias = Literal["last", "fleet"]
_Series: TypeAlias = tuple[Any, ...]  # calibrator, method, difficulty


class Finding(NamedTuple):
    """One comparison of an ECE, as fractions."""

    model: str
    against: Against
    other: str  # run, or how many models
    group: str
    calibrator: str | None
    method: str
    before: float
    after: float
    p: float | None  # corrected for the number of comparisons; None: exact or not tested
    significant: bool
    threshold: float | None
    regression: bool

    def __str__(self) -> str:
        what = f"last run {self.other}" if self.against == "last" else f"median of {self.other}"
        sign = "exact" if self.p is None else f"p {self.p:.2g}"
        return (
            f"{self.model}: {name_of(self.calibrator, self.method)}, {self.group}: ECE "
            f"{100 * self.before:.2f} % -> {100 * self.after:.2f} % against the {what} ({sign})"
        )


def against_last(store: Store, last: Entry, new: Entry, threshold: float | None) -> list[Finding]:
    """Compare a model with its last run, series by series and group by group.

    Significant is what is so over seeds (Welch) and, where both runs kept resamples, over test
    samples too (paired bootstrap), after Holm's correction for the number of comparisons.
    """
    runs = [read_run(store, entry.run_id) for entry in (last, new)]
    for i, run in enumerate(runs):
        runs[i] = run._replace(rows=[row for row in run.rows if row["model"] == new.model])
    found = [d for d in compare_runs(*runs).differences if d.setting.find("->") < 0]
    drawn = [_resampled(store, run.run_id, run.manifest["trials"], new.model) for run in runs]
    several = len({row["benchmark"] for run in runs for row in run.rows}) > 1
    tests = []
    for d in found:
        interval = d.interval
        clear = interval.deterministic and interval.verdict != "same"
        over_seeds = 0.0 if clear else interval.p
        if over_seeds is None:  # one seed, or no change at all
            over_seeds = 1.0
        key = (d.group if several else f" {d.group}", d.calibrator, d.method, d.setting)
        over_samples = _sample_p(interval.change, *(side.get(key, {}) for side in drawn))
        tests.append((over_seeds, over_samples))
    corrected = holm([max(p for p in pair if p is not None) for pair in tests])
    return [
        _finding(
            new.model, "last", last.run_id, d.group, (d.calibrator, d.method), d.before, d.after,
            float(p), pair[1] is None and d.interval.deterministic, threshold,
        )
        for d, p, pair in zip(found, corrected, tests, strict=True)
    ]  # fmt: skip


def _finding(
    model: str,
    against: Against,
    other: str,
    group: str,
    series: tuple[str | None, str],
    before: float,
    after: float,
    p: float,
    exact: bool,
    threshold: float | None,
) -> Finding:
    significant = p < 1 - LEVEL
    worse = threshold is not None and after - before > threshold and significant
    shown = None if exact and significant else p
    return Finding(
        model, against, other, group, *series, before, after, shown, significant, threshold, worse
    )


def _resampled(
    store: Store, run_id: str, trials: Iterable[str], model: str
) -> dict[_Series, dict[Any, list[float]]]:
    """Return the ECE of the resamples, by group and series, then by split."""
    found: dict[_Series, dict[Any, list[float]]] = {}
    for key in trials:
        record = read_record(store, run_id, key)
        for row, diagram in zip(record["measurements"], record["diagrams"], strict=False):
            values = diagram.get("ece_resampled")
            plain = all(row.get(n) in (None, False) for n in ("fixed_alpha", "batch", "space"))
            if not values or row["model"] != model or row["role"] == "calibration" or not plain:
                continue
            if row["role"] == "id":
                name = "in-distribution"
            else:
                name = row["split"] if row["severity"] is None else f"severity {row['severity']}"
            d = row["difficulty"]
            setting = "" if d is None else f"d={d:g}"
            for group in (f" {name}", f"{row['benchmark']} {name}"):
                series = (group, row["calibrator"], row["method"], setting)
                found.setdefault(series, {})[row["benchmark"], row["split"]] = values
    return found


def _sample_p(
    change: float, before: Mapping[Any, list[float]], after: Mapping[Any, list[float]]
) -> float | None:
    """Return the p-value of a change over test samples: the same resamples on both sides."""
    shared = [split for split in before if split in after]
    sides = [[side[split] for split in shared] for side in (before, after)]
    if not shared or len({len(values) for side in sides for values in side}) != 1:
        return None
    error = float(np.std(np.mean(sides[1], axis=0) - np.mean(sides[0], axis=0), ddof=1))
    if error == 0:
        return 1.0 if change == 0 else 0.0
    return 2 * float(stats.norm.sf(abs(change) / error))


def against_fleet(others: Sequence[Entry], new: Entry, threshold: float | None) -> list[Finding]:
    """Compare a model with the median of other models, run with the same settings before it."""
    found = []
    for measure in new.measures:
        means = [m.mean for e in others for m in e.measures if m.series == measure.series]
        if len(means) < _FLEET:
            continue
        middle = float(np.median(means))
        repeated = measure.method != "uncalibrated"
        interval = difference([middle] * len(measure.ece), measure.ece, repeated=repeated)
        found.append((measure, middle, len(means), interval))
    exact = [i.deterministic and i.verdict != "same" for *_, i in found]
    ps = [0.0 if sure else 1.0 if i.p is None else i.p
          for sure, (*_, i) in zip(exact, found, strict=True)]  # fmt: skip
    return [
        _finding(
            new.model, "fleet", f"{count} other models", f"{m.benchmark} {m.group}",
            (m.calibrator, m.method), middle, m.mean, float(p), sure, threshold,
        )
        for (m, middle, count, _), p, sure in zip(found, holm(ps), exact, strict=True)
    ]  # fmt: skip
