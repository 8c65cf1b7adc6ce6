"""Twenty rounds of the demo's sweep in one driver, workers killed at random: always the same."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psutil
import pytest

from ace_ray.config import load
from ace_ray.plan import make_plan
from ace_ray.run import run_report, run_sweep
from ace_ray.session import ray_session
from ace_ray.store import Store
from tests.conftest import ace_ray
from tests.test_extraction_workers import workers

ROUNDS = 20
GROWTH = 150 << 20  # bytes that the driver may keep over all rounds but the first two


class Killer(threading.Thread):
    """Kills a random worker of this process's Ray now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.rng, self.killed, self.stop = random.Random(seed), 0, threading.Event()

    def run(self) -> None:
        while not self.stop.wait(self.rng.uniform(0.2, 2.0)):
            busy = workers(psutil.Process())
            if busy:
                victim = self.rng.choice(busy)
                try:
                    victim.kill()
                    victim.wait(10)
                    self.killed += 1
                except psutil.NoSuchProcess:
                    pass  # it had just ended by itself


def outputs(store: Path) -> dict[str, bytes]:
    (run,) = (store / "runs").iterdir()
    files = [run / "results.parquet", *run.glob("trials/*"), *run.glob("tables/*")]
    return {str(p.relative_to(run)): p.read_bytes() for p in files}


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_rounds_with_random_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    done = ace_ray("demo", "--store", store)
    assert done.code == 0, done.stderr
    expected = outputs(store)
    assert len(expected) > 10
    opened, memory, kills = Store.open(str(store)), [], 0
    config = load(None, {"store": str(store)})
    with ray_session():
        for seed in range(ROUNDS):
            for run_id in opened.names("runs"):
                opened.delete(f"runs/{run_id}")
            killer = Killer(seed)
            killer.start()
            try:
                for _ in range(5):  # a trial that lost four workers in a row is run again
                    plan = make_plan(config, opened)
                    _, failures = run_sweep(plan, lambda: None)
                    if not failures:
                        break
            finally:
                killer.stop.set()
                killer.join()
            assert not failures
            run_report(make_plan(config, opened), lambda: None)
            assert outputs(store) == expected, f"round {seed}"
            kills += killer.killed
            memory.append(psutil.Process().memory_info().rss)
    growth = memory[-1] - memory[1]
    with capsys.disabled():
        print(
            f"\n{kills} workers killed in {ROUNDS} rounds; driver {memory[0] >> 20} MB after the "
            f"first, {memory[1] >> 20} after the second, {memory[-1] >> 20} after the last"
        )
    assert kills >= ROUNDS
    assert growth < GROWTH
