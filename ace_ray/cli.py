"""The command line. Results go to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ace_ray import __version__
from ace_ray.console import OneLineGroup, reports_errors, with_arguments
from ace_ray.errors import AceRayError, UsageError, nearest
from ace_ray.progress import say
from ace_ray.report.escape import clean
from ace_ray.submit_command import submit
from ace_ray.watch.commands import leaderboard, rebenchmark

_store = click.option("--store", metavar="URI", help="Folder, s3:// or gs://.  [./ace-store]")
_cpus = click.option("--cpus", type=click.IntRange(min=1), help="CPUs of a local Ray.  [all]")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_data_root = click.option("--data-root", metavar="DIR", help="Folder that holds the data sets.")
_config = click.argument("config", required=False, metavar="[CONFIG]")
_max_hours = click.option(
    "--max-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Stop then, with exit code 1; the same command goes on.",
)
_repair = click.option("--repair", is_flag=True, help="Extract damaged splits again.")


@click.group(cls=OneLineGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ace-ray")
def main() -> None:
    """Tell how far a classifier's confidence can be trusted under shift, and fix it.

    \b
    Example:
      ace-ray demo                       the embedded benchmark, end to end
      ace-ray plan my.yaml               what would run, what is cached
      ace-ray run my.yaml --store runs/  everything, resumable

    ACE_RAY_LOG=json makes every line on standard error a JSON object.
    """


main.add_command(submit)


def _configured(
    path: str | None, store: str | None, cpus: int | None = None, data_root: str | None = None
) -> Any:
    from dataclasses import replace

    from ace_ray.config import load

    given = {"store": store, "data_root": data_root}
    config = load(path, {name: value for name, value in given.items() if value is not None})
    if cpus is None:
        return config
    return replace(config, resources=replace(config.resources, cpus=cpus))


def _planned(
    path: str | None,
    store: str | None,
    cpus: int | None,
    data_root: str | None,
    repair: bool = False,
) -> Any:
    from ace_ray.plan import make_plan
    from ace_ray.store import Store
    from ace_ray.submit import outlives_job

    config = _configured(path, store, cpus, data_root)
    if "_ray_pkg_" in str(Path.cwd()) and not outlives_job(config.store):
        say(
            f"warning: store {config.store} lies in the job's own folder, which Ray throws away; "
            "give --store a URI or an absolute path that all nodes share"
        )
    plan = make_plan(config, Store.open(config.store), repair=repair)
    # For what a stopped command says of the rest.
    click.get_current_context().obj = plan
    return plan


def _run(plan: Any, as_json: bool) -> None:
    from ace_ray.report.render import read_tables, warned
    from ace_ray.report.text import terminal
    from ace_ray.run import run

    outcome = run(plan)
    found = outcome.as_plain()
    found["warnings"] = [warning.message for warning in warned(plan.store, plan.run_id)]
    if as_json:
        click.echo(json.dumps(found))
    else:
        tables = read_tables(plan.store, plan.run_id, list(plan.config.studies))
        summary = plan.store.read_json(f"{plan.folder}/summary.json")
        for table in tables[:1]:
            click.echo(f"\n{terminal(table)}\n")
        for line in summary["sentences"]:
            click.echo(line)
        for message in found["warnings"]:
            click.echo(f"Warning: {clean(message)}; the report says where")
        if not found["splits_extracted"] and not found["trials_run"]:
            click.echo("Nothing was computed: every split and trial was in the store.")
        click.echo(f"Report: {found['report']}")
    outcome.check()


@main.command()
@_store
@_cpus
@_json
@reports_errors
def demo(store: str | None, cpus: int | None, as_json: bool) -> None:
    """Run the embedded benchmark end to end: images, logits, sweep, tables, report.

    \b
    Example:
      ace-ray demo --store /tmp/ace-store
    """
    _run(_planned(None, store, cpus, None), as_json)


@main.command()
@_config
@_store
@_data_root
@_cpus
@_max_hours
@_json
@reports_errors
def run(
    config: str | None, store: str | None, data_root: str | None, cpus: int | None, as_json: bool
) -> None:
    """Run logits, sweep, aggregation and report; what the store has is not computed again.

    \b
    Example:
      ace-ray run configs/glyphs-small.yaml --store runs/
    """
    _run(_planned(config, store, cpus, data_root), as_json)


@main.command()
@_config
@_store
@_data_root
@_json
@reports_errors
def plan(config: str | None, store: str | None, data_root: str | None, as_json: bool) -> None:
    """Say what would run and what is cached; start nothing.

    \b
    Example:
      ace-ray plan my.yaml
    """
    found = _planned(config, store, None, data_root).as_plain()
    if as_json:
        click.echo(json.dumps(found))
        return
    todo = found["splits"] - found["splits_cached"]
    outdated = f" ({found['splits_outdated']} outdated)" if found["splits_outdated"] else ""
    trials = found["trials"] - found["trials_recorded"]
    click.echo(
        f"run     {found['run_id']} in {found['store']}\n"
        f"logits  {todo} of {found['splits']} splits to extract{outdated}, "
        f"{found['images_to_do']:,} of {found['images']:,} images; "
        f"{found['splits_cached']} cached\n"
        f"sweep   {trials} of {found['trials']} trials to run; "
        f"{found['trials_recorded']} recorded\n"
        f"report  {'up to date' if found['finished'] else 'to make'}"
    )


@main.command()
@_config
@_store
@_data_root
@_cpus
@_max_hours
@_repair
@_json
@reports_errors
def logits(
    config: str | None,
    store: str | None,
    data_root: str | None,
    cpus: int | None,
    repair: bool,
    as_json: bool,
) -> None:
    """Extract the logit tables that are not committed yet.

    \b
    Example:
      ace-ray logits my.yaml --repair
    """
    from ace_ray.run import run_logits

    made = _planned(config, store, cpus, data_root, repair)
    with ExitStack() as stack:
        done = run_logits(made, _session(stack, made))
    _say_done(as_json, run_id=made.run_id, splits_extracted=done, splits=len(made.units))


@main.command()
@_config
@_store
@_data_root
@_cpus
@_max_hours
@_json
@reports_errors
def sweep(
    config: str | None, store: str | None, data_root: str | None, cpus: int | None, as_json: bool
) -> None:
    """Run the trials that have no record yet; the logits must be committed.

    \b
    Example:
      ace-ray sweep my.yaml
    """
    from ace_ray.run import Outcome, run_sweep

    made = _planned(config, store, cpus, data_root)
    with ExitStack() as stack:
        tried, failures = run_sweep(made, _session(stack, made))
    _say_done(as_json, run_id=made.run_id, trials_run=tried, trials=len(made.specs))
    Outcome(plan=made, splits_extracted=0, trials_run=tried, failures=failures).check()


@main.command()
@click.argument("run_id", required=False, metavar="[RUN]")
@_store
@_json
@reports_errors
def report(run_id: str | None, store: str | None, as_json: bool) -> None:
    """Aggregate a run's records again and write its tables and page.

    \b
    Example:
      ace-ray report 3f9a21c07b4e
    """
    from ace_ray.run import plan_of_run, run_report

    opened = _opened(store)
    made = plan_of_run(opened, _find_run(opened, run_id))
    with ExitStack() as stack:
        run_report(made, _session(stack, made))
    _say_done(
        as_json,
        run_id=made.run_id,
        results=opened.locate(f"{made.folder}/results.parquet"),
        report=opened.locate(f"{made.folder}/report.html"),
    )


@main.command()
@click.argument("run_id", required=False, metavar="[RUN]")
@_store
@_data_root
@_json
@reports_errors
def validate(run_id: str | None, store: str | None, data_root: str | None, as_json: bool) -> None:
    """Check every file, row count, id, key and digest of a run, and the images behind it.

    \b
    Example:
      ace-ray validate 3f9a21c07b4e --store runs/
    """
    from ace_ray.validate import validate_run

    opened = _opened(store)
    found_run = _find_run(opened, run_id)
    checked, problems, notes = validate_run(opened, found_run, data_root)
    if as_json:
        found = {"run_id": found_run, **checked, "problems": problems, "notes": notes}
        click.echo(json.dumps(found))
    else:
        click.echo(f"run {found_run}: " + ", ".join(f"{v:,} {k}" for k, v in checked.items()))
        for note in notes:
            say(f"note: {note}")
        own = {"config": opened.locate(f"runs/{found_run}/config.yaml"), "store": opened.uri}
        for problem in problems:
            say(f"error: {with_arguments(problem, own)}")
        well = "the store is as committed, images not compared" if notes else "all is as committed"
        click.echo(f"{len(problems)} problems" if problems else well)
    if problems:
        sys.exit(AceRayError.exit_code)


@main.command()
@click.argument("run_a")
@click.argument("run_b")
@_store
@_json
@reports_errors
def compare(run_a: str, run_b: str, store: str | None, as_json: bool) -> None:
    """Say what changed from RUN_A to RUN_B, and whether it is significant; write nothing.

    \b
    Example:
      ace-ray compare 3f9a21c07b4e 8d02c4 --store runs/
    """
    from ace_ray.compare import compare_runs, read_run
    from ace_ray.report.differences import comparison_text

    opened = _opened(store)
    first, second = (read_run(opened, _find_run(opened, name)) for name in (run_a, run_b))
    found = compare_runs(first, second)
    if as_json:
        click.echo(json.dumps(found.as_plain(), allow_nan=False))
    else:
        click.echo(comparison_text(found))


@main.command("import")
@click.argument("file")
@click.option("--model", required=True, help="Name to use in a config's `models`.")
@click.option("--benchmark", required=True, help="Name to use in a config's `benchmarks`.")
@click.option("--split", required=True, help="`<corruption>/<severity>` for corruptions.")
@click.option("--role", required=True, type=click.Choice(["calibration", "id", "ood"]))
@click.option("--probabilities", is_flag=True, help="The file holds probabilities, not logits.")
@_store
@_json
@reports_errors
def import_(
    file: str,
    model: str,
    benchmark: str,
    split: str,
    role: Any,
    probabilities: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Bring your own logits: an npz, a Parquet table or an npy pair becomes a committed split.

    Wanted: `logits` (N, C), `labels` or `label` (N,), and optionally `sample_id`.

    \b
    Example:
      ace-ray import val.npz --model mine --benchmark shop --split cal --role calibration
    """
    from ace_ray.logits.imported import import_split, read_foreign
    from ace_ray.store import Store

    opened = Store.open(_configured(None, store).store)
    table = read_foreign(file, probabilities=probabilities)
    marker = import_split(opened, table, model=model, benchmark=benchmark, split=split, role=role)
    _say_done(as_json, key=marker["key"], rows=marker["rows"], classes=len(marker["classes"]))


@main.command("ls")
@click.argument("what", type=click.Choice(["models", "benchmarks", "calibrators", "runs"]))
@_store
@_json
@reports_errors
def list_(what: str, store: str | None, as_json: bool) -> None:
    """List what there is to choose from, or the runs in the store.

    \b
    Example:
      ace-ray ls runs --store runs/
    """
    rows = _listed(what, store)
    if as_json:
        click.echo(json.dumps({what: [{"name": name, "about": about} for name, about in rows]}))
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, about in rows:
        click.echo(f"{name.ljust(width)}  {about}")
    if not rows:
        say(f"no {what}")


def _listed(what: str, store: str | None) -> list[tuple[str, str]]:
    if what == "models":
        from ace_ray.models.registry import describe_models

        return describe_models()
    if what == "benchmarks":
        from ace_ray.benchmarks.registry import BENCHMARKS, load_benchmarks

        load_benchmarks()
        return [(b.name, b.about) for b in BENCHMARKS.values()]
    if what == "calibrators":
        from ace_ray.calibration import CALIBRATORS
        from ace_ray.calibration.base import load_plugins

        load_plugins()
        return [(n, (f.__doc__ or "").splitlines()[0]) for n, f in sorted(CALIBRATORS.items())]
    from ace_ray.manifest import read_manifest, read_run_marker

    opened = _opened(store)
    rows = []
    for run_id in _runs(opened):
        config = read_manifest(opened, run_id)["config"]
        state = "complete" if read_run_marker(opened, run_id) else "incomplete"
        benchmarks = ", ".join(b["name"] for b in config["benchmarks"])
        models = ", ".join(m if isinstance(m, str) else m["name"] for m in config["models"])
        rows.append((run_id, f"{state}, {models} on {benchmarks}"))
    return rows


@main.command()
@_config
@_store
@_data_root
@_json
@reports_errors
def doctor(config: str | None, store: str | None, data_root: str | None, as_json: bool) -> None:
    """Say what is missing on this machine, and the remedy; with a CONFIG also for its run.

    \b
    Example:
      ace-ray doctor my.yaml --data-root /data
    """
    from ace_ray.doctor import examine

    findings = examine(_configured(config, store, data_root=data_root), named=config is not None)
    if as_json:
        click.echo(json.dumps({"findings": [f._asdict() for f in findings]}))
    else:
        for f in findings:
            remedy = f"  -> {f.remedy}" if f.remedy else ""
            click.echo(f"{'ok ' if f.ok else 'BAD'}  {f.what}: {f.found}{remedy}")
    if not all(f.ok for f in findings):
        sys.exit(1)


def _opened(store: str | None) -> Any:
    from ace_ray.store import Store

    opened = Store.open(_configured(None, store).store)
    if not opened.exists:
        raise UsageError(f"store {opened.uri} does not exist; run `ace-ray demo` or name --store")
    return opened


def _runs(store: Any) -> list[str]:
    return [r for r in store.names("runs") if store.has(f"runs/{r}/manifest.json")]


def _find_run(store: Any, run_id: str | None) -> str:
    runs = _runs(store)
    if run_id is None and len(runs) == 1:
        return runs[0]
    if run_id is None:
        raise UsageError(f"which run? store {store.uri} holds: {', '.join(runs) or 'none'}")
    matches = [r for r in runs if run_id and r.startswith(run_id)]
    if len(matches) != 1:
        problem = "no run" if not matches else "several runs"
        raise UsageError(f"{problem} {run_id!r} in store {store.uri}; {nearest(run_id, runs)}")
    return matches[0]


def _session(stack: ExitStack, plan: Any) -> Callable[[], None]:
    from ace_ray.session import ray_session

    return lambda: stack.enter_context(ray_session(plan.config.resources.cpus))


def _say_done(as_json: bool, **found: Any) -> None:
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo("  ".join(f"{name}: {value}" for name, value in found.items()))


main.add_command(rebenchmark)
main.add_command(leaderboard)
