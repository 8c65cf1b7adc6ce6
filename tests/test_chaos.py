"""SIGKILL of the driver: the rerun finishes with exactly what an uninterrupted run gives."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ace_ray.store import MARKER
from tests.conftest import ace_ray, command

pytestmark = pytest.mark.slow

# Many small units: there is always one to be killed in the middle of.
CONFIG = """
benchmarks: [{{name: glyphs, calibration: 600, test: 600, corrupted: 150}}]
sweep: {{difficulty: [5, 10], seeds: [{}]}}
""".format(", ".join(map(str, range(1, 41))))
SPLITS, TRIALS = 82, 1 + 40 + 2 * 40


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("chaos") / "run.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="module")
def uninterrupted(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = ace_ray("run", config, "--store", tmp_path_factory.mktemp("whole") / "store", "--json")
    assert done.code == 0, done.stderr
    return done.json


def committed(store: Path) -> list[Path]:
    return list(store.glob(f"logits/*/*/*/{MARKER}"))


def records(store: Path) -> list[Path]:
    return list(store.glob("runs/*/trials/[!.]*.json"))


def kill_when(
    config: Path,
    store: Path,
    units: Callable[[Path], list[Path]],
    how: signal.Signals = signal.SIGKILL,
    code: int = -signal.SIGKILL,
) -> None:
    """Start a run and end its driver, by its process id, as soon as a few units are finished."""
    with subprocess.Popen(
        command("run", config, "--store", store),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as driver:
        deadline = time.monotonic() + 120
        while len(units(store)) < 4:
            assert driver.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        driver.send_signal(how)
        assert driver.wait() == code
    # Ray's processes share the driver's fate; wait until nothing is written any more.
    settled = -1
    while settled != (now := len(units(store))):
        settled = now
        time.sleep(1.5)


def stamps(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in paths}


def check_exact(store: Path, done: dict[str, Any], uninterrupted: dict[str, Any]) -> None:
    """Exact rows, unique ids, and the uninterrupted run's bytes."""
    for marker in committed(store):
        parts = list(marker.parent.glob("*.parquet"))
        ids = [i for p in parts for i in pq.read_table(p, columns=["sample_id"])[0].to_pylist()]
        assert len(ids) == len(set(ids)) == (150 if "%2F" in marker.parent.name else 600)
    assert len(committed(store)) == SPLITS
    assert len(records(store)) == TRIALS
    assert Path(done["results"]).read_bytes() == Path(uninterrupted["results"]).read_bytes()
    assert ace_ray("validate", "--store", store).code == 0


def test_driver_killed_in_the_middle_of_the_logits(
    config: Path, uninterrupted: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    kill_when(config, store, committed)
    survivors = committed(store)
    assert 0 < len(survivors) < SPLITS
    assert not records(store)
    kept = stamps([p for m in survivors for p in m.parent.iterdir()])

    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert done.json["splits_cached"] == len(survivors)
    assert done.json["splits_extracted"] == SPLITS - len(survivors)
    assert stamps(list(kept)) == kept
    check_exact(store, done.json, uninterrupted)


def test_driver_killed_in_the_middle_of_the_sweep(
    config: Path, uninterrupted: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    kill_when(config, store, records)
    survivors = records(store)
    assert 0 < len(survivors) < TRIALS
    assert not list(store.glob("runs/*/results.parquet"))
    kept = stamps(survivors + [p for m in committed(store) for p in m.parent.iterdir()])

    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 0
    assert done.json["trials_cached"] == len(survivors)
    assert done.json["trials_run"] == TRIALS - len(survivors)
    assert stamps(list(kept)) == kept
    check_exact(store, done.json, uninterrupted)


@pytest.mark.parametrize("units", [committed, records])
def test_an_interrupt_is_not_success(
    config: Path, uninterrupted: dict[str, Any], tmp_path: Path, units: Callable[[Path], list[Path]]
) -> None:
    store = tmp_path / "store"
    kill_when(config, store, units, signal.SIGINT, 130)
    survivors = units(store)
    assert 0 < len(survivors) < {committed: SPLITS, records: TRIALS}[units]
    assert not list(store.glob("runs/*/results.parquet"))
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    check_exact(store, done.json, uninterrupted)
