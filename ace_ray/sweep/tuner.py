"""The Ray shell of the sweep: shared work as tasks, then Tune takes the trials one by one.

Tasks read each logit table once, fit what the trials share and measure all of them split by split
(`engine`). A Tune trial picks up its measurements, writes its record and reports its ECE.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import ray
from ray import tune
from ray.tune.execution import class_cache
from ray.tune.logger import JsonLoggerCallback

from ace_ray.errors import IntegrityError, StoreError
from ace_ray.identity import canonical_json
from ace_ray.progress import Progress
from ace_ray.session import unwrapped
from ace_ray.store import Store
from ace_ray.sweep.budget import give_back, needed, share
from ace_ray.sweep.engine import assemble, fit_many, measure_split, need_calibration
from ace_ray.sweep.fits import Domains, FitSpec, Fitted, needed_fits
from ace_ray.sweep.pieces import Pieces
from ace_ray.sweep.records import (
    partial_path,
    partials_folder,
    recorded,
    write_failures,
    write_record,
)
from ace_ray.sweep.splits import SplitSource, opened, pooled, table_size
from ace_ray.sweep.trial import TrialSpec

_FITS_PER_TASK: Final = 8  # of families that take long; the others go in one task
_ROUNDS: Final = 3  # for trials whose worker died
_T = TypeVar("_T")
# Tune copies these into the environment it writes to Ray's logs; workers have their node's own.
_SECRETS: Final = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"}
)
_QUICK: Final = frozenset({"temperature", "spline", "isotonic", "histogram"})


class Swept(NamedTuple):
    """What came of a sweep."""

    failures: list[str]
    results: tune.ResultGrid  # Tune's view; a trial whose worker died is an error there
    bytes_read: int  # from the store, by all workers
    seconds: tuple[float, float]  # of the shared work, and of Tune


def _calibration(
    store_uri: str, sources: Sequence[SplitSource], memory: int | None
) -> tuple[Domains, int]:
    """Read the calibration splits; say how many bytes that took."""
    store = Store.open(store_uri)
    with ExitStack() as stack:
        splits = [stack.enter_context(opened(store, source, memory)) for source in sources]
        found = pooled(splits), store.bytes_read
    give_back()
    return found


def _fit(specs: list[FitSpec], domains: Domains) -> list[Fitted]:
    found = fit_many(specs, domains)
    give_back()
    return found


def _measure(
    store_uri: str,
    run_id: str,
    source: SplitSource,
    specs: dict[str, TrialSpec],
    fits: dict[FitSpec, Fitted],
    domains: Domains | None,
    memory: int | None,
) -> tuple[dict[str, str], int]:
    """Measure all trials on a split and leave the pieces in the store, for a run that is killed."""
    store = Store.open(store_uri)
    with ExitStack() as stack:
        if source.role == "calibration" and domains is not None:
            rows = domains.rows[source.split]
            split = source.holding(domains.label[rows], domains.logits[rows])
        else:
            split = stack.enter_context(opened(store, source, memory))
        found = measure_split(specs, split, fits, domains, memory)
    pieces = {key: canonical_json(piece) for key, piece in found.items()}
    kept = known_pieces(store, run_id, source) | pieces
    store.write_json(partial_path(run_id, source.key), dict(kept), indent=False)
    del found, kept
    give_back()
    return pieces, store.bytes_read


def known_pieces(store: Store, run_id: str, source: SplitSource) -> dict[str, str]:
    """Return what a killed run measured on a split, by trial; a trial's key says what it was."""
    path = partial_path(run_id, source.key)
    if not store.has(path):
        return {}
    try:
        return {key: str(piece) for key, piece in store.read_json(path).items()}
    except IntegrityError:
        return {}


def run_trials(
    store: Store,
    run_id: str,
    specs: Mapping[str, TrialSpec],
    sources: Mapping[str, Sequence[SplitSource]],
    progress: Progress,
    memory: int | None = None,
    cpus: float = 1.0,
    callbacks: Sequence[tune.Callback] = (),
) -> Swept:
    """Run the trials (key -> spec) and leave a record each.

    Args:
        store: Where logits are and records go.
        run_id: The run.
        specs: The trials.
        sources: The splits of each model.
        progress: Counts trials.
        memory: Bytes that all processes of the sweep may add up to (`budget`); None: no bound.
        cpus: Ray's CPUs for each worker.
        callbacks: Of Tune, beside our own.
    """
    pieces: dict[str, list[str]] = {}
    total, start = 0, time.monotonic()
    with unwrapped():
        for model, splits in sources.items():
            mine = {key: spec for key, spec in specs.items() if spec.model == model}
            found, count = _pieces(store, run_id, model, mine, splits, memory, cpus)
            pieces |= found
            total += count
    shared = time.monotonic()
    failed = _failures(specs, pieces)
    # One copy in the object store; the driver keeps none.
    shared_pieces = ray.put(Pieces(pieces))
    del pieces
    with progress:
        results = _tune(store, run_id, specs, shared_pieces, progress, cpus, callbacks)
        # The records are the truth: a trial that Tune lost with its worker is given another.
        for _ in range(_ROUNDS):
            done = recorded(store, run_id) | failed.keys()
            left = {key: spec for key, spec in specs.items() if key not in done}
            if not left:
                break
            _tune(store, run_id, left, shared_pieces, progress, cpus, callbacks)
    lost = specs.keys() - failed.keys() - recorded(store, run_id)
    reasons = {str(specs[key]): reason for key, reason in failed.items()}
    reasons |= {str(specs[key]): "its worker died" for key in lost}
    write_failures(store, run_id, reasons)
    failures = sorted(f"{trial}: {reason}" for trial, reason in reasons.items())
    seconds = shared - start, time.monotonic() - shared
    store.delete(partials_folder(run_id))
    return Swept(failures, results, total, seconds)


def _pieces(
    store: Store,
    run_id: str,
    model: str,
    specs: dict[str, TrialSpec],
    sources: Sequence[SplitSource],
    memory: int | None,
    cpus: float,
) -> tuple[dict[str, list[str]], int]:
    """Return the pieces of each trial of a model, in the order of the splits, and bytes read."""
    bytes_read = 0
    known = [known_pieces(store, run_id, source) for source in sources]
    todo = [{k: s for k, s in specs.items() if k not in found} for found in known]
    missing = {key: spec for some in todo for key, spec in some.items()}
    if missing:
        calibration = [source for source in sources if source.role == "calibration"]
        need_calibration(calibration, model)
        names = needed_fits(missing.values(), [source.split for source in calibration])
        sizes = [table_size(store, source) for source in sources]
        need = needed(sizes, missing.values(), names)
        most = int(ray.cluster_resources().get("CPU", 1) / cpus)
        fitting = share(memory, most, need.kept, need.fitting)
        measuring = share(memory, most, need.kept, need.measuring)
        read = ray.remote(_calibration).options(num_returns=2, num_cpus=cpus)
        domains, count = read.remote(store.uri, calibration, measuring.memory)
        bytes_read += ray.get(count)
        fits = ray.put(_fits(names, domains, model, fitting.workers, cpus))
        shared = any(spec.needs_calibration for spec in missing.values())
        measure = ray.remote(_measure).options(num_cpus=cpus)
        calls = []
        for i, (source, some) in enumerate(zip(sources, todo, strict=True)):
            if some:
                needs = domains if shared or source.role == "calibration" else None
                given = store.uri, run_id, source, some, fits, needs, measuring.memory
                calls.append((i, partial(measure.remote, *given)))
        total = sum(map(len, todo))
        with Progress(f"sweep: measurements of {model}", total, "trials x splits") as progress:
            for i, task in _as_completed(calls, measuring.workers):
                found, count = ray.get(task)
                bytes_read += count
                known[i].update(found)
                progress.advance(len(found))
    return {key: [found[key] for found in known] for key in specs}, bytes_read


def _fits(
    names: list[FitSpec],
    domains: ray.ObjectRef,
    model: str,
    workers: int | None,
    cpus: float,
) -> dict[FitSpec, Fitted]:
    """Make all fits that the trials share, each once."""
    quick = [name for name in names if name.calibrator in _QUICK]
    slow = [name for name in names if name.calibrator not in _QUICK]
    groups = [slow[i : i + _FITS_PER_TASK] for i in range(0, len(slow), _FITS_PER_TASK)]
    # The long task first: the short ones fill up behind it.
    groups = ([quick] if quick else []) + groups
    fit = ray.remote(_fit).options(num_cpus=cpus)
    calls = [(group, partial(fit.remote, group, domains)) for group in groups]
    fits: dict[FitSpec, Fitted] = {}
    with Progress(f"sweep: fits of {model}", len(names), "fits") as progress:
        for group, task in _as_completed(calls, workers):
            fits |= dict(zip(group, ray.get(task), strict=True))
            progress.advance(len(group))
    # In one order, whatever came first: the object that all measurements share is the same.
    return {name: fits[name] for name in names}


def _as_completed(
    calls: Sequence[tuple[_T, Callable[[], ray.ObjectRef]]], workers: int | None
) -> Iterator[tuple[_T, ray.ObjectRef]]:
    """Start the calls, at most `workers` at a time; yield each when its task has ended."""
    waiting = deque(calls)
    running: dict[ray.ObjectRef, _T] = {}
    while waiting or running:
        while waiting and (workers is None or len(running) < workers):
            name, call = waiting.popleft()
            running[call()] = name
        (task, *_), _ = ray.wait(list(running), num_returns=1)
        yield running.pop(task), task


class _Trial(tune.Trainable):
    """One trial; the actor is kept and given the next one (`reuse_actors`)."""

    def setup(
        self, config: dict[str, Any], pieces: list[ray.ObjectRef], store_uri: str, run_id: str
    ) -> None:
        """Keep what all trials share."""
        self.pieces: Pieces = ray.get(pieces[0])
        self.run_id = run_id
        self.store = Store.open(store_uri)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial."""
        self.key = new_config["trial"]["key"]
        self.spec = TrialSpec(**new_config["trial"]["spec"])
        return True

    def step(self) -> dict[str, Any]:
        """Record what was measured; a trial that could not be fitted says why instead."""
        outcome: dict[str, Any] = {"done": True, "key": self.key, "error": ""}
        result = assemble(self.spec, self.pieces[self.key])
        if isinstance(result, str):
            return {**outcome, "error": result}
        try:
            write_record(self.store, self.run_id, self.key, self.spec, result)
        except StoreError as error:
            # Raised by the driver: here Tune would print its stack and try it on every trial.
            return {**outcome, "store_error": str(error)}
        for role in ("id", "ood"):
            found = [row["ece"] for row in result.measurements if row["role"] == role]
            if found:
                outcome[f"ece_{role}"] = sum(found) / len(found)
        return outcome


class _Watch(tune.Callback):
    """Moves the progress line."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __getstate__(self) -> dict[str, Any]:
        """Stay behind when Tune saves its state."""
        return {}

    def on_trial_complete(self, trial: Any, **_: Any) -> None:
        """Count a finished trial."""
        self.progress.advance(failed=int(bool(trial.last_result.get("error"))))


def _tune(
    store: Store,
    run_id: str,
    specs: Mapping[str, TrialSpec],
    pieces: ray.ObjectRef,
    progress: Progress,
    cpus: float,
    callbacks: Sequence[tune.Callback],
) -> tune.ResultGrid:
    grid = [{"key": key, "spec": spec.as_plain()} for key, spec in specs.items()]
    trainable = tune.with_parameters(_Trial, pieces=[pieces], store_uri=store.uri, run_id=run_id)
    class_cache.ENV_VARS_TO_PROPAGATE.difference_update(_SECRETS)
    # A lost worker's trial is run again: its stack is no news, and what stays lost is said by us.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # Tune's own state is not needed after the sweep: the records are the result.
    with tempfile.TemporaryDirectory(prefix="ace-ray-tune-") as scratch:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": cpus}),
            param_space={"trial": tune.grid_search(grid)},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                name=run_id,
                storage_path=scratch,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=3),
                callbacks=[JsonLoggerCallback(), _Watch(progress), *callbacks],
            ),
        )
        results = tuner.fit()
    for result in results:
        if found := (result.metrics or {}).get("store_error"):
            raise StoreError(found)
    return results


def _failures(specs: Mapping[str, TrialSpec], pieces: Mapping[str, list[str]]) -> dict[str, str]:
    """Return why trials could not be fitted, by key."""
    failed = {}
    for key in specs:
        wrong = [json.loads(piece) for piece in pieces[key] if piece.startswith('{"error"')]
        if wrong:
            failed[key] = str(wrong[0]["error"])
    return failed
