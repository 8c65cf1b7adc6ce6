"""The commands of scheduled re-benchmarking."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ace_ray.console import reports_errors

_store = click.option("--store", metavar="URI", help="Folder, s3:// or gs://.  [./ace-store]")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@click.command()
@click.argument("watchlist")
@_store
@click.option("--data-root", metavar="DIR", help="Folder that holds the data sets.")
@click.option("--thorough", is_flag=True, help="Look at images and hub weights again, too.")
@click.option(
    "--lease",
    type=click.FloatRange(min=1),
    default=60.0,
    metavar="SECONDS",
    help="A scheduler that is silent for so long is taken for dead.  [60]",
)
@_json
@reports_errors
def rebenchmark(
    watchlist: str,
    store: str | None,
    data_root: str | None,
    thorough: bool,
    lease: float,
    as_json: bool,
) -> None:
    """Benchmark what is new or changed on a watchlist, and say what became worse.

    Exit codes: 0 nothing worse (or nothing new, or another scheduler runs), 1 some models failed,
    2 bad input, 3 a regression. ACE_RAY_WEBHOOK in the environment gets regressions as JSON.

    \b
    Example:
      ace-ray rebenchmark configs/watchlist.yaml --store s3://bucket/ace-store
    """
    from ace_ray.store import Store
    from ace_ray.watch.lease import Busy
    from ace_ray.watch.rebenchmark import rebenchmark as run
    from ace_ray.watch.watchlist import read_watchlist
    from ace_ray.watch.webhook import send, take_url

    url = take_url()
    given = {"store": store, "data_root": data_root}
    read = read_watchlist(watchlist, {k: v for k, v in given.items() if v is not None})
    opened = Store.open(str(read.settings.get("store", "./ace-store")))
    try:
        report = run(read, opened, lease_seconds=lease, thorough=thorough)
    except Busy as error:
        click.echo(json.dumps({"status": "busy", "reason": str(error)}) if as_json else str(error))
        return
    found = report.as_plain()
    if url is not None and report.regressions:
        found["webhook"] = send(url, found)
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    else:
        _say(found)
    sys.exit(report.exit_code)


def _say(found: dict[str, Any]) -> None:
    for regression in found["regressions"]:
        click.echo(f"WORSE  {regression['text']}")
    click.echo(
        f"{found['watched']} watched: {len(found['ran'])} benchmarked, "
        f"{len(found['unchanged'])} unchanged, {len(found['failed'])} failed, "
        f"{len(found['regressions'])} regressions\nLeaderboard: {found['leaderboard']}"
    )


@click.command()
@_store
@_json
@reports_errors
def leaderboard(store: str | None, as_json: bool) -> None:
    """Show all models ever watched, best first, and write the page anew from the history.

    \b
    Example:
      ace-ray leaderboard --store runs/
    """
    from ace_ray.errors import UsageError
    from ace_ray.store import Store
    from ace_ray.watch.leaderboard import PATH, as_plain, write_leaderboard

    opened = Store.open(store or "./ace-store")
    if not opened.exists:
        raise UsageError(f"store {opened.uri} does not exist; run `ace-ray rebenchmark` first")
    boards = as_plain(write_leaderboard(opened))
    page = opened.locate(PATH)
    if as_json:
        click.echo(json.dumps({"leaderboard": page, "boards": boards}, allow_nan=False))
        return
    from ace_ray.watch.text import board_table

    for board in boards:
        click.echo(f"{board_table(board)}\n")
    if not boards:
        click.echo("no model has been benchmarked yet; `ace-ray rebenchmark WATCHLIST` does")
    click.echo(f"Leaderboard: {page}")
