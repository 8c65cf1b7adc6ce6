"""`ace-ray submit`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from ace_ray.console import reports_errors
from ace_ray.progress import say
from ace_ray.stopping import cause


@click.command()
@click.argument("config", required=False, metavar="[CONFIG]")
@click.option(
    "--address",
    required=True,
    envvar="RAY_API_SERVER_ADDRESS",
    metavar="URL",
    help="The cluster's dashboard, as in http://head:8265.  [RAY_API_SERVER_ADDRESS]",
)
@click.option("--store", metavar="URI", help="URI or absolute path that all nodes share.")
@click.option("--data-root", metavar="DIR", help="Where all nodes can read the data sets.")
@click.option(
    "--max-hours",
    "hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Stop then.",
)
@click.option("--working-dir", default=".", metavar="DIR", help="Folder to upload.  [.]")
@click.option("--pip", multiple=True, metavar="REQUIREMENT", help="Install this on the nodes.")
@click.option("--constraints", metavar="FILE", help="Versions for --pip, a file in the folder.")
@click.option("--image", metavar="URI", help="Container image to run in, instead of --pip.")
@click.option("--env", "names", multiple=True, metavar="NAME", help="Variable to hand on.  [none]")
@click.option("--no-wait", is_flag=True, help="Submit and return.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@reports_errors
def submit(
    config: str | None,
    address: str,
    store: str | None,
    data_root: str | None,
    hours: float | None,
    working_dir: str,
    pip: tuple[str, ...],
    constraints: str | None,
    image: str | None,
    names: tuple[str, ...],
    no_wait: bool,
    as_json: bool,
) -> None:
    """Run CONFIG as a job on a cluster, show its log, and exit with its code.

    The same run submitted twice runs once: the second call attaches to the job under way. After it
    has ended, a call starts it again, which computes only what the store lacks. Ctrl-C detaches.

    \b
    Example:
      ace-ray submit my.yaml --address http://head:8265 --store s3://bucket/ace-store
    """
    from ace_ray.config import load
    from ace_ray.submit import (
        Cluster,
        Surroundings,
        base_id,
        check_store,
        chosen_env,
        entrypoint,
        inside,
    )

    folder = Path(working_dir)
    given = {"store": store, "data_root": data_root}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = load(config, chosen)
    check_store(settings.store)
    run = base_id(settings)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    words += [f"--max-hours={hours:g}"] if hours is not None else []
    command = entrypoint(config and inside(config, folder), words)
    env = chosen_env(names, dict(os.environ))
    around = Surroundings(
        working_dir=folder, pip=pip, constraints=constraints, image=image, env=env
    )
    around.as_plain()  # refuses what does not go together before anything is asked of the cluster
    cluster = Cluster(address)
    job = cluster.submit(run, command, around)
    name = job.submission_id
    say(f"{'attached to' if job.attached else 'submitted'} job {name} on {address}")
    if not no_wait:
        try:
            cluster.follow(name)
        except KeyboardInterrupt:
            say(
                f"detached, job {name} goes on; the same command attaches again, "
                f"`ray job stop --address {address} {name}` ends it"
            )
            sys.exit(143 if cause() == "terminate" else 130)
    found = {**job._asdict(), "address": address, "finished": not no_wait}
    if as_json:
        click.echo(json.dumps(found))
    elif not no_wait:
        click.echo(f"job {name}: done")
