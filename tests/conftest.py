"""Shared set-up: a quiet Ray on loopback, a home of our own, and one small run for many tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ace_ray.config import load

ROOT = Path(__file__).parent.parent
SMALL = ROOT / "configs" / "glyphs-small.yaml"
VARIANT = load(str(SMALL)).benchmark_configs()[0].variant  # its name in the store


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.stdout.strip().splitlines()[-1])

    @property
    def error(self) -> str:
        """The one line of a usage error."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        assert len(lines) == 1, self.stderr
        assert lines[0].startswith("error: ")
        return lines[0]


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.update(
        HOME=str(tmp_path_factory.mktemp("home")),
        RAY_AUTH_MODE="disabled",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_USAGE_STATS_ENABLED="0",
    )
    os.environ.pop("RAY_ADDRESS", None)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ace_ray", *map(str, arguments)]


def ace_ray(*arguments: object, prefix: Sequence[str] = ()) -> Done:
    """Run the command line as a user does, in a process of its own."""
    done = subprocess.run(
        [*prefix, *command(*arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, Any]:
    """A finished run of `configs/glyphs-small.yaml`; tests must not change its store."""
    base = tmp_path_factory.getbasetemp()
    # The folder that all processes of pytest-xdist share: whoever comes first makes the run.
    folder = (base if worker_id == "master" else base.parent) / "small"
    folder.mkdir(exist_ok=True)
    known = folder / "run.json"
    with FileLock(folder / "lock"):
        if not known.exists():
            done = ace_ray("run", SMALL, "--store", folder / "store", "--json")
            assert done.code == 0, done.stderr
            known.write_text(json.dumps({**done.json, "stderr": done.stderr}))
    return {**json.loads(known.read_text()), "store": folder / "store"}
