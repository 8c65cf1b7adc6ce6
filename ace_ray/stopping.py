"""Stopping on request: SIGTERM and `--max-hours` end a command as an interrupt does.

What is finished is committed as it finishes, so there is nothing to save: the work is left, Ray is
shut down, and the exit code says that it was not the end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal, TypeAlias

Cause: TypeAlias = Literal["interrupt", "terminate", "time"]

# Ray's native half turns whatever a signal handler raises into a plain KeyboardInterrupt, or worse:
# why it was raised has to be kept beside it.
_causes: list[Cause] = []
_held: list[bool] = []  # while not empty, a stop waits


def cause() -> Cause:
    """Return why the last KeyboardInterrupt was raised."""
    return _causes[-1] if _causes else "interrupt"


def heed_terminate() -> None:
    """Let SIGTERM stop the command; to be called again after Ray has put its own handler there."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _on_terminate)


def _on_terminate(_: int, __: FrameType | None) -> None:
    # Only once: the clean-up that follows must not be stopped in its turn.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _stop("terminate")


def _on_time(_: int, __: FrameType | None) -> None:
    _stop("time")


def _stop(why: Cause) -> None:
    _causes.append(why)
    if not _held:
        raise KeyboardInterrupt
    _held[-1] = True


@contextmanager
def held() -> Iterator[None]:
    """Let a stop wait until what is inside is done: Ray crashes if its start is cut short."""
    _held.append(False)
    try:
        yield
    finally:
        stopped = _held.pop()
    if stopped:
        raise KeyboardInterrupt


@contextmanager
def time_limit(hours: float | None) -> Iterator[None]:
    """Stop what is inside when the time is up; None: never."""
    if hours is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _on_time)
    signal.setitimer(signal.ITIMER_REAL, hours * 3600)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
