"""Progress of long work on standard error: one live line on a terminal, plain lines elsewhere.

With `ACE_RAY_LOG=json` in the environment every line is a JSON object with the run and the stage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TextIO

from ace_ray.report.escape import clean

_LIVE_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 15.0


# What this process speaks of; `run_id` stays after a stage, for what is said at the end.
_about: dict[str, str | None] = {"run_id": None, "stage": None}


def structured() -> bool:
    """Return whether lines are JSON objects."""
    return os.environ.get("ACE_RAY_LOG") == "json"


def say(message: str) -> None:
    """Print one line for the user; standard output stays free for results."""
    text = _object(message) if structured() else clean(message)
    print(text, file=sys.stderr, flush=True)


def _object(message: str, **counts: Any) -> str:
    level = "error" if message.startswith("error: ") else "info"
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": when, "level": level, **_about, **counts, "message": message})


@contextmanager
def stage(run_id: str, name: str) -> Iterator[None]:
    """Mark what is said inside as of this run and stage."""
    _about.update(run_id=run_id, stage=name)
    try:
        yield
    finally:
        _about["stage"] = None


class Progress:
    """Counts done units of a known total, with rate and remaining time."""

    def __init__(
        self, label: str, total: int, unit: str, stream: TextIO | None = None, cached: int = 0
    ) -> None:
        # A label may hold a model's name, which must not move the cursor.
        self.label, self.total, self.unit, self.cached = clean(label), total, unit, cached
        self.stream = stream or sys.stderr
        self.json = structured()
        self.live = self.stream.isatty() and not self.json
        self.done = self.quarantined = self.failed = 0

    def __enter__(self) -> Self:
        self.start = self.shown = time.monotonic()
        if not self.live:
            self._print(f"{self.label}: {self.total:,} {self.unit}")
        return self

    def advance(self, count: int = 1, *, quarantined: int = 0, failed: int = 0) -> None:
        """Count finished units, and those among them set aside; show them now and then."""
        self.done += count
        self.quarantined += quarantined
        self.failed += failed
        now = time.monotonic()
        if now - self.shown >= (_LIVE_SECONDS if self.live else _PLAIN_SECONDS):
            self.shown = now
            self._print(self.line(now - self.start), end="" if self.live else "\n")

    def line(self, seconds: float) -> str:
        """Return the state as text."""
        rate = self.done / seconds if seconds > 0 else 0.0
        left = f", {(self.total - self.done) / rate:,.0f} s left" if rate else ""
        count = f"{self.done:,}/{self.total:,} {self.unit}"
        text = f"{self.label}: {count}, {rate:,.0f}/s{left}{self._aside()}"
        return f"\r\x1b[K{text}" if self.live else text

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = time.monotonic() - self.start
        clear = "\r\x1b[K" if self.live else ""
        state = "" if kind is None else " (stopped)"
        count = f"{self.done:,}/{self.total:,} {self.unit}"
        self._print(f"{clear}{self.label}: {count} in {seconds:.1f} s{self._aside()}{state}")

    def _aside(self) -> str:
        counts = ("cached", self.cached), ("quarantined", self.quarantined), ("failed", self.failed)
        return "".join(f", {count:,} {what}" for what, count in counts if count)

    def _print(self, text: str, end: str = "\n") -> None:
        if self.json:
            counts = {"done": self.done, "total": self.total, "unit": self.unit}
            aside = {"cached": self.cached, "quarantined": self.quarantined, "failed": self.failed}
            text = _object(text, **counts, **aside)
        print(text, end=end, file=self.stream, flush=True)
