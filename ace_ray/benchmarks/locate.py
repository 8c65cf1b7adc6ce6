"""From a configuration's benchmarks to splits: where the data lie, who builds on whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ace_ray.benchmarks.registry import BENCHMARKS, Request, find_benchmark, load_benchmarks
from ace_ray.benchmarks.roots import below
from ace_ray.benchmarks.split import Split
from ace_ray.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from ace_ray.config import BenchmarkConfig


class Located:
    """The splits of a configuration's benchmarks, each listed once, when first asked for."""

    def __init__(self, benchmarks: Sequence[BenchmarkConfig], data_root: str | None) -> None:
        load_benchmarks()
        self.configs = {b.name: b for b in benchmarks}
        self.data_root = data_root
        self._known: dict[str, list[Split]] = {}
        self._open: list[str] = []

    def splits(self, name: str) -> list[Split]:
        """Return the splits of a benchmark by its label, or of a registered one by its name.

        Raises:
            DataError: If its data are missing or incomplete.
        """
        if name not in self._known:
            if name in self._open:
                raise ConfigError(f"benchmarks: {' -> '.join([*self._open, name])} is a circle")
            self._open.append(name)
            try:
                self._known[name] = self._listed(name)
            finally:
                self._open.pop()
        return self._known[name]

    def _listed(self, name: str) -> list[Split]:
        config = self.configs.get(name)
        benchmark = find_benchmark(config.type if config else name)
        options = config.options if config else benchmark.options()
        found = benchmark.splits(
            Request(name, options, root_of(benchmark.name, options, self.data_root), self.find)
        )
        if not found:
            raise DataError(f"benchmark {name}: has no split; check its options")
        return found

    def find(self, reference: str) -> Split:
        """Return a split by `<benchmark>/<split>`."""
        labels = [n for n in (*self.configs, *BENCHMARKS) if reference.startswith(f"{n}/")]
        if not labels:
            raise ConfigError(
                f"benchmarks: base {reference!r}: expected <benchmark>/<split> with a benchmark of "
                f"this configuration; {nearest(reference.partition('/')[0], self.configs)}"
            )
        label = max(labels, key=len)
        splits = {split.name: split for split in self.splits(label)}
        name = reference.removeprefix(f"{label}/")
        if name not in splits:
            raise ConfigError(
                f"benchmarks: base {reference!r}: {label} has no split {name!r}; "
                f"{nearest(name, splits)}"
            )
        return splits[name]


def root_of(benchmark: str, options: object, data_root: str | None) -> str | None:
    """Return where a benchmark's data lie: its own `path`, or its folder below `data_root`."""
    path = getattr(options, "path", None)
    folder = BENCHMARKS[benchmark].folder
    if path is not None:
        return str(path)
    return below(data_root, folder) if data_root and folder else None
