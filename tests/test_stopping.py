"""SIGTERM and `--max-hours`: what is finished stays, the exit code says so, a rerun finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.stopping import cause, heed_terminate, held, time_limit
from tests.conftest import SMALL, ace_ray, command
from tests.test_chaos import (  # noqa: F401 (fixtures)
    SPLITS,
    TRIALS,
    check_exact,
    committed,
    config,
    records,
    stamps,
    uninterrupted,
)


def test_terminate_once_as_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        heed_terminate()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert cause() == "terminate"
        os.kill(os.getpid(), signal.SIGTERM)  # not again, while it cleans up
    finally:
        signal.signal(signal.SIGTERM, before)


def test_time_is_up() -> None:
    with pytest.raises(KeyboardInterrupt), time_limit(0.05 / 3600):
        time.sleep(10)
    assert cause() == "time"
    with time_limit(None), time_limit(1):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_stop_waits_while_it_is_held() -> None:
    passed = []

    def slowly() -> None:
        with time_limit(0.05 / 3600), held():
            time.sleep(0.2)
            passed.append(True)

    with pytest.raises(KeyboardInterrupt):
        slowly()
    assert passed
    assert cause() == "time"


def test_max_hours_says_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACE_RAY_LOG", "json")
    done = ace_ray("run", SMALL, "--store", tmp_path / "store", "--max-hours", 0.0012)
    assert done.code == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["level"] == "error"
    assert lines[-1]["message"].startswith("error: --max-hours 0.0012 is over, ")
    (run_id,) = {line["run_id"] for line in lines} - {None}
    assert len(run_id) == 12
    counted = [line for line in lines if "total" in line]
    assert all(line["stage"] == "logits" for line in counted)
    assert " trials are left; " in lines[-1]["message"]


def terminated(arguments: list[Any], ready: Callable[[], bool]) -> str:
    """Start a command, end its driver by its process id once it is ready; return what it said."""
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as driver:
        deadline = time.monotonic() + 180
        while not ready():
            assert driver.poll() is None, "it ended before it could be terminated"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        driver.send_signal(signal.SIGTERM)
        _, said = driver.communicate(timeout=120)
        assert driver.returncode == 143, said
    return said


def check_said(said: str) -> None:
    lines = said.strip().splitlines()
    assert lines[-1] == (
        "terminated; what is finished is kept, the same command goes on from there"
    )
    # Progress and nothing else: no stack of Python or of Ray's native half.
    assert all(line.startswith(("logits: ", "sweep: ", "report: ")) for line in lines[:-1]), said


@pytest.mark.slow
@pytest.mark.parametrize("units", [committed, records])
def test_terminated_in_a_stage(
    config: Path,  # noqa: F811
    uninterrupted: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    units: Callable[[Path], list[Path]],
) -> None:
    store = tmp_path / "store"
    said = terminated(["run", config, "--store", store], lambda: len(units(store)) >= 4)
    check_said(said)
    survivors = units(store)
    assert 0 < len(survivors) < {committed: SPLITS, records: TRIALS}[units]
    assert not list(store.glob("runs/*/results.parquet"))
    kept = stamps(survivors)
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert stamps(list(kept)) == kept
    check_exact(store, done.json, uninterrupted)


@pytest.mark.slow
def test_terminated_in_the_report(
    config: Path,  # noqa: F811
    uninterrupted: dict[str, Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    for stage in ("logits", "sweep"):
        assert ace_ray(stage, config, "--store", store).code == 0
    (run,) = (store / "runs").iterdir()
    said = terminated(["report", "--store", store], lambda: (run / "tables").exists())
    check_said(said)
    assert len(records(store)) == TRIALS
    assert not list(run.glob("_COMMITTED.json"))
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert done.json["trials_run"] == done.json["splits_extracted"] == 0
    check_exact(store, done.json, uninterrupted)
