"""The stages one after another. Each reads what the one above committed, and can run alone."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import unquote

import yaml

from ace_ray.aggregate.study import output_path
from ace_ray.errors import PartialFailure, UsageError
from ace_ray.logits.table import read_marker
from ace_ray.logits.units import stored_unit
from ace_ray.manifest import read_manifest, write_run_marker
from ace_ray.plan import Plan, make_plan, results_only
from ace_ray.progress import Progress, say, stage
from ace_ray.report.render import REPORT_CODE, render
from ace_ray.session import ray_session
from ace_ray.source_state import source_state
from ace_ray.store import Store
from ace_ray.sweep.callbacks import check_callbacks
from ace_ray.sweep.records import partials_folder, recorded, write_failures
from ace_ray.sweep.splits import SplitSource, committed_marker

_VERSIONS: Final = ("ace-ray", "ray", "torch", "timm", "numpy", "scipy", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run did."""

    plan: Plan
    splits_extracted: int
    trials_run: int
    failures: list[str]

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        store, folder = self.plan.store, self.plan.folder
        return {
            "run_id": self.plan.run_id,
            "run_dir": store.locate(folder),
            "results": store.locate(f"{folder}/results.parquet"),
            "report": store.locate(f"{folder}/report.html"),
            "splits_extracted": self.splits_extracted,
            "splits_cached": len(self.plan.units) - self.splits_extracted,
            "trials_run": self.trials_run,
            "trials_cached": len(self.plan.specs) - self.trials_run,
            "failures": self.failures,
        }

    def check(self) -> None:
        """Raise if any trial failed."""
        if self.failures:
            more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
            raise PartialFailure(
                f"{len(self.failures)} of {len(self.plan.specs)} trials failed: "
                f"{self.failures[0]}{more}; all others are kept"
            )


class _Lazy:
    """Opens the Ray session when the first stage has something to do."""

    def __init__(self, stack: ExitStack, cpus: int | None) -> None:
        self.open: Callable[[], None] = lambda: stack.enter_context(ray_session(cpus))
        self.opened = False

    def __call__(self) -> None:
        if not self.opened:
            self.open()
            self.opened = True


def run(plan: Plan) -> Outcome:
    """Run whatever of the plan is not in the store yet."""
    with ExitStack() as stack:
        need_ray = _Lazy(stack, plan.config.resources.cpus)
        check_callbacks(plan.config.sweep.callbacks)
        extracted = run_logits(plan, need_ray)
        tried, failures = run_sweep(plan, need_ray)
        if plan.finished and not extracted and not tried:
            say("report: up to date, nothing to do")
        else:
            run_report(plan, need_ray)
    return Outcome(plan=plan, splits_extracted=extracted, trials_run=tried, failures=failures)


def run_logits(plan: Plan, need_ray: Callable[[], None]) -> int:
    """Extract what is not committed; return how many splits that was."""
    with stage(plan.run_id, "logits"):
        return _logits(plan, need_ray)


def _logits(plan: Plan, need_ray: Callable[[], None]) -> int:
    todo = plan.units_to_do()
    if not todo:
        say(f"logits: all {len(plan.units)} splits cached")
        return 0
    from ace_ray.counters import count
    from ace_ray.logits.extract import extract

    unknown = [unit for unit in todo if unit.source is None]
    if unknown:
        raise UsageError(
            f"logits of {unknown[0].model} on {unknown[0].split.benchmark}:{unknown[0].split.name} "
            "are not in the store any more; use `ace-ray run` with the run's own configuration"
        )
    plan.store.create()
    images = sum(unit.rows for unit in todo)
    cached = len(plan.units) - len(todo)
    say(f"logits: {len(todo)} splits to extract, {cached} cached")
    need_ray()
    config = plan.config
    with Progress("logits", images, "images") as progress:
        count("cache_hits", cached, run_id=plan.run_id, kind="split")
        failed = extract(plan.store, todo, progress, config.extraction, config.resources)
    if failed:
        others = f" (and {len(failed) - 1} more splits)" if len(failed) > 1 else ""
        raise PartialFailure(f"{failed[0]}{others}; all other splits are kept")
    return len(todo)


def run_sweep(plan: Plan, need_ray: Callable[[], None]) -> tuple[int, list[str]]:
    """Run the trials without a record; return how many, and a line per failed one."""
    with stage(plan.run_id, "sweep"):
        return _sweep(plan, need_ray)


def _sweep(plan: Plan, need_ray: Callable[[], None]) -> tuple[int, list[str]]:
    todo = plan.trials_to_do()
    if not todo:
        _write_manifest(plan)
        # Left by a run that was killed after its last record.
        plan.store.delete(partials_folder(plan.run_id))
        write_failures(plan.store, plan.run_id, {})
        say(f"sweep: all {len(plan.specs)} trials recorded")
        return 0, []
    check_callbacks(plan.config.sweep.callbacks)
    models = dict.fromkeys(spec.model for spec in todo.values())
    sources = {model: split_sources(plan, model) for model in models}
    plan.store.create()
    _write_manifest(plan)
    say(f"sweep: {len(todo)} trials to run, {len(plan.specs) - len(todo)} recorded")
    need_ray()
    from ace_ray.counters import count
    from ace_ray.feasible import need_node
    from ace_ray.sweep.callbacks import made_callbacks
    from ace_ray.sweep.tuner import run_trials

    need_node({"CPU": ("cpus_per_trial", plan.config.resources.cpus_per_trial)})
    cached = len(plan.specs) - len(todo)
    count("cache_hits", cached, run_id=plan.run_id, kind="trial")
    progress = Progress("sweep", len(todo), "trials", cached=cached)
    resources, callbacks = plan.config.resources, made_callbacks(plan.config.sweep.callbacks)
    swept = run_trials(
        plan.store,
        plan.run_id,
        todo,
        sources,
        progress,
        resources.sweep_memory,
        resources.cpus_per_trial,
        callbacks,
    )
    failures = swept.failures
    count("trials", len(todo) - len(failures), run_id=plan.run_id)
    missing = len(todo.keys() - recorded(plan.store, plan.run_id))
    if missing != len(failures):
        raise PartialFailure(
            f"{missing} of {len(todo)} trials have no record; all others are kept, run again"
        )
    return len(todo), failures


def run_report(plan: Plan, need_ray: Callable[[], None]) -> None:
    """Aggregate what is recorded, render it, and commit the run if it is complete."""
    with stage(plan.run_id, "report"):
        _report(plan, need_ray)


def _report(plan: Plan, need_ray: Callable[[], None]) -> None:
    need_ray()
    from ace_ray.aggregate.actor import aggregate

    store, folder, studies = plan.store, plan.folder, plan.config.studies
    difficulties = plan.config.sweep.difficulty
    missing = aggregate(store, plan.run_id, plan.specs, studies, difficulties)
    paths = render(store, plan.run_id, studies)
    say(f"report: {store.locate(f'{folder}/report.html')}")
    if missing:
        return
    paths += [f"{folder}/results.parquet", f"{folder}/summary.json"]
    paths += [f"{folder}/{output_path(study)}" for study in studies]
    write_run_marker(store, plan.run_id, plan.key, REPORT_CODE, paths)


def split_sources(plan: Plan, model: str) -> list[SplitSource]:
    """Return where a model's committed logit tables lie; one that is missing is an error."""
    sources = []
    for unit in (u for u in plan.units if u.model == model):
        split = unit.split
        source = SplitSource(
            model,
            split.benchmark,
            split.name,
            split.corruption,
            split.severity,
            split.role,
            split.subset,
            unit.folder,
            unit.key,
        )
        committed_marker(plan.store, source)
        sources.append(source)
    return sources


def _write_manifest(plan: Plan) -> None:
    """Record what the run is made of, before its first trial; the same content is left alone."""
    path = f"{plan.folder}/manifest.json"
    everything = plan.config.as_plain()
    # Without paths and resources: a run is the same wherever it was made.
    plain = results_only(everything)
    made_of = {
        "run_id": plan.run_id,
        "key": plan.key,
        "config": plain,
        "logits": {unit.folder.removeprefix("logits/"): unit.key for unit in plan.units},
        "trials": {key: spec.as_plain() for key, spec in plan.specs.items()},
    }
    known = plan.store.read_json(path) if plan.store.has(path) else {}
    if all(known.get(name) == value for name, value in made_of.items()):
        return
    # The file to run again keeps the paths, as they were when the run was first made.
    everything.pop("store")
    text = yaml.safe_dump(everything, sort_keys=False, default_flow_style=None, width=100)
    plan.store.write(f"{plan.folder}/config.yaml", text.encode())
    versions = {"python": platform.python_version()} | {name: version(name) for name in _VERSIONS}
    plan.store.write_json(path, {**made_of, "versions": versions, "git": source_state()})


def plan_of_run(store: Store, run_id: str) -> Plan:
    """Return the plan of a run that is in the store, from its own configuration."""
    from ace_ray.config import load_plain

    manifest = read_manifest(store, run_id)
    config = load_plain(manifest["config"], f"run {run_id}")
    # From the store alone: a report needs neither the images nor the network.
    units = []
    for folder in manifest["logits"]:
        marker = read_marker(store, f"logits/{folder}")
        if marker is None:
            raise UsageError(
                f"run {run_id}: {store.locate(f'logits/{folder}')} is gone; "
                "run its configuration again to make it anew"
            )
        units.append(stored_unit(marker, unquote(folder.split("/")[1].removeprefix("benchmark="))))
    plan = make_plan(config, store, units=units)
    if plan.key != manifest["key"]:
        raise UsageError(
            f"run {run_id} was made by another version of the model, data or code; "
            "run its configuration again to make it anew"
        )
    return plan
