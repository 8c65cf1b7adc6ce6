"""Many images in few files: WebDataset shards (`webdataset`) and Parquet tables (`table`).

Labels are class indices. Which file plays which role goes by its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import numpy as np
from pydantic import ConfigDict

from ace_ray.arrays import IntArray
from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import Classes, given_classes
from ace_ray.benchmarks.image_folder import Flag, root_of
from ace_ray.benchmarks.parquet_rows import read_cells, read_label_column
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Reader, Role, Samples, Split
from ace_ray.benchmarks.tar_shards import index_shard, read_members
from ace_ray.errors import ConfigError, DataError

_SHARDS: Final = "your own tar shards: <key>.jpg + <key>.cls"
_TABLES: Final = "your own Parquet files, or the `data` folder of a Hugging Face dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsOptions:
    """Which shards play which role: patterns of their paths."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    calibration: str | None = "calibration*.tar"  # None: another benchmark calibrates
    test: str | None = "test*.tar"  # None: there is none
    ood: tuple[str, ...] | None = None  # None: all others
    classes: Classes | None = None  # None: numbers up to the largest label
    partial: Flag = False  # use what damaged shards still have


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Which files play which role, and their columns."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    calibration: str | None = "calibration*.parquet"  # None: another benchmark calibrates
    test: str | None = "test*.parquet"  # None: there is none
    ood: tuple[str, ...] | None = None  # None: all others
    image: str = "image"
    label: str = "label"
    classes: Classes | None = None  # None: as in the files' metadata, else numbers


class _Part(NamedTuple):
    """A split to be."""

    name: str
    role: Role
    files: list[roots.File]


class _Rows(NamedTuple):
    """The labelled images of a split."""

    ids: list[str]
    labels: IntArray
    sources: list[str]
    sizes: list[int]


def _prefix(path: str) -> str:
    """Return the name of an OOD split: what stands before the first dash or digit."""
    name = path.rpartition(".")[0]
    return re.split(r"[-\d]", name)[0].strip("/_. ") or "ood"


def _parts(request: Request, root: str, suffix: str) -> list[_Part]:
    options: ShardsOptions | TableOptions = request.options
    files = roots.files(root, (suffix,))
    parts: list[_Part] = []
    taken: set[str] = set()
    roles: tuple[tuple[Role, str, str | None], ...] = (
        ("calibration", "calibration", options.calibration),
        ("id", "test", options.test),
    )
    for role, name, pattern in roles:
        if pattern is None:
            continue
        chosen = _matching(request, root, files, pattern, name)
        twice = next((file.path for file in chosen if file.path in taken), None)
        if twice is not None:
            raise ConfigError(f"{request.name}: {twice} matches both `calibration` and `test`")
        taken |= {file.path for file in chosen}
        parts.append(_Part(name, role, chosen))
    rest = [file for file in files if file.path not in taken]
    if options.ood is not None:
        wanted = {f.path for p in options.ood for f in _matching(request, root, rest, p, "ood")}
        rest = [file for file in rest if file.path in wanted]
    groups: dict[str, list[roots.File]] = {}
    for file in rest:
        groups.setdefault(_prefix(file.path), []).append(file)
    for name in groups:
        if name in {part.name for part in parts}:
            raise ConfigError(
                f"{request.name}: {groups[name][0].path} would be a second split {name!r}; rename "
                f"it, or widen the pattern of `{name}`"
            )
    return parts + [_Part(name, "ood", groups[name]) for name in sorted(groups)]


def _matching(
    request: Request, root: str, files: Sequence[roots.File], pattern: str, option: str
) -> list[roots.File]:
    found = [file for file in files if fnmatchcase(file.path, pattern)]
    if not found:
        names = ", ".join(file.path for file in files[:5]) or "none"
        raise DataError(
            f"{request.name}: no file {pattern!r} in {root} (there: {names}); set `{option}`"
        )
    return found


def _made(
    request: Request, root: str, parts: Sequence[tuple[_Part, _Rows]], names: Classes | None,
    layout: str, reader: Reader,
) -> list[Split]:  # fmt: skip
    """Return the splits, over as many classes as there are names or labels."""
    largest = max((int(rows.labels.max(initial=-1)) for _, rows in parts), default=-1)
    classes = (
        tuple(map(str, range(largest + 1)))
        if names is None
        else given_classes(request.name, names, root)
    )
    splits = []
    for part, rows in parts:
        if not rows.ids:
            raise DataError(f"{request.name}: no image for {part.name} in {part.files[0].path}")
        bad = np.flatnonzero((rows.labels < 0) | (rows.labels >= len(classes)))
        if len(bad):
            raise DataError(
                f"{request.name}: {rows.ids[bad[0]]} has the label {rows.labels[bad[0]]}, expected "
                f"0 to {len(classes) - 1}; set `classes`, or leave out files without labels"
            )
        samples = Samples.of(rows.ids, rows.labels, rows.sources)
        splits.append(
            Split(
                benchmark=request.name,
                name=part.name,
                role=part.role,
                samples=samples,
                classes=classes,
                digest=samples.digest(layout, rows.sizes),
                reader=reader,
                root=root,
            )
        )
    return splits


def shard_splits(request: Request) -> list[Split]:
    """Return the splits of WebDataset shards."""
    options: ShardsOptions = request.options
    root = root_of(request, _SHARDS)
    made = []
    for part in _parts(request, root, ".tar"):
        found = [
            (file.path.removesuffix(".tar"), row)
            for file in part.files
            for row in index_shard(request.name, root, file.path, partial=options.partial)
        ]
        rows = _Rows(
            [f"{shard}/{row.key}" for shard, row in found],
            np.array([row.label for _, row in found], np.int64),
            [row.source for _, row in found],
            [row.size for _, row in found],
        )
        made.append((part, rows))
    return _made(request, root, made, options.classes, "webdataset-1", read_members)


def table_splits(request: Request) -> list[Split]:
    """Return the splits of Parquet files."""
    options: TableOptions = request.options
    root = root_of(request, _TABLES)
    classes: Classes | None = options.classes
    made = []
    for part in _parts(request, root, ".parquet"):
        rows = _Rows([], np.empty(0, np.int64), [], [])
        for path, size in part.files:
            labels, names = read_label_column(
                request.name, root, path, options.image, options.label
            )
            classes = names if classes is None else classes
            if options.classes is None and names is not None and names != classes:
                raise DataError(
                    f"{request.name}: {path} names its classes otherwise than the files before it; "
                    "set `classes`"
                )
            numbers = range(len(labels))
            stem = path.removesuffix(".parquet")
            rows = _Rows(
                rows.ids + [f"{stem}/{i:06d}" for i in numbers],
                np.concatenate([rows.labels, labels]),
                rows.sources + [f"{path}#{options.image}#{i}" for i in numbers],
                rows.sizes + [size] * len(labels),
            )
        made.append((part, rows))
    return _made(request, root, made, classes, "table-1", read_cells)


register_benchmark(
    Benchmark(
        name="webdataset",
        about="your own images in tar shards (WebDataset): <key>.jpg with <key>.cls or <key>.json",
        options=ShardsOptions,
        splits=shard_splits,
        folder="webdataset",
        origin=_SHARDS,
    )
)
register_benchmark(
    Benchmark(
        name="table",
        about="your own images in Parquet files, also as Hugging Face datasets are stored",
        options=TableOptions,
        splits=table_splits,
        folder="table",
        origin=_TABLES,
    )
)
