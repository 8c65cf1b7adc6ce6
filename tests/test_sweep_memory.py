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
import ray

from ace_ray.errors import ConfigError
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.budget import TableSize, give_back, needed, share
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
    with opened(store, sources[1], None) as far:
        assert measure_split(todo, far, fits, None, None) == found


def sizes(rows: int, part: int) -> list[TableSize]:
    return [TableSize(10_000, 1000, 34_000_000, True), TableSize(rows, 1000, part, False)]


def test_the_budget_is_divided_among_as_many_workers_as_it_feeds() -> None:
    todo = trials(5)
    fits = needed_fits(todo.values())
    need = needed(sizes(98_000, 34_000_000), todo.values(), fits)
    two = share(500_000_000, 8, need.kept, need.measuring)
    assert two.workers is not None
    assert two.memory is not None
    assert 1 < two.workers < 8
    assert need.kept + two.workers * two.memory <= 500_000_000
    assert two.memory >= need.measuring
    assert share(need.kept + need.measuring, 8, need.kept, need.measuring).workers == 1
    assert share(None, 8, need.kept, need.measuring) == (None, None)
    with pytest.raises(ConfigError, match=f"give at least {need.kept + need.measuring:,}"):
        share(need.kept + need.measuring - 1, 8, need.kept, need.measuring)


def anonymous(process: psutil.Process) -> int:
    """The process's own memory in bytes, without files that it maps."""
    with contextlib.suppress(psutil.Error, OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return 0


def loaded_worker() -> int:
    """Return the own memory of a worker that has loaded what the sweep needs, and done nothing."""
    import ace_ray.sweep.tuner  # noqa: F401

    return anonymous(psutil.Process())


class Watch(threading.Thread):
    """The largest sum, at any moment, of what the processes of a sweep hold beyond their start."""

    def __init__(self, baseline: int) -> None:
        super().__init__()
        self.baseline, self.own = baseline, anonymous(psutil.Process())
        self.done = threading.Event()
        self.peak, self.parts, self.seen = 0, {}, set()

    def run(self) -> None:
        while not self.done.is_set():
            now = {"driver": anonymous(psutil.Process()) - self.own, "object store": stored_bytes()}
            for process in workers(psutil.Process()):
                with contextlib.suppress(psutil.Error, IndexError):
                    title = process.cmdline()[0].split("(")[0]
                    self.seen.add(title)
                    now[f"{title} {process.pid}"] = anonymous(process) - self.baseline
            total = sum(max(0, grown) for grown in now.values())
            if total > self.peak:
                self.peak, self.parts = total, now
            time.sleep(0.02)


def stored_bytes() -> int:
    """Bytes in Ray's object store: one copy, whoever maps it."""
    gone = ray.cluster_resources()["object_store_memory"]
    return int(gone - ray.available_resources().get("object_store_memory", 0))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("budget", [500_000_000, 300_000_000])
def test_two_gigabytes_under_half_a_gigabyte(tmp_path: Path, budget: int) -> None:
    """Tables of 2 GB through Ray: driver, workers and object store never add more than budgeted."""
    store = Store.open(str(tmp_path)).create()
    sources: list[SplitSource] = []
    for i, (rows, role) in enumerate([(10_000, "calibration"), *[(98_000, "ood")] * 5]):
        sources += stored(tmp_path, [made(f"s{i}", role, rows, 1000, i)])[1]
    assert sum(p.stat().st_size for p in tmp_path.rglob("part-*.parquet")) > 1.6e9  # 2 GB unpacked
    give_back()
    todo = trials(5)
    with ray_session(2):
        baseline = ray.get(ray.remote(loaded_worker).remote())
        watch = Watch(baseline)
        watch.start()
        try:
            progress = Progress("sweep", len(todo), "trials")
            swept = run_trials(store, "run", todo, {"m": sources}, progress, budget)
        finally:
            watch.done.set()
            watch.join()
    parts = {name: f"{grown / 1e6:.0f}" for name, grown in watch.parts.items()}
    print(f"\npeak {watch.peak / 1e6:.0f} of {budget / 1e6:.0f} MB: {parts}")
    assert swept.failures == []
    assert any("_measure" in title for title in watch.seen), watch.seen
    assert watch.peak < budget, watch.parts
