"""What a benchmark is, and the registry by name.

A benchmark turns a request (its options, and where its data lie) into splits. A split is a
manifest: one row per sample with an id, a label and a source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

from ace_ray.benchmarks.split import Split
from ace_ray.errors import UsageError, nearest


class Request(NamedTuple):
    """What a benchmark is asked for."""

    name: str  # the label: its name in the store and in results
    options: Any  # the benchmark's frozen options dataclass
    root: str | None  # where its data lie; None: nobody said
    find: Callable[[str], Split]  # a split by `<benchmark>/<split>`, for benchmarks built on others


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A family of splits over the same classes."""

    name: str
    about: str
    options: type[Any]  # a frozen dataclass: what a config may set
    splits: Callable[[Request], list[Split]]  # raises DataError: what is missing, where to get it
    folder: str | None = None  # its usual folder below `data_root`; None: it needs no data
    origin: str = ""  # where to get it


BENCHMARKS: Final[dict[str, Benchmark]] = {}
# Modules that register the benchmarks of this package, loaded when one is asked for.
_OWN: Final = ("embedded", "corrupt", "folder", "imagenet", "cifar", "wilds", "domains", "packed")


def register_benchmark(benchmark: Benchmark) -> Benchmark:
    """Make a benchmark available under its name in configs and on the command line."""
    BENCHMARKS[benchmark.name] = benchmark
    return benchmark


@cache
def load_benchmarks() -> None:
    """Import the benchmarks of this package and third-party ones.

    The latter are modules named by the entry point `ace_ray.benchmarks`; importing one calls
    `register_benchmark`.
    """
    for module in _OWN:
        import_module(f"ace_ray.benchmarks.{module}")
    for point in entry_points(group="ace_ray.benchmarks"):
        point.load()


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark by name."""
    load_benchmarks()
    if name not in BENCHMARKS:
        raise UsageError(f"unknown benchmark {name!r}; {nearest(name, BENCHMARKS)}")
    return BENCHMARKS[name]
