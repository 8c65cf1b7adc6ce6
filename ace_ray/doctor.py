"""What is missing on this machine, and the remedy."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from ace_ray.benchmarks.locate import Located, root_of
from ace_ray.benchmarks.registry import BENCHMARKS, Benchmark, load_benchmarks
from ace_ray.config import Config
from ace_ray.errors import AceRayError
from ace_ray.models.config import ModelConfig
from ace_ray.models.registry import resolve
from ace_ray.store import Store
from ace_ray.sweep.callbacks import check_callbacks

_PACKAGES: Final = ("ray", "torch", "timm", "numpy", "scipy", "pyarrow")
_SHARED_MEMORY: Final = Path("/dev/shm")
_GIB: Final = 2**30


class Finding(NamedTuple):
    """One thing that was looked at; `remedy` is empty where nothing needs doing."""

    what: str
    found: str
    ok: bool
    remedy: str = ""


def examine(config: Config, *, named: bool) -> list[Finding]:
    """Look at interpreter, packages, memory, devices, models, data and the store.

    Args:
        config: Whose models, benchmarks, data root and store to look at.
        named: Whether the user named the configuration: then what it asks for must be there, and
            what it does not ask for is left out.
    """
    load_benchmarks()
    located = Located(config.benchmark_configs(), config.data_root)
    asked = [b.name for b in config.benchmark_configs() if b.options is not None]
    others = [] if named else [b for b in BENCHMARKS.values() if b.name not in asked]
    return [
        _python(),
        *(_package(name) for name in _PACKAGES),
        _shared_memory(),
        _accelerator(),
        *(_tracker(name) for name in config.sweep.callbacks),
        *(_model(model) for model in config.model_configs()),
        *(_asked(located, name) for name in asked),
        *(_on_offer(located, benchmark) for benchmark in others),
        _store(config.store),
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


def _tracker(name: str) -> Finding:
    try:
        check_callbacks([name])
    except AceRayError as error:
        return Finding(name, "missing", False, str(error))
    return Finding(name, "installed", True)


def _model(model: ModelConfig) -> Finding:
    try:
        return Finding(f"model {model.name}", f"weights {resolve(model).weights[:12]}", True)
    except (AceRayError, OSError) as error:
        return Finding(f"model {model.name}", "not usable", False, str(error))


def _asked(located: Located, name: str) -> Finding:
    """Look at a benchmark that the configuration asks for."""
    try:
        splits = located.splits(name)
    except AceRayError as error:
        return Finding(f"benchmark {name}", "not usable", False, str(error))
    images = sum(split.rows for split in splits)
    return Finding(f"benchmark {name}", f"{len(splits)} splits, {images:,} images", True)


def _on_offer(located: Located, benchmark: Benchmark) -> Finding:
    """Say of a benchmark that nobody asked for whether it is there, and where to get it."""
    title = f"benchmark {benchmark.name}"
    if benchmark.folder is None:
        return Finding(title, benchmark.about, True)
    if root_of(benchmark.name, None, located.data_root) is None:
        return Finding(title, f"not looked for (no `data_root`); get it: {benchmark.origin}", True)
    found = _asked(located, benchmark.name)
    return found if found.ok else Finding(title, f"not there: {found.remedy}", True)


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
