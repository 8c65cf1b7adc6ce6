"""The arguments that the jobs share; each job is one command of `ace-ray` on the cluster."""

from __future__ import annotations

import argparse

from ace_ray.cli import main


def run_job(command: str, about: str | None) -> None:
    """Parse the command line, call the command, and exit with its code."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="where the cluster's nodes can all read and write")
    if command == "report":
        parser.add_argument("--run", help="the run's name, or its start; not needed if it is alone")
    else:
        parser.add_argument("--config", help="YAML file; without it the embedded benchmark runs")
        parser.add_argument("--data-root", help="where the nodes can all read the data sets")
        parser.add_argument("--max-hours", help="stop then; the same job goes on from there")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    places = [given.pop(name) for name in ("config", "run") if name in given]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    main([command, *options, *places])
