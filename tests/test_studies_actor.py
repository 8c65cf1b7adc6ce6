"""The aggregation actor: the same bytes for the same records, also when it is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from ace_ray.aggregate.actor import Aggregator, aggregate
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.records import record_path
from ace_ray.sweep.specs import specs_of
from ace_ray.sweep.trial import TrialSpec
from tests.synthetic import PLACES, config_of, record_of

CONFIG = config_of(sweep={"seeds": list(range(1, 21))})


def filled(folder: Path) -> tuple[Store, dict[str, TrialSpec]]:
    store = Store.open(str(folder)).create()
    specs = {f"{i:04}": spec for i, spec in enumerate(specs_of(CONFIG))}
    for key, spec in specs.items():
        record = record_of(key, spec.as_plain(), PLACES)
        store.write_json(record_path("run", key), record, indent=False)
    return store, specs


def outputs(folder: Path) -> dict[str, bytes]:
    run = folder / "runs/run"
    return {str(p.relative_to(run)): p.read_bytes()
            for p in run.rglob("*") if p.is_file() and p.parent.name != "trials"}  # fmt: skip


def directly(folder: Path) -> dict[str, bytes]:
    """What aggregation writes without Ray, undisturbed."""
    store, specs = filled(folder)
    plain = {key: spec.as_plain() for key, spec in specs.items()}
    missing = Aggregator(store.uri).aggregate("run", plain, CONFIG.studies, (10.0,))
    assert missing == 0
    return outputs(folder)


def test_every_study_is_written_where_the_report_looks_for_it(tmp_path: Path) -> None:
    found = directly(tmp_path)
    names = {f"{'figures' if s.startswith('fig_') else 'tables'}/{s}.json" for s in CONFIG.studies}
    assert set(found) == names | {"results.parquet", "summary.json"}


@pytest.mark.slow
def test_a_killed_actor_starts_again_and_writes_the_same_bytes(tmp_path: Path) -> None:
    expected = directly(tmp_path / "whole")
    store, specs = filled(tmp_path / "killed")
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        """End the actor's process, by its id, while it aggregates."""
        while not done.is_set() and not killed:
            for process in psutil.Process().children(recursive=True):
                try:
                    busy = "Aggregator.aggregate" in " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if busy:
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    return
            time.sleep(0.005)

    with ray_session(2):
        watcher = threading.Thread(target=kill)
        watcher.start()
        missing = aggregate(store, "run", specs, CONFIG.studies, (10.0,))
        finished = len(outputs(tmp_path / "killed"))
        done.set()
        watcher.join()
    assert killed
    assert not psutil.pid_exists(killed[0])
    assert missing == 0
    assert finished == len(expected)
    assert outputs(tmp_path / "killed") == expected
