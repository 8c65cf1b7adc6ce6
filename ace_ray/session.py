"""The Ray session of a command: local by default, the cluster where there is one."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from ace_ray import errors
from ace_ray.errors import AceRayError
from ace_ray.stopping import heed_terminate, held


@contextmanager
def ray_session(cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray and disconnect at the end; a session that is already open is used as it is.

    With `RAY_ADDRESS` set (as in a submitted job) the cluster is used; otherwise a local Ray with
    `cpus` CPUs is started and stopped.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Tune: our own records are the result; its CSV, TensorBoard and banner are not wanted.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    # Tune would answer an interrupt by ending as if all were done.
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    import ray

    if ray.is_initialized():
        yield
        return
    remote = bool(os.environ.get("RAY_ADDRESS"))
    if not remote:
        # The driver's C++ half prints harmless "E" lines to the terminal at its default level.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        with held(), nullcontext() if remote else _silent_stderr():
            ray.init(
                # Without "local", Ray would attach to any cluster that was ever started here.
                address=None if remote else "local",
                num_cpus=None if remote else cpus,
                include_dashboard=None if remote else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        # Ray's own handler would end the driver at once, with native stack lines.
        heed_terminate()
        yield
    finally:
        ray.shutdown()


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop what Ray's C++ half prints while it starts; failures still arrive as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as sink:
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the package's own error instead of Ray's wrapper around it."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        own = _own_error(error)
        if own is None:
            raise
        raise own from error


def _own_error(error: BaseException) -> AceRayError | None:
    """Return the package's error behind Ray's.

    Ray hands on a task's exception as an object, but what an actor's constructor or a dataset's
    function raised only as the text of its traceback.
    """
    cause: BaseException | None = error
    text = ""
    while cause is not None:
        inner = getattr(cause, "cause", None)
        if isinstance(inner, AceRayError):
            return type(inner)(str(inner).splitlines()[0])
        text += f"{getattr(cause, 'traceback_str', '')}\n{cause}\n"
        cause = cause.__cause__
    found = re.findall(r"^ace_ray\.errors\.(\w+): (.+)$", text, re.MULTILINE)
    if not found:
        return None
    kind = getattr(errors, found[-1][0], AceRayError)
    return kind(found[-1][1].strip()) if issubclass(kind, AceRayError) else None
