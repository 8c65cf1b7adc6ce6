"""Memory of a sweep over tables that do not fit its budget."""

from __future__ import annotations

import contextlib
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest

from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.engine import fit_many, measure_split
from ace_ray.sweep.fits import needed_fits
from ace_ray.sweep.splits import SplitSource, opened, pooled
from ace_ray.sweep.tuner import run_trials
from tests.test_extraction_workers import workers
from tests.test_sweep import EvaluationSplit, ace, keyed
from tests.test_sweep_ray import stored


def made(name: str, role: str, rows: int, classes: int, seed: int) -> EvaluationSplit:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, rows)
    logits = 2 * rng.standard_normal((rows, classes), dtype=np.float32)
    logits[np.arange(rows), label] += rng.normal(6, 3, rows)
    return EvaluationSplit("bench", name, None, None, role, label.astype(np.int32), logits)


def trials(seeds: int) -> dict[str, object]:
    names = ("temperature", "vector", "spline")
    return keyed([ace(name, seed=s) for name in names for s in range(seeds)])


def test_a_split_larger_than_the_budget(tmp_path: Path) -> None:
    """What numpy holds stays under 24 MB while a table of 48 MB is measured."""
    budget = 24_000_000
    parts = [("cal", "calibration", 1000, 1), ("far", "ood", 60_000, 2)]
    store, sources = stored(tmp_path, [made(n, r, k, 200, s) for n, r, k, s in parts])
    todo = trials(4)
    tracemalloc.start()
    try:
        with opened(store, sources[0], budget) as calibration:
            domains = pooled([calibration])
            needed = needed_fits(todo.values())
            fits = dict(zip(needed, fit_many(needed, domains), strict=True))
        tracemalloc.reset_peak()
        with opened(store, sources[1], budget) as far:
            assert far.logits.nbytes > budget
            found = measure_split(todo, far, fits, None, budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all("row" in piece for piece in found.values())
    assert peak < budget, peak


def anonymous(process: psutil.Process) -> int:
    """The process's own memory in bytes, without files that it maps."""
    with contextlib.suppress(psutil.Error, OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_two_gigabytes_under_half_a_gigabyte(tmp_path: Path) -> None:
    """Tables of 2 GB through Ray: no worker ever has more than 500 MB of its own."""
    budget = 500_000_000
    store = Store.open(str(tmp_path)).create()
    sources: list[SplitSource] = []
    for i, (rows, role) in enumerate([(10_000, "calibration"), *[(98_000, "ood")] * 5]):
        sources += stored(tmp_path, [made(f"s{i}", role, rows, 1000, i)])[1]
    assert sum(p.stat().st_size for p in tmp_path.rglob("part-*.parquet")) > 1.6e9  # 2 GB unpacked
    peaks: dict[str, int] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for process in workers(psutil.Process()):
                with contextlib.suppress(psutil.Error, IndexError):
                    title = process.cmdline()[0].split("(")[0]
                    peaks[title] = max(peaks.get(title, 0), anonymous(process))
            time.sleep(0.02)

    todo = trials(5)
    with ray_session(2):
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            progress = Progress("sweep", len(todo), "trials")
            swept = run_trials(store, "run", todo, {"m": sources}, progress, budget)
        finally:
            done.set()
            thread.join()
    print(f"\n{ {title: f'{peak / 1e6:.0f} MB' for title, peak in peaks.items()} }")
    assert swept.failures == []
    assert any("_measure" in title for title in peaks), peaks
    assert all(peak < budget for peak in peaks.values()), peaks
