"""The sweep against straight-line code: 450 trials over 8 splits of 10,000 x 1,000 logits.

    python -m bench.sweep

Straight-line: fit and evaluate a cell by itself (`reference.fit_trial`), measured on a sample of
cells of each calibrator and scaled to all of them. The sweep: the same trials through the store,
Ray and Tune. Both on this machine, one after the other; claims are ratios within this run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from ace_ray.logits.imported import checked, import_split
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.reference import fit_trial
from ace_ray.sweep.splits import SplitSource, opened
from ace_ray.sweep.trial import TrialSpec
from ace_ray.sweep.tuner import run_trials
from bench.calibration import realistic_logits

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


def straight_line(
    store: Store, sources: list[SplitSource], specs: list[TrialSpec], sample: int
) -> dict[str, float]:
    """Return seconds per cell and calibrator, from a few cells each."""
    splits = []
    for source in sources:
        with opened(store, source, None) as split:
            splits.append(split)
    seconds = {}
    for name in CALIBRATORS:
        mine = [spec for spec in specs if spec.calibrator == name]
        chosen = [mine[i] for i in np.linspace(0, len(mine) - 1, sample).astype(int)]
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for spec in chosen:
                fit_trial(spec, splits)
        seconds[name] = (time.perf_counter() - start) / sample
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--difficulties", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=3, help="cells of each calibrator")
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
        cells = straight_line(store, sources, specs, given.sample)
        each = given.difficulties * given.seeds
        line = sum(each * seconds for seconds in cells.values())
        todo = {spec.key([]): spec for spec in specs}
        with ray_session():
            done = run_trials(store, "bench", todo, {"m": sources}, Progress("", len(todo), ""))
    shared, tune = done.seconds
    print(f"{len(specs)} trials, {given.splits} splits of {given.rows:,} x {given.classes:,}")
    for name, seconds in cells.items():
        print(f"straight-line {name:12s} {seconds:8.2f} s a cell, {each * seconds:8.0f} s for all")
    print(f"straight-line in all      {line:8.0f} s (sample of {given.sample} cells each)")
    print(f"sweep: shared work        {shared:8.1f} s, {line / shared:6.0f}x")
    print(f"sweep: with Tune          {shared + tune:8.1f} s, {line / (shared + tune):6.0f}x")
    print(f"Tune                      {1000 * tune / len(specs):8.1f} ms a trial")
    print(f"bytes read / table bytes  {done.bytes_read / size:8.3f}")
    print(f"failed                    {len(done.failures)}")


if __name__ == "__main__":
    main()
