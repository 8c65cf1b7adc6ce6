"""What changed between two runs, and whether it is more than the luck of the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from ace_ray.aggregate.arrange import GRID
from ace_ray.calibration import welch
from ace_ray.errors import IntegrityError, UsageError
from ace_ray.manifest import read_manifest, read_run_marker
from ace_ray.store import Store
from ace_ray.sweep.trial import ADDED

LEVEL: Final = 0.95
_ROUNDING: Final = 1e-12  # of an ECE
Row: TypeAlias = Mapping[str, Any]
Verdict: TypeAlias = Literal["lower", "higher", "same", "not significant", "not tested"]
Split: TypeAlias = tuple[str, str]  # benchmark, split
# What makes a series, beside its seeds; a run of another version may lack the later ones.
_SERIES: Final = (
    "model", "calibrator", "method", "difficulty",
    "fixed_alpha", "batch", "space", "size", "hard_size", "same_size", "domain",
)  # fmt: skip
_NEEDED: Final = frozenset(
    {"model", "benchmark", "split", "severity", "role", "calibrator", "method", "difficulty"}
    | {"seed", "ece"}
)


class Run(NamedTuple):
    """A run as the store has it."""

    run_id: str
    manifest: Mapping[str, Any]
    rows: Sequence[Row]  # of results.parquet
    complete: bool


class Change(NamedTuple):
    """A setting that differs; None where a run does not have it."""

    key: str
    before: Any
    after: Any


class Interval(NamedTuple):
    """A difference of means, after minus before, with Welch's interval where there is one."""

    change: float
    low: float | None
    high: float | None
    p: float | None
    deterministic: bool  # exact: no run varies over its seeds
    verdict: Verdict


class Difference(NamedTuple):
    """The ECE of one series on one group of splits in both runs, as fractions."""

    model: str
    group: str
    calibrator: str | None
    method: str
    setting: str  # difficulty and what a study added, "d=10 -> 4" where it differs
    splits: int  # that both runs have
    seeds: tuple[int, int]
    before: float
    after: float
    interval: Interval

    def as_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        own = {name: value for name, value in self._asdict().items() if name != "interval"}
        return {**own, **self.interval._asdict(), "level": LEVEL}


class Comparison(NamedTuple):
    """Everything that differs between two runs."""

    run_a: str
    run_b: str
    identical: bool  # the measurements are
    config: list[Change]
    versions: list[Change]
    logits: list[Change]
    differences: list[Difference]
    added: list[str]  # series on groups that only the second run has
    removed: list[str]
    notes: list[str]

    def as_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        changed = {n: [c._asdict() for c in getattr(self, n)] for n in ("config", "versions")}
        tables = [c._asdict() for c in self.logits]
        rows = [d.as_plain() for d in self.differences]
        return {**self._asdict(), **changed, "logits": tables, "differences": rows}


def read_run(store: Store, run_id: str) -> Run:
    """Read what a comparison needs of a run."""
    manifest = read_manifest(store, run_id)
    path = f"runs/{run_id}/results.parquet"
    if not store.has(path):
        raise UsageError(f"run {run_id} has no results yet; run `ace-ray report {run_id}` first")
    with store.reading(path) as stream:
        table = pq.read_table(stream, use_threads=False)
    lacking = _NEEDED - set(table.column_names)
    if lacking:
        raise IntegrityError(
            f"{store.locate(path)}: no column {sorted(lacking)[0]!r}; run `ace-ray report {run_id}`"
        )
    complete = read_run_marker(store, run_id) is not None
    return Run(run_id, manifest, table.to_pylist(), complete)


def compare_runs(a: Run, b: Run) -> Comparison:
    """Compare the second run with the first: settings, logits, and ECE with intervals."""
    identical = _plain_rows(a) == _plain_rows(b)
    differences, added, removed, notes = ([], [], [], []) if identical else _measured(a, b)
    settings = [flat(run.manifest["config"]) for run in (a, b)]
    if any(change.key == "sweep.bins" for change in changes(*settings)):
        notes.append("the runs count the ECE in other bins: it is not the same measure")
    notes += [f"run {r.run_id} is not complete: some trials have no record"
              for r in (a, b) if not r.complete]  # fmt: skip
    return Comparison(
        a.run_id,
        b.run_id,
        identical,
        changes(*settings),
        changes(a.manifest.get("versions", {}), b.manifest.get("versions", {})),
        changes(a.manifest["logits"], b.manifest["logits"]),
        differences,
        added,
        removed,
        notes,
    )


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path; entries of a list go by their names."""
    if isinstance(value, Mapping):
        inner = [flat(v, f"{path}.{k}" if path else str(k)) for k, v in value.items()]
        return {key: leaf for part in inner for key, leaf in part.items()}
    if not isinstance(value, list) or not any(isinstance(v, Mapping) for v in value):
        return {path: value}
    found: dict[str, Any] = {path: [_named(v) for v in value]}
    for entry in value:
        if isinstance(entry, Mapping):
            options = {k: v for k, v in entry.items() if k != "name"}
            found |= flat(options, f"{path}.{_named(entry)}")
    return found


def _named(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, Mapping) else entry


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the keys whose values differ."""
    keys = dict.fromkeys([*before, *after])
    return [Change(k, before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)]


def difference(before: Sequence[float], after: Sequence[float], *, repeated: bool) -> Interval:
    """Return after minus before with Welch's interval over seeds.

    Args:
        before: A value per seed.
        after: A value per seed.
        repeated: Whether seeds can matter at all; otherwise one value is exact.
    """
    a, b = np.asarray(before, np.float64), np.asarray(after, np.float64)
    change = float(b.mean() - a.mean())
    direction: Verdict = "lower" if change < 0 else "higher"
    if repeated and min(len(a), len(b)) < 2:
        return Interval(change, None, None, None, False, "same" if change == 0 else "not tested")
    if len(a) == len(b) > 1 and np.ptp(a) > 0 and np.allclose(a, b, rtol=0, atol=_ROUNDING):
        # Seed by seed: there is nothing to test.
        return Interval(change, None, None, None, False, "same")
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        same = math.isclose(a[0], b[0], rel_tol=0, abs_tol=_ROUNDING)
        return Interval(change, None, None, None, True, "same" if same else direction)
    test = welch(b, a)
    assert test.p is not None
    parts = [x.var(ddof=1) / len(x) for x in (a, b)]
    spread = sum(parts)
    freedom = spread**2 / sum(v * v / (len(x) - 1) for v, x in zip(parts, (a, b), strict=True))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(spread)
    clear = test.p < 1 - LEVEL
    verdict = direction if clear else "not significant"
    return Interval(change, change - reach, change + reach, test.p, False, verdict)


class _Group(NamedTuple):
    """A row of the comparison: a series on one group of splits."""

    series: tuple[Any, ...]
    benchmark: str
    name: str


_Values: TypeAlias = dict[_Group, dict[Split, dict[Any, float]]]  # ECE by split and seed


def _measured(a: Run, b: Run) -> tuple[list[Difference], list[str], list[str], list[str]]:
    first, second = _arranged(a), _arranged(b)
    several = len({g.benchmark for g in (*first, *second)}) > 1
    pairs = _pairs({g.series for g in first}, {g.series for g in second})
    differences, seen = [], set()
    studied = any(_of_study(run, row) for run in (a, b) for row in run.rows)
    notes = ["trials that a study added are not compared"] if studied else []
    for group, values in first.items():
        other = group._replace(series=pairs.get(group.series, group.series))
        shared = [s for s in values if s in second.get(other, {})]
        if not shared:
            continue
        seen |= {(0, group), (1, other)}
        sides = [_per_seed(v, shared) for v in (values, second[other])]
        if not all(sides):
            continue
        if not len(shared) == len(values) == len(second[other]):
            notes.append(f"{_title(group, several)}: compared on the {len(shared)} splits of both")
        series = dict(zip(_SERIES, group.series, strict=True))
        before, after = sides
        differences.append(
            Difference(
                series["model"],
                f"{group.benchmark} {group.name}" if several else group.name,
                series["calibrator"],
                series["method"],
                _setting(group.series, other.series),
                len(shared),
                (len(before), len(after)),
                float(np.mean(before)),
                float(np.mean(after)),
                difference(before, after, repeated=series["method"] != "uncalibrated"),
            )
        )
    removed = [_title(g, several) for g in first if (0, g) not in seen]
    added = [_title(g, several) for g in second if (1, g) not in seen]
    return differences, added, removed, list(dict.fromkeys(notes))


def _of_study(run: Run, row: Row) -> bool:
    """Whether a study added the trial: it is no choice of the run, and may be another's."""
    listed = run.manifest["config"].get("sweep", {}).get("difficulty")
    other = listed is not None and row["difficulty"] not in (None, *listed)
    # By identity: a fixed alpha of 0 is something.
    added = any((v := row.get(name)) is not None and v is not False for name in ADDED)
    return other or added or row["method"] not in GRID


def _arranged(run: Run) -> _Values:
    found: _Values = {}
    for row in run.rows:
        if row["role"] == "calibration" or row["ece"] is None or _of_study(run, row):
            continue
        # A run of another version may lack a column; that and False are the plain method.
        given = (row.get(name) for name in _SERIES)
        series = tuple(None if value is False else value for value in given)
        if row["role"] == "id":
            name = "in-distribution"
        else:
            name = row["split"] if row["severity"] is None else f"severity {row['severity']}"
        group = found.setdefault(_Group(series, row["benchmark"], name), {})
        group.setdefault((row["benchmark"], row["split"]), {})[row["seed"]] = row["ece"]
    return found


def _per_seed(values: Mapping[Split, Mapping[Any, float]], splits: Sequence[Split]) -> list[float]:
    """Return the mean over splits for every seed that has them all."""
    seeds = [seed for seed in values[splits[0]] if all(seed in values[s] for s in splits)]
    return [float(np.mean([values[s][seed] for s in splits])) for seed in seeds]


def _pairs(first: set[Any], second: set[Any]) -> dict[Any, Any]:
    """Match series that differ in nothing but their one difficulty: that is a changed d."""
    at = _SERIES.index("difficulty")

    def bare(keys: set[Any]) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = {}
        for key in keys:
            found.setdefault(key[:at] + key[at + 1 :], []).append(key)
        return found

    own, others = bare(first), bare(second)
    return {
        keys[0]: others[name][0]
        for name, keys in own.items()
        if len(keys) == 1 and len(others.get(name, [])) == 1
    }


def _setting(first: tuple[Any, ...], second: tuple[Any, ...]) -> str:
    """Return what a series has beside calibrator and method; of two difficulties, both."""
    words = []
    for name, value, other in zip(_SERIES[3:], first[3:], second[3:], strict=True):
        label = "d" if name == "difficulty" else name
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if value != other:
            words.append(f"{label}={shown} -> {other:g}")
        elif value is not None:
            words.append(f"{label}={shown}")
    return " ".join(words)


def name_of(calibrator: str | None, method: str) -> str:
    """Return a series' name as the report writes it."""
    if calibrator is None:
        return method
    return {"alone": calibrator, "ace": f"{calibrator}+ACE"}.get(method, f"{calibrator}+{method}")


def _title(group: _Group, several: bool) -> str:
    model, calibrator, method = group.series[:3]
    where = f"{group.benchmark} {group.name}" if several else group.name
    words = [model, name_of(calibrator, method), _setting(group.series, group.series)]
    return f"{' '.join(w for w in words if w)}, {where}"


def _plain_rows(run: Run) -> list[Any]:
    """Return the measurements without the run's name, in an order of their own."""
    rows = [{k: v for k, v in row.items() if k != "run_id" and v is not None} for row in run.rows]
    return sorted((sorted(row.items()) for row in rows), key=repr)
