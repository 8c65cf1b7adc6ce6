"""The sweep on a real local Ray: the same records however it is run, or dies running."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

import ace_ray.sweep.tuner as tuner_module
from ace_ray.logits.imported import checked, import_split
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store
from ace_ray.sweep.engine import sweep
from ace_ray.sweep.records import read_failures
from ace_ray.sweep.splits import SplitSource
from ace_ray.sweep.trial import EvaluationSplit, TrialResult, TrialSpec
from ace_ray.sweep.tuner import Swept, run_trials
from tests.test_extraction_workers import workers
from tests.test_sweep import SPLITS, ace, keyed, specs, split, text


def stored(folder: Path, splits: list[EvaluationSplit]) -> tuple[Store, list[SplitSource]]:
    """Commit splits to a store; return where they lie."""
    store, sources = Store.open(str(folder)).create(), []
    for each in splits:
        table = checked("test", each.logits, each.label, None, probabilities=False)
        names = {"model": "m", "benchmark": "bench", "split": each.split}
        marker = import_split(store, table, role=each.role, **names)
        place = f"logits/model=m/benchmark=bench/split={each.split}"
        what = (None, None, each.role, each.subset)
        sources.append(SplitSource("m", "bench", each.split, *what, place, marker["key"]))
    return store, sources


def swept(
    store: Store, sources: list[SplitSource], todo: dict[str, TrialSpec], memory: int | None = None
) -> Swept:
    progress = Progress("sweep", len(todo), "trials")
    return run_trials(store, "run", todo, {"m": sources}, progress, memory)


def records(store: Store) -> dict[str, str]:
    names = store.names("runs/run/trials")
    return {n.removesuffix(".json"): store.read(f"runs/run/trials/{n}").decode() for n in names}


@pytest.fixture(scope="module")
def two_cpus() -> Iterator[None]:
    with ray_session(2):
        yield


@pytest.fixture(scope="module")
def whole(two_cpus: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The records of an undisturbed sweep."""
    store, sources = stored(tmp_path_factory.mktemp("whole"), SPLITS)
    done = swept(store, sources, keyed(specs()))
    assert done.failures == []
    # Tune's own view of the sweep.
    assert len(done.results) == len(specs())
    best = done.results.get_best_result("ece_ood", "min")
    assert 0 < best.metrics["ece_ood"] < 1
    assert not store.has("runs/run/partial")
    return records(store)


def test_tune_records_what_a_direct_call_returns(whole: dict[str, str]) -> None:
    direct = sweep(keyed(specs()), SPLITS)
    assert len(whole) == len(specs())
    for key, record in whole.items():
        found = {k: v for k, v in json.loads(record).items() if k in TrialResult._fields}
        assert text(TrialResult(**found)) == text(direct[key])


def test_a_budget_another_order_and_fewer_trials_give_the_same_records(
    whole: dict[str, str], tmp_path: Path
) -> None:
    store, sources = stored(tmp_path, SPLITS)
    some = dict(list(keyed(specs()).items())[::-2])
    assert swept(store, sources, some, memory=1 << 26).failures == []
    assert records(store) == {key: whole[key] for key in some}


def test_a_trial_that_cannot_be_fitted_is_one_line(two_cpus: None, tmp_path: Path) -> None:
    """A calibration set without a wrong sample: ACE has no hard set, the others are kept."""
    calm = SPLITS[0]
    right = calm.logits.argmax(1) == calm.label
    easy = calm._replace(logits=calm.logits[right], label=calm.label[right])
    store, sources = stored(tmp_path, [easy, *SPLITS[2:]])
    todo = keyed([ace("spline"), ace("spline", method="alone", difficulty=None)])
    done = swept(store, sources, todo)
    assert len(done.failures) == 1
    assert done.failures[0].startswith("m spline+ace d=3 seed 1: hard set: difficulty 3 needs")
    assert len(records(store)) == 1
    # The reason outlives the terminal, until a sweep has no failure.
    (reason,) = read_failures(store, "run").items()
    assert ": ".join(reason) == done.failures[0]
    alone = keyed([ace("spline", method="alone", difficulty=None, seed=2)])
    assert swept(store, sources, alone).failures == []
    assert read_failures(store, "run") == {}


def test_a_table_is_read_once(two_cpus: None, tmp_path: Path) -> None:
    """Bytes counted at the store, in all workers, whatever the number of trials."""
    splits = [split("cal", "calibration", 6000, 3.0, 1), split("test", "id", 6000, 3.0, 2)]
    store, sources = stored(tmp_path, splits)
    size = sum(p.stat().st_size for p in tmp_path.rglob("part-*.parquet"))
    todo = keyed([ace(name, seed=seed) for name in ("spline", "vector") for seed in range(5)])
    assert size <= swept(store, sources, todo).bytes_read <= 1.1 * size


class Sweep(threading.Thread):
    """A sweep in the background."""

    def __init__(self, store: Store, sources: list[SplitSource], todo: dict[str, TrialSpec]):
        super().__init__()
        self.arguments, self.error = (store, sources, todo), None

    def run(self) -> None:
        try:
            assert swept(*self.arguments).failures == []
        except BaseException as error:  # noqa: BLE001 (raised again by `finished`)
            self.error = error

    def wait_for(self, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not ready():
            assert self.is_alive(), f"ended before the kill: {self.error}"
            assert time.monotonic() < deadline
            time.sleep(0.003)

    def finished(self) -> None:
        self.join(300)
        assert not self.is_alive()
        if self.error:
            raise self.error


def titled(of: psutil.Process, word: str) -> list[psutil.Process]:
    return [p for p in workers(of) if word in " ".join(p.cmdline())]


# A worker that makes fits, one that measures a split, one that holds Tune's trials.
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["_fit", "_measure", "Trial"])
def test_a_worker_killed_in_the_middle(whole: dict[str, str], tmp_path: Path, stage: str) -> None:
    store, sources = stored(tmp_path, SPLITS)
    work = Sweep(store, sources, keyed(specs()))
    work.start()
    if stage == "Trial":
        work.wait_for(lambda: len(store.names("runs/run/trials")) > 3)
    found: list[psutil.Process] = []
    work.wait_for(lambda: found.extend(titled(psutil.Process(), stage)) or found)
    found[0].kill()
    found[0].wait(10)
    assert not found[0].is_running()
    assert len(store.names("runs/run/trials")) < len(whole), "all was done before the kill"
    work.finished()
    assert records(store) == whole


def test_what_was_measured_is_not_measured_again(
    two_cpus: None, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep killed between the measurements and the records reads no logits when run again."""
    store, sources = stored(tmp_path, SPLITS)
    todo = keyed(specs())

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuner_module, "_tune", killed)
        with pytest.raises(Killed):
            swept(store, sources, todo)
    assert len(store.names("runs/run/partial")) == len(SPLITS)
    # One split is lost: it alone is read, with the calibration set that the fits need.
    store.delete(f"runs/run/partial/{sources[3].key}.json")
    some = dict(list(todo.items())[::5])
    done = swept(store, sources, some)
    parts = [
        p.stat().st_size
        for s in (*sources[:2], sources[3])
        for p in (tmp_path / s.folder).glob("part-*")
    ]
    assert sum(parts) <= done.bytes_read < sum(parts) + 1e5
    assert records(store) == {key: whole[key] for key in some}
    assert not store.names("runs/run/partial")


# Last: it ends the session of the others.
@pytest.fixture
def three_nodes(whole: dict[str, str]) -> Iterator[Cluster]:
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
def test_a_node_lost_in_the_middle(
    whole: dict[str, str], three_nodes: Cluster, tmp_path: Path
) -> None:
    store, sources = stored(tmp_path, SPLITS)
    work = Sweep(store, sources, keyed(specs()))
    work.start()
    busy: list[tuple[object, list[psutil.Process]]] = []

    def look() -> object:
        for node in three_nodes.worker_nodes:
            raylet = node.all_processes["raylet"][0].process
            if of := workers(psutil.Process(raylet.pid)):
                busy.append((node, of))
        return busy

    work.wait_for(look)
    lost, running = busy[0]
    three_nodes.remove_node(lost, allow_graceful=False)
    assert len(store.names("runs/run/trials")) < len(whole), "all was done before the kill"
    assert not psutil.wait_procs(running, 30)[1], "the node's workers outlived it"
    work.finished()
    # Ray may notice after the sweep is over.
    deadline = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) > 2:
        assert time.monotonic() < deadline, "the node is still alive"
        time.sleep(0.2)
    assert records(store) == whole
