"""`history.parquet`: one row per model, date and run, with all that the leaderboard shows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.errors import IntegrityError
from ace_ray.store import Store
from ace_ray.sweep.trial import ADDED

PATH: Final = "history.parquet"
_MEASURE: Final = pa.struct(
    [
        ("benchmark", pa.string()),
        ("group", pa.string()),
        ("calibrator", pa.string()),
        ("method", pa.string()),
        ("difficulty", pa.float64()),
        ("ece", pa.list_(pa.float64())),
        ("accuracy", pa.float64()),
        ("alpha", pa.float64()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("model", pa.string()),
        ("date", pa.timestamp("us", tz="UTC")),
        ("run_id", pa.string()),
        ("key", pa.string()),
        ("weights", pa.string()),
        ("settings", pa.string()),
        ("fingerprint", pa.string()),
        ("regressions", pa.list_(pa.string())),
        ("measures", pa.list_(_MEASURE)),
    ]
)
INSIDE: Final = "in-distribution"
SHIFTED: Final = "shifted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The ECE of one series on one benchmark, in-distribution or over its shifted splits."""

    benchmark: str
    group: str
    calibrator: str | None
    method: str
    difficulty: float | None
    ece: list[float]  # per seed, averaged over the splits
    accuracy: float
    alpha: float | None

    @property
    def series(self) -> tuple[Any, ...]:
        """What it is a measure of."""
        return self.benchmark, self.group, self.calibrator, self.method, self.difficulty

    @property
    def mean(self) -> float:
        """The ECE over all seeds."""
        return float(np.mean(self.ece))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row: a model as it was on a day."""

    model: str
    date: datetime  # UTC
    run_id: str
    key: str  # of the run
    weights: str  # sha256
    settings: str  # digest of all but the model: rows of others are not comparable
    fingerprint: str  # what was seen of the model and the settings before anything was loaded
    regressions: list[str]  # in words
    measures: list[Measure]


def read_history(store: Store) -> list[Entry]:
    """Return all rows, oldest first; none where there is no history."""
    if not store.exists or not store.has(PATH):
        return []
    try:
        table = pq.read_table(io.BytesIO(store.read(PATH)), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise IntegrityError(
            f"{store.locate(PATH)} is damaged ({str(error).splitlines()[0]}); put a copy back or "
            "move it away, the next run begins a new one"
        ) from error
    if table.schema.names != SCHEMA.names:
        raise IntegrityError(
            f"{store.locate(PATH)} has other columns than this version writes; move it away, the "
            "next run begins a new one"
        )
    rows = table.to_pylist()
    return [Entry(**{**row, "measures": [Measure(**m) for m in row["measures"]]}) for row in rows]


def write_history(store: Store, entries: Sequence[Entry]) -> None:
    """Replace the history in one atomic step."""
    table = pa.Table.from_pylist([asdict(entry) for entry in entries], schema=SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    store.write(PATH, sink.getvalue())


def record(store: Store, entry: Entry) -> bool:
    """Add a row; return whether it is new.

    The same run of the same model right after itself is not: its row stays, and only what was seen
    of the model (`fingerprint`) is brought up to date.
    """
    entries = read_history(store)
    at = next((i for i in reversed(range(len(entries))) if _same(entries[i], entry)), None)
    if at is None or entries[at].key != entry.key:
        write_history(store, [*entries, entry])
        return True
    if entries[at].fingerprint != entry.fingerprint:
        entries[at] = replace(entries[at], fingerprint=entry.fingerprint)
        write_history(store, entries)
    return False


def _same(one: Entry, other: Entry) -> bool:
    return (one.model, one.settings) == (other.model, other.settings)


def latest(entries: Iterable[Entry], settings: str) -> dict[str, Entry]:
    """Return the last row of every model that was run with these settings."""
    return {entry.model: entry for entry in entries if entry.settings == settings}


def measures(rows: Iterable[Mapping[str, Any]], model: str) -> list[Measure]:
    """Return the measures of a model from the rows of `results.parquet`; the plain grid alone."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        added = any(row.get(name) not in (None, False) for name in ADDED)
        if row["model"] != model or row["role"] == "calibration" or row["ece"] is None or added:
            continue
        group = INSIDE if row["role"] == "id" else SHIFTED
        series = row["benchmark"], group, row["calibrator"], row["method"], row["difficulty"]
        found.setdefault(series, []).append(row)
    return [_measure(series, own) for series, own in found.items()]


def _measure(series: tuple[Any, ...], rows: Sequence[Mapping[str, Any]]) -> Measure:
    benchmark, group, calibrator, method, difficulty = series
    seeds: dict[Any, list[float]] = {}
    for row in rows:
        seeds.setdefault(row["seed"], []).append(row["ece"])
    most = max(len(values) for values in seeds.values())
    alphas = [row["alpha"] for row in rows if row["alpha"] is not None]
    return Measure(
        benchmark=benchmark,
        group=group,
        calibrator=calibrator,
        method=method,
        difficulty=difficulty,
        # A seed that lacks a split would be a mean over other images.
        ece=[float(np.mean(values)) for values in seeds.values() if len(values) == most],
        accuracy=float(np.mean([row["accuracy"] for row in rows])),
        alpha=float(np.mean(alphas)) if alphas else None,
    )
