"""Extraction on several workers and nodes: the same table whoever does the work, or dies doing it.

A shard holds few samples here, so that there are many; each is a unit of work that can be lost.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster

import ace_ray.logits.extract as extract_module
from ace_ray.config import Config, ExtractionConfig, ResourcesConfig, load_plain
from ace_ray.logits import shards
from ace_ray.logits.extract import extract
from ace_ray.logits.units import plan_units
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import MARKER, Store

CONFIG = {
    "benchmarks": [
        {
            "name": "glyphs",
            "calibration": 300,
            "test": 500,
            "corrupted": 500,
            "corruptions": ["fog", "gaussian_noise"],
            "severities": [3, 5],
        }
    ]
}
ROWS = {"calibration": 300, "test": 500} | {
    f"{c}%2F{s}": 500 for c in ("fog", "gaussian_noise") for s in (3, 5)
}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_MOST_ROWS", 50)


def extracted(
    folder: Path,
    extraction: ExtractionConfig | None = None,
    resources: ResourcesConfig | None = None,
) -> dict[str, dict[str, Any]]:
    """Extract into a folder; return the commit markers by split."""
    store = Store.open(str(folder)).create()
    config: Config = load_plain(CONFIG, "test")
    units = plan_units(config, store)
    with Progress("test", sum(unit.rows for unit in units), "images") as progress:
        assert extract(store, units, progress, extraction, resources) == []
    return markers(folder)


def markers(folder: Path) -> dict[str, dict[str, Any]]:
    found = folder.glob(f"logits/*/*/*/{MARKER}")
    return {p.parent.name.removeprefix("split="): json.loads(p.read_text()) for p in found}


def parts(found: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    return {split: marker["parts"] for split, marker in found.items()}


def rows(folder: Path, split: str) -> tuple[list[str], np.ndarray]:
    files = sorted(next(folder.glob(f"logits/*/*/split={split}")).glob("part-*.parquet"))
    table = pq.read_table(files, partitioning=None).sort_by("sample_id")
    return table["sample_id"].to_pylist(), table["logits"].combine_chunks().to_numpy_ndarray()


def check_rows(folder: Path) -> None:
    """Every sample once, none else, and nothing left over."""
    assert set(markers(folder)) == set(ROWS)
    for split, count in ROWS.items():
        ids, _ = rows(folder, split)
        assert len(ids) == len(set(ids)) == count
    assert not list(folder.glob("staging/*"))


@pytest.fixture(scope="module")
def four_cpus() -> Iterator[None]:
    with ray_session(4):
        yield


@pytest.fixture(scope="module")
def reference(four_cpus: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one worker makes, undisturbed."""
    folder = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_MOST_ROWS", 50)
        extracted(folder, resources=ResourcesConfig(predictors=1, loaders=1))
    check_rows(folder)
    return folder


@pytest.mark.parametrize("workers", [2, 4])
def test_more_workers_and_shuffled_blocks_give_the_same_bytes(
    reference: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = extract_module._receipts

    def shuffled(store: Any, todo: list[Any], *others: Any) -> Any:
        todo = random.Random(workers).sample(todo, len(todo))
        return plain(store, todo, *others)

    monkeypatch.setattr(extract_module, "_receipts", shuffled)
    found = extracted(tmp_path, resources=ResourcesConfig(predictors=workers, loaders=workers))
    check_rows(tmp_path)
    assert parts(found) == parts(markers(reference))  # names, rows and sha256


@pytest.mark.parametrize(
    "batch", [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(50, marks=pytest.mark.slow)]
)
def test_the_batch_size_moves_a_logit_by_rounding_only(
    reference: Path, tmp_path: Path, batch: int
) -> None:
    found = extracted(tmp_path, ExtractionConfig(batch_size=batch))
    assert {marker["batch_size"] for marker in found.values()} == {batch}
    for split in ROWS:
        ids, logits = rows(tmp_path, split)
        expected_ids, expected = rows(reference, split)
        assert ids == expected_ids
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_the_size_of_a_shard_changes_no_pixel(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corruption is seeded per sample: other neighbours, the same logits up to rounding."""
    monkeypatch.setattr(shards, "_MOST_ROWS", 333)
    extracted(tmp_path)
    for split in ROWS:
        ids, logits = rows(tmp_path, split)
        expected_ids, expected = rows(reference, split)
        assert ids == expected_ids
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_interrupted_parts_are_taken_as_they_are(reference: Path, tmp_path: Path) -> None:
    """Parts in staging are not computed again; a damaged file there is."""
    source = next(reference.glob("logits/*/*/split=test"))
    key = json.loads((source / MARKER).read_text())["key"]
    store = Store.open(str(tmp_path)).create()
    unit = next(u for u in plan_units(load_plain(CONFIG, "test"), store) if u.key == key)
    staged = tmp_path / unit.staged
    staged.mkdir(parents=True)
    kept = sorted(source.glob("part-*.parquet"))[:4]
    for part in kept:
        (staged / part.name).write_bytes(part.read_bytes())
    stamps = {part.name: (staged / part.name).stat().st_ino for part in kept}
    assert parts(extracted(tmp_path)) == parts(markers(reference))
    folder = next(tmp_path.glob("logits/*/*/split=test"))
    assert {name: (folder / name).stat().st_ino for name in stamps} == stamps


class Extraction(threading.Thread):
    """An extraction in the background."""

    def __init__(self, folder: Path, loaders: int | None = None) -> None:
        super().__init__()
        self.folder, self.error = folder, None
        self.resources = ResourcesConfig(loaders=loaders)

    def run(self) -> None:
        try:
            extracted(self.folder, resources=self.resources)
        except BaseException as error:  # noqa: BLE001 (raised again by `finished`)
            self.error = error

    def wait_for_parts(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while len(list(self.folder.rglob("part-*.parquet"))) < count:
            assert self.is_alive(), f"ended before the kill: {self.error}"
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def finished(self) -> None:
        self.join(240)
        assert not self.is_alive()
        if self.error:
            raise self.error


def workers(of: psutil.Process) -> list[psutil.Process]:
    """The worker processes below a raylet that execute a task or hold an actor."""
    found = []
    for process in of.children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        # A node's own agents have such titles too, and the node does not outlive them.
        if title.startswith("ray::") and "IDLE" not in title and "Agent" not in title:
            found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "loaders", "ready"),
    [
        ("Map(load_shard)->Map(PredictShard)", None, 3),  # fused, as on a machine without GPUs
        ("MapWorker(Map(PredictShard))", 2, 3),
        ("ray::Map(load_shard)", 2, 0),  # may be done with all shards before the first prediction
    ],
)
def test_a_worker_killed_in_the_middle_of_a_shard(
    reference: Path, tmp_path: Path, stage: str, loaders: int | None, ready: int
) -> None:
    work = Extraction(tmp_path, loaders)
    work.start()
    work.wait_for_parts(ready)
    victim = None
    deadline = time.monotonic() + 60
    while victim is None:
        assert work.is_alive()
        assert time.monotonic() < deadline
        for process in workers(psutil.Process()):
            with suppress(psutil.NoSuchProcess):
                title = " ".join(process.cmdline())
                if stage in title and process.cpu_percent(0.02) > 0:
                    victim = process
                    break
    victim.kill()
    victim.wait(10)
    assert not victim.is_running()
    assert len(markers(tmp_path)) < len(ROWS), "all was done before the kill"
    work.finished()
    check_rows(tmp_path)
    assert parts(markers(tmp_path)) == parts(markers(reference))


@pytest.fixture
def three_nodes(reference: Path) -> Iterator[Cluster]:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_a_node_lost_during_extraction(
    reference: Path, three_nodes: Cluster, tmp_path: Path
) -> None:
    work = Extraction(tmp_path)
    work.start()
    work.wait_for_parts(4)
    deadline = time.monotonic() + 60
    lost = busy = None
    while not busy:
        assert work.is_alive()
        assert time.monotonic() < deadline
        for node in three_nodes.worker_nodes:
            raylet = node.all_processes["raylet"][0].process
            busy = workers(psutil.Process(raylet.pid))
            if busy:
                lost = node
                break
    kept = {p: p.stat().st_ino for p in tmp_path.glob(f"logits/*/*/*/{MARKER}")}
    three_nodes.remove_node(lost, allow_graceful=False)
    assert len(markers(tmp_path)) < len(ROWS), "all was done before the kill"
    assert not psutil.wait_procs(busy, 30)[1], "the node's workers outlived it"
    work.finished()
    # The head notices a lost node late, sometimes after the work is done.
    deadline = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    check_rows(tmp_path)
    assert parts(markers(tmp_path)) == parts(markers(reference))
    # What was committed before is what is there now: not computed again.
    assert all(p.stat().st_ino == inode for p, inode in kept.items())
