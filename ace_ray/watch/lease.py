"""One scheduler at a time: a lease in the store that a killed run cannot keep for ever."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from pyarrow import fs as pafs

from ace_ray.errors import AceRayError, IntegrityError, StoreError
from ace_ray.progress import say
from ace_ray.store import Store

PATH: Final = "watch/lease.json"
_BEATS: Final = 4  # heartbeats in the time of a lease
_SETTLE: Final = 2.0  # seconds between writing and reading back, where there is no lock


class Busy(AceRayError):
    """Another scheduler holds the lease."""

    exit_code = 0


class LeaseLost(AceRayError):
    """Another scheduler took the lease, because this one was silent for too long."""

    exit_code = 1


class Lease:
    """The right to run, as a context; raises `Busy` where another has it.

    The file says who holds it and until when; a thread moves that time on while the run lives.
    On local disks and NFS the decision is made under a file lock. Object stores have no
    conditional write in pyarrow: there the last writer wins, and everyone reads back after a
    while to see who that was.
    """

    def __init__(self, store: Store, seconds: float) -> None:
        self.store, self.seconds = store, seconds
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.lost = False
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._beating, daemon=True)

    def __enter__(self) -> Self:
        local = isinstance(self.store.filesystem, pafs.LocalFileSystem)
        with self._deciding():
            holder = self._read()
            if holder is not None and holder["expires"] > time.time():
                raise Busy(_busy(holder))
            if holder is not None:
                say(f"lease: taking over from {holder['owner']}, which stopped without a word")
            self._write()
        if not local:
            time.sleep(_SETTLE)
            holder = self._read()
            if holder is None or holder["owner"] != self.owner:
                raise Busy(_busy(holder) if holder else "another scheduler runs; nothing done")
        self._beat.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._beat.join()
        with self._deciding():
            holder = self._read()
            if holder is not None and holder["owner"] == self.owner:
                self.store.delete(PATH)

    def check(self) -> None:
        """Raise if another scheduler has taken over: what follows is its work."""
        if self.lost:
            raise LeaseLost(
                "another scheduler took over, this one was silent for too long; what is finished "
                "is kept, give `--lease` more seconds"
            )

    def _beating(self) -> None:
        while not self._stop.wait(self.seconds / _BEATS):
            try:
                with self._deciding():
                    holder = self._read()
                    if holder is None or holder["owner"] != self.owner:
                        self.lost = True
                        return
                    self._write()
            except StoreError as error:
                # Until the lease expires the next beat may still come through.
                say(f"warning: heartbeat failed: {error}")

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Hold a file lock for the moment of reading and writing, where the store has files."""
        if not isinstance(self.store.filesystem, pafs.LocalFileSystem):
            yield
            return
        flags = os.O_RDWR | os.O_CREAT
        handle = os.open(self.store.at("watch/.lease.lock"), flags, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise StoreError(f"cannot lock {self.store.locate(PATH)}: {error.strerror}") from error
        finally:
            os.close(handle)  # and with it the lock

    def _read(self) -> dict[str, Any] | None:
        if not self.store.has(PATH):
            return None
        try:
            return self.store.read_document(
                PATH, {"owner": str, "heartbeat": float, "expires": float}
            )
        except IntegrityError:
            return {"owner": "a damaged lease", "heartbeat": 0.0, "expires": 0.0}

    def _write(self) -> None:
        now = time.time()
        lease = {"owner": self.owner, "heartbeat": now, "expires": now + self.seconds}
        self.store.write_json(PATH, lease)


def _busy(holder: dict[str, Any]) -> str:
    silent = max(0.0, time.time() - holder["heartbeat"])
    return f"another scheduler runs ({holder['owner']}, heard {silent:.0f} s ago); nothing done"
