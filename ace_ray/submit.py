"""A run as a job on a cluster, through Ray's job server.

The same submission while the first one runs attaches to it: the job's id is made of what was asked
for, and the server refuses an id that it has.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ace_ray.config import Config
from ace_ray.errors import AceRayError, UsageError
from ace_ray.identity import CALIBRATION_CODE, RUNTIME, content_key

# Never uploaded: what a machine makes for itself, and files that usually hold credentials.
EXCLUDES: Final = (
    ".git", ".venv", "venv", "ace-store", "__pycache__", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", "*.egg-info", ".env", ".env.*", "*.pem", ".aws", ".netrc",
)  # fmt: skip
_SECRET: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|(^|_)KEY|KEY$|WEBHOOK|AUTH", re.I)
_PATIENCE: Final = 20.0  # seconds that a head may take until it starts jobs
_TRIES: Final = 1000  # ids of one run on one cluster


class JobFailed(AceRayError):
    """The job ended without success; the exit code is the job's own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Submitted(NamedTuple):
    """A job on the cluster."""

    submission_id: str
    attached: bool  # it was there already


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a job runs in: the uploaded folder, and packages or an image on top of the nodes'."""

    working_dir: Path
    pip: Sequence[str] = ()
    constraints: str | None = None  # a file in the folder
    image: str | None = None
    env: Sequence[tuple[str, str]] = ()

    def as_plain(self) -> dict[str, Any]:
        """Return Ray's runtime_env."""
        if self.image and self.pip:
            raise UsageError("--image and --pip exclude each other; install it in the image")
        if self.constraints and not self.pip:
            raise UsageError("--constraints needs --pip: it limits what that installs")
        plain: dict[str, Any] = {"working_dir": str(self.working_dir), "excludes": list(EXCLUDES)}
        if self.pip:
            # Ray sets the variable where it installs; pip itself replaces it.
            file = self.constraints and inside(self.constraints, self.working_dir)
            limits = ["-c ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/" + file] if file else []
            plain["pip"] = [*limits, *self.pip]
        if self.image:
            plain["image_uri"] = self.image
        if self.env:
            plain["env_vars"] = dict(self.env)
        return plain


def chosen_env(names: Sequence[str], environment: dict[str, str]) -> list[tuple[str, str]]:
    """Return the named variables with their values; one that may hold a secret is refused."""
    for name in names:
        if _SECRET.search(name):
            raise UsageError(
                f"--env {name}: a job's variables can be read by everyone who sees the cluster; "
                "give credentials to the nodes (an instance role, a service account)"
            )
        if name not in environment:
            raise UsageError(f"--env {name}: is not set here")
    return [(name, environment[name]) for name in names]


def outlives_job(store: str) -> bool:
    """Return whether a store lies outside the job's own folder, which Ray deletes in time."""
    return "://" in store or Path(store).is_absolute()


def check_store(store: str) -> None:
    """Refuse a store that would be thrown away with the job."""
    if not outlives_job(store):
        raise UsageError(
            f"store {store}: is relative to the job's own folder, which is thrown away; give "
            "--store a URI or an absolute path that all nodes share"
        )


def inside(file: str, folder: Path) -> str:
    """Return a file's path within the folder that is uploaded."""
    if not folder.is_dir():
        raise UsageError(f"--working-dir {folder}: no such folder")
    path = Path(file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UsageError(
            f"{file} lies outside the folder that is uploaded ({folder.resolve()}); "
            "name one that holds it with --working-dir"
        )
    return path.relative_to(folder.resolve()).as_posix()


def base_id(config: Config) -> str:
    """Return the id of a run's first submission: what was asked for, and where it goes.

    The run's key also knows the weights and the data, which only the cluster may see; all that can
    be told apart here is told apart. How much of the cluster it takes makes no other run.
    """
    plain = config.as_plain()
    for path in RUNTIME - {"store", "data_root"}:
        section, _, name = path.rpartition(".")
        plain[section].pop(name)
    key = content_key({"config": plain, "code": CALIBRATION_CODE})
    return f"ace-ray-{key[:12]}"


def entrypoint(config: str | None, options: Sequence[str]) -> str:
    """Return the command of the job."""
    return shlex.join(["python", "-m", "ace_ray", "run", *options, *([config] if config else [])])


class Cluster:
    """A cluster's job server."""

    def __init__(self, address: str) -> None:
        from ray.job_submission import JobSubmissionClient

        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or "@" in parts.netloc:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            raise UsageError(
                f"--address {shown}: expected the dashboard's, as in http://head:8265, without a "
                "user or password"
            )
        # Its remarks on the connection are no news to the user.
        logging.getLogger("ray.dashboard").setLevel(logging.ERROR)
        self.address = address
        try:
            self.client = JobSubmissionClient(address)
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = str(error).splitlines()[0].rstrip(".")
            raise UsageError(
                f"--address {address}: no job server there ({said}); it is the dashboard's, "
                "as in http://head:8265"
            ) from None

    def submit(self, run: str, command: str, surroundings: Surroundings) -> Submitted:
        """Start the run, or find it where it is under way.

        A job that has ended is left as it is: the run gets the next number. What it finished is in
        the store, so that this costs what is missing and no more.
        """
        taken = {job.submission_id: job for job in self.client.list_jobs()}
        for number in range(1, _TRIES):
            name = run if number == 1 else f"{run}-{number}"
            job = taken.get(name)
            if job is not None and job.status.is_terminal():
                continue
            if job is not None:
                return Submitted(name, attached=True)
            try:
                self._start(name, command, surroundings)
            except RuntimeError as error:
                # Another submission of the same run came first, a moment ago.
                if "already exists" in str(error):
                    return Submitted(name, attached=True)
                raise UsageError(f"{self.address} refused the job: {_last_line(error)}") from None
            except ValueError as error:
                raise UsageError(f"the job cannot be uploaded: {_last_line(error)}") from None
            return Submitted(name, attached=False)
        raise UsageError(f"{self.address} has {_TRIES:,} jobs of run {run}; start another cluster")

    def _start(self, name: str, command: str, surroundings: Surroundings) -> None:
        """Start a job; a head that has just come up needs a moment before it can."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self.client.submit_job(
                    entrypoint=command, submission_id=name, runtime_env=surroundings.as_plain()
                )
                return
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def follow(self, name: str) -> None:
        """Show the job's log until it ends.

        Raises:
            JobFailed: With the reason, and the exit code of the job.
        """
        log = asyncio.run(self._tail(name))
        while not (job := self.client.get_job_info(name)).status.is_terminal():
            time.sleep(0.5)
        if job.status == "SUCCEEDED":
            return
        code = job.driver_exit_code or 1
        if job.status == "STOPPED":
            raise JobFailed(f"job {name} was stopped; submit it again to go on", code)
        raise JobFailed(f"job {name} failed (exit code {code}): {_reason(log, job.message)}", code)

    async def _tail(self, name: str) -> list[str]:
        """Hand on the log; return its last lines."""
        last: list[str] = []
        async for text in self.client.tail_job_logs(name):
            sys.stderr.write(text)
            sys.stderr.flush()
            last = [*last, *text.splitlines()][-50:]
        return last


def _reason(log: Sequence[str], message: str | None) -> str:
    """Return why a job failed: its own error line, or else the last that is known."""
    lines = [line.strip() for line in (*(message or "").splitlines(), *log) if line.strip()]
    own = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (own or lines or ["no reason was given"])[-1]


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip().rstrip(".")
