"""What is missing on this machine, and the remedy."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from ace_ray.benchmarks.registry import BENCHMARKS
from ace_ray.errors import AceRayError
from ace_ray.models.registry import MODELS, weights_digest
from ace_ray.store import Store

_PACKAGES: Final = ("ray", "torch", "timm", "numpy", "scipy", "pyarrow")
_SHARED_MEMORY: Final = Path("/dev/shm")
_GIB: Final = 2**30


class Finding(NamedTuple):
    """One thing that was looked at; `remedy` is empty where nothing needs doing."""

    what: str
    found: str
    ok: bool
    remedy: str = ""


def examine(store_uri: str) -> list[Finding]:
    """Look at interpreter, packages, memory, devices, data and the store."""
    return [
        _python(),
        *(_package(name) for name in _PACKAGES),
        _shared_memory(),
        _accelerator(),
        *(_model(name) for name in MODELS),
        *(Finding(f"benchmark {b.name}", b.about, True) for b in BENCHMARKS.values()),
        _store(store_uri),
    ]


def _python() -> Finding:
    found = ".".join(str(v) for v in sys.version_info[:3])
    ok = sys.version_info >= (3, 11)
    return Finding("python", found, ok, "" if ok else "use Python 3.11 or newer")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name), True)
    except PackageNotFoundError:
        return Finding(name, "missing", False, "pip install ace-ray")


def _shared_memory() -> Finding:
    if not _SHARED_MEMORY.is_dir():
        return Finding("/dev/shm", "none; Ray keeps objects on disk", True)
    free = shutil.disk_usage(_SHARED_MEMORY).free / _GIB
    ok = free >= 1
    return Finding(
        "/dev/shm",
        f"{free:.1f} GiB free",
        ok,
        "" if ok else "give containers --shm-size of 1 GiB or more, or Ray spills to disk",
    )


def _accelerator() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("gpu", f"none; CPU with {os.cpu_count()} cores", True)
    return Finding("gpu", f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}", True)


def _model(name: str) -> Finding:
    try:
        return Finding(f"model {name}", f"weights {weights_digest(name)[:12]}", True)
    except (AceRayError, OSError) as error:
        return Finding(f"model {name}", "damaged", False, str(error))


def _store(uri: str) -> Finding:
    try:
        store = Store.open(uri)
        if not store.exists:
            return Finding("store", f"{store.uri}: does not exist yet", True)
        probe = ".doctor"
        store.write(probe, b"")
        store.delete(probe)
    except AceRayError as error:
        return Finding("store", uri, False, str(error))
    return Finding("store", f"{store.uri}: writable, {len(store.names('runs'))} runs", True)
