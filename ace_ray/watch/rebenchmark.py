"""Run what is new or changed on a watchlist, and say what became worse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ace_ray.compare import read_run
from ace_ray.config import Config
from ace_ray.errors import AceRayError, UsageError
from ace_ray.identity import content_key
from ace_ray.models.config import ModelConfig
from ace_ray.plan import Plan, make_plan, results_only
from ace_ray.progress import say
from ace_ray.store import Store
from ace_ray.watch.history import Entry, latest, measures, read_history, record
from ace_ray.watch.leaderboard import PATH as PAGE
from ace_ray.watch.leaderboard import write_leaderboard
from ace_ray.watch.lease import Lease, LeaseLost
from ace_ray.watch.regressions import Finding, against_fleet, against_last
from ace_ray.watch.seen import Seen
from ace_ray.watch.watchlist import Watchlist, expand

REGRESSION: Final = 3  # the exit code


class Failure(NamedTuple):
    """A model that could not be benchmarked."""

    model: str
    reason: str


@dataclass(kw_only=True)
class Report:
    """What was found and done."""

    store: Store
    watched: int = 0
    unchanged: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def regressions(self) -> list[Finding]:
        """What became worse."""
        return [finding for finding in self.findings if finding.regression]

    @property
    def exit_code(self) -> int:
        """3: something became worse; else 1: some models failed; else 0."""
        return REGRESSION if self.regressions else 1 if self.failed else 0

    def as_plain(self) -> dict[str, Any]:
        """Return what `--json` prints and the webhook gets."""
        return {
            "status": "done" if self.ran or self.failed else "nothing new",
            "exit_code": self.exit_code,
            "watched": self.watched,
            "unchanged": self.unchanged,
            "ran": self.ran,
            "failed": [failure._asdict() for failure in self.failed],
            "regressions": [{**f._asdict(), "text": str(f)} for f in self.regressions],
            "comparisons": [f._asdict() for f in self.findings],
            "history": self.store.locate("history.parquet"),
            "leaderboard": self.store.locate(PAGE),
        }


def rebenchmark(
    watchlist: Watchlist, store: Store, *, lease_seconds: float, thorough: bool = False
) -> Report:
    """Benchmark the models that are new or changed; one that fails does not stop the others.

    Args:
        watchlist: What to look at.
        store: Where results and history lie.
        lease_seconds: After so many seconds without a heartbeat another scheduler takes over.
        thorough: Plan every model anew: notice changed images and re-published weights too.

    Raises:
        Busy: If another scheduler runs.
    """
    store.create()
    store.write_json("watch/about.json", {"purpose": "lease and digests of rebenchmark"})
    with Lease(store, lease_seconds) as lease:
        models = expand(watchlist, store)
        report, seen = Report(store=store, watched=len(models)), Seen(store)
        before = read_history(store)
        todo = []
        for model in models:
            config = watchlist.config(model)
            try:
                fingerprint = seen.fingerprint(model, config)
            except OSError as error:
                say(f"error: {model.name}: {error.filename}: {error.strerror}")
                report.failed.append(Failure(model.name, f"{error.filename}: {error.strerror}"))
                continue
            last = latest(before, settings_key(config)).get(model.name)
            if last is not None and last.fingerprint == fingerprint and not thorough:
                report.unchanged.append(model.name)
            else:
                todo.append((model, config, fingerprint))
        with ExitStack() as stack:
            for i, (model, config, fingerprint) in enumerate(todo):
                say(f"[{i + 1}/{len(todo)}] {model.name}")
                lease.check()
                try:
                    _one(report, stack, before, (model, config, fingerprint), watchlist)
                except LeaseLost:
                    raise
                except AceRayError as error:
                    reason = str(error).removeprefix(f"{model.name}: ")
                    say(f"error: {model.name}: {reason}")
                    report.failed.append(Failure(model.name, reason))
        seen.save()
        if report.ran or not store.has(PAGE):
            write_leaderboard(store)
    return report


def settings_key(config: Config) -> str:
    """Return the digest of everything that is measured, but for the model."""
    plain = results_only(config.as_plain())
    return content_key({name: value for name, value in plain.items() if name != "models"})


def _one(
    report: Report,
    stack: ExitStack,
    before: Sequence[Entry],
    given: tuple[ModelConfig, Config, str],
    watchlist: Watchlist,
) -> None:
    """Plan and run one model, compare it with what was before, and add its row."""
    from ace_ray.run import run
    from ace_ray.session import ray_session

    model, config, fingerprint = given
    store = report.store
    plan = make_plan(config, store)
    if not plan.finished:
        # One session for all models; it is used as it is where it is already open.
        stack.enter_context(ray_session(config.resources.cpus))
        run(plan).check()
    settings = settings_key(config)
    entry = Entry(
        model=model.name,
        date=datetime.now(UTC),
        run_id=plan.run_id,
        key=plan.key,
        weights=_weights(plan),
        settings=settings,
        fingerprint=fingerprint,
        regressions=[],
        measures=measures(read_run(store, plan.run_id).rows, model.name),
    )
    known = latest(before, settings)
    last = known.pop(model.name, None)
    found: list[Finding] = []
    if last is None or last.key != plan.key:
        if last is not None:
            try:
                found += against_last(store, last, entry, watchlist.thresholds.ece)
            except UsageError as error:
                say(f"warning: {model.name} is not compared with its last run: {error}")
        found += against_fleet(list(known.values()), entry, watchlist.thresholds.fleet)
    worse = [str(f) for f in found if f.regression]
    if record(store, replace(entry, regressions=worse)):
        report.ran.append(model.name)
    else:
        report.unchanged.append(model.name)
    report.findings += found


def _weights(plan: Plan) -> str:
    """Return the digest of the weights; of imported logits, that of their keys."""
    source = next((unit.source for unit in plan.units if unit.source is not None), None)
    return source.weights if source else content_key({"logits": [u.key for u in plan.units]})
