"""The sweep against straight-line code: 450 trials over 8 splits of 10,000 x 1,000 logits.

    python -m bench.sweep

Straight-line: fit and evaluate a cell by itself with plain numpy and scipy (`straight_line.py`, in
one process that may use every core), measured on a sample of cells of each calibrator and scaled to
all of them. The sweep: the same trials through the store, Ray and Tune. Both on this machine, one
after the other; claims are ratios within this run, and the ECE of the sampled cells is compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ace_ray.logits.imported import checked, import_split
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.draws import hard_part
from ace_ray.sweep.records import read_record
from ace_ray.sweep.splits import SplitSource, opened
from ace_ray.sweep.trial import TrialSpec
from ace_ray.sweep.tuner import run_trials
from bench.calibration import realistic_logits
from bench.straight_line import Cell, cell

CALIBRATORS = ("temperature", "vector", "spline")


def prepared(store: Store, rows: int, classes: int, splits: int) -> list[SplitSource]:
    """Commit a calibration split, an in-distribution one, and shifted ones: weaker, noisier."""
    sources = []
    whole, truth = realistic_logits(splits * rows, classes)
    for i in range(splits):
        some = slice(i * rows, (i + 1) * rows)
        logits, labels = whole[some].astype(np.float32), truth[some]
        rng = np.random.default_rng(i)
        if i > 1:
            shift = (i - 1) / splits
            noise = rng.standard_normal(logits.shape, dtype=np.float32)
            logits = (1 - shift / 2) * logits + 2 * shift * noise
        role = ("calibration", "id")[i] if i < 2 else "ood"
        name = f"split-{i}"
        table = checked(name, logits, labels, None, probabilities=False)
        names = {"model": "m", "benchmark": "b", "split": name}
        marker = import_split(store, table, role=role, **names)  # type: ignore[arg-type]
        place = f"logits/model=m/benchmark=b/split={name}"
        sources.append(
            SplitSource("m", "b", name, None, None, role, None, place, str(marker["key"]))
        )
    return sources


class Sampled(NamedTuple):
    """Cells of one calibrator in straight lines."""

    seconds: float  # a cell
    cells: dict[str, list[Cell]]  # by key of the trial, one per split


def straight_line(
    store: Store, sources: list[SplitSource], specs: list[TrialSpec], sample: int
) -> dict[str, Sampled]:
    """Measure a few cells of each calibrator."""
    splits = []
    for source in sources:
        with opened(store, source, None) as split:
            splits.append((split.logits.astype(np.float64), split.label))
    z, y = splits[0]
    correct = z.argmax(axis=1) == y
    found = {}
    for name in CALIBRATORS:
        mine = [spec for spec in specs if spec.calibrator == name]
        chosen = [mine[int((i + 0.5) * len(mine) / sample)] for i in range(sample)]
        start, cells = time.perf_counter(), {}
        for spec in chosen:
            assert spec.seed is not None
            hard = hard_part(correct, spec.difficulty, spec.seed, None)
            cells[spec.key([])] = cell(name, hard, splits[0], splits)
        found[name] = Sampled((time.perf_counter() - start) / sample, cells)
        print(f"straight-line {name:12s} {found[name].seconds:8.2f} s a cell", flush=True)
    return found


def farthest(store: Store, sampled: Sampled) -> float:
    """Return the largest difference of an ECE between the sweep and straight lines."""
    gaps = []
    for key, cells in sampled.cells.items():
        rows = read_record(store, "bench", key)["measurements"]
        gaps += [abs(row["ece"] - one.ece) for row, one in zip(rows, cells, strict=True)]
    return max(gaps)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--difficulties", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=1, help="cells of each calibrator")
    given = parser.parse_args()
    specs = [
        TrialSpec(model="m", method="ace", calibrator=name, difficulty=float(d), seed=seed)
        for name in CALIBRATORS
        for d in np.linspace(0.5, 15, given.difficulties)
        for seed in range(1, given.seeds + 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(folder).create()
        sources = prepared(store, given.rows, given.classes, given.splits)
        size = sum(p.stat().st_size for p in Path(folder).rglob("part-*.parquet"))
        print(f"{len(specs)} trials, {given.splits} splits of {given.rows:,} x {given.classes:,}")
        sampled = straight_line(store, sources, specs, given.sample)
        each = given.difficulties * given.seeds
        line = sum(each * one.seconds for one in sampled.values())
        todo = {spec.key([]): spec for spec in specs}
        with ray_session():
            done = run_trials(store, "bench", todo, {"m": sources}, Progress("", len(todo), ""))
        gaps = {name: farthest(store, one) for name, one in sampled.items()}
    shared, tune = done.seconds
    for name, gap in gaps.items():
        print(f"ECE of {name:12s}       {gap:8.1e} from straight lines, at most")
    print(f"straight-line in all      {line:8.0f} s (sample of {given.sample} cells each)")
    print(f"sweep: shared work        {shared:8.1f} s, {line / shared:6.0f}x")
    print(f"sweep: with Tune          {shared + tune:8.1f} s, {line / (shared + tune):6.0f}x")
    print(f"Tune                      {1000 * tune / len(specs):8.1f} ms a trial")
    print(f"bytes read / table bytes  {done.bytes_read / size:8.3f}")
    print(f"failed                    {len(done.failures)}")


if __name__ == "__main__":
    main()
