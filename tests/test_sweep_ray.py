"""The sweep on a real local Ray: the same records however it is run, or dies running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
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
from ace_ray.sweep.reference import fit_trial
from ace_ray.sweep.splits import SplitSource, opened
from ace_ray.sweep.trial import EvaluationSplit, TrialResult, TrialSpec
from ace_ray.sweep.tuner import Swept, run_trials
from tests.test_extraction_workers import workers
from tests.test_sweep import SPLITS, ace, keyed, specs, text


def stored(folder: Path, splits: list[EvaluationSplit]) -> tuple[Store, list[SplitSource]]:
    """Commit splits to a store; return where they lie."""
    store, sources = Store.open(str(folder)).create(), []
    for split in splits:
        table = checked("test", split.logits, split.label, None, probabilities=False)
        marker = import_split(
            store, table, model="m", benchmark="bench", split=split.split, role=split.role
        )
        place = f"logits/model=m/benchmark=bench/split={split.split}"
        sources.append(
            SplitSource(
                "m",
                "bench",
                split.split,
                None,
                None,
                split.role,
                split.subset,
                place,
                marker["key"],
            )  # fmt: skip
        )
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
    import json

    direct = sweep(keyed(specs()), SPLITS)
    assert len(whole) == len(specs())
    for key, record in whole.items():
        found = {k: v for k, v in json.loads(record).items() if k in TrialResult._fields}
        assert text(TrialResult(**found)) == text(direct[key])


def test_a_scratch_file_another_order_and_fewer_trials_give_the_same_records(
    whole: dict[str, str], tmp_path: Path
) -> None:
    store, sources = stored(tmp_path, SPLITS)
    some = dict(list(keyed(specs()).items())[::-2])
    assert swept(store, sources, some, memory=1 << 10).failures == []
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


def test_a_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes counted at the store, for a direct call over all trials."""
    store, sources = stored(tmp_path, SPLITS)
    size = sum(p.stat().st_size for p in tmp_path.rglob("part-*.parquet"))
    plain, count = Store.read, [0]

    def counting(self: Store, path: str) -> bytes:
        data = plain(self, path)
        count[0] += len(data) if path.endswith(".parquet") else 0
        return data

    monkeypatch.setattr(Store, "read", counting)
    monkeypatch.setattr(tuner_module.ray, "remote", _inline)
    monkeypatch.setattr(tuner_module.ray, "put", lambda value: value)
    monkeypatch.setattr(tuner_module.ray, "get", lambda task: task.value)
    monkeypatch.setattr(tuner_module.ray, "wait", lambda tasks, num_returns: (tasks[:1], tasks[1:]))
    pieces = tuner_module._pieces(store, "run", "m", keyed(specs()), sources, None)
    assert len(pieces) == len(specs())
    assert size <= count[0] <= 1.1 * size


class _Done:
    """A finished task of a Ray that runs everything at once, here."""

    def __init__(self, value: object) -> None:
        self.value = value


def _inline(function: Callable[..., object]) -> object:
    class Task:
        @staticmethod
        def remote(*arguments: object) -> _Done:
            return _Done(function(*(a.value if isinstance(a, _Done) else a for a in arguments)))

    return Task
