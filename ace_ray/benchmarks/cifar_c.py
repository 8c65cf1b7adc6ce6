"""CIFAR-10-C as published: one `<corruption>.npy` of 5 x 10,000 images, and `labels.npy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from pydantic import ConfigDict

from ace_ray.arrays import IntArray
from ace_ray.benchmarks import roots
from ace_ray.benchmarks.cifar_batches import CLASSES, SIDE
from ace_ray.benchmarks.corrupt import Severities, check_types
from ace_ray.benchmarks.corruptions import PROTOCOL, SEVERITIES
from ace_ray.benchmarks.image_folder import Flag, place_of
from ace_ray.benchmarks.records import npy_header, read_records
from ace_ray.benchmarks.registry import Request
from ace_ray.benchmarks.split import Item, Samples, Split, Unreadable
from ace_ray.errors import DataError

ORIGIN: Final = "https://zenodo.org/records/2535967 (CIFAR-10-C.tar)"
_IMAGES: Final = 10_000
_TEST: Final = 5_000  # of the clean protocol: all others calibrate
_SHAPE: Final = (SIDE, SIDE, 3)
_ROWS: Final = len(SEVERITIES) * _IMAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class CifarCOptions:
    """Which corruptions, and of which images."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    protocol: Literal["clean", "paper"] = "clean"  # the first 5,000 images, or all
    corruptions: tuple[str, ...] = PROTOCOL
    severities: Severities = SEVERITIES
    partial: Flag = False  # fewer corruptions will do


def read_rows(root: str, sources: Sequence[str]) -> list[Item]:
    """Read images by `<file>#<row>`; all sources of a split are of one file."""
    path = sources[0].rpartition("#")[0]
    header = npy_header(root, path)
    rows = [int(source.rpartition("#")[2]) for source in sources]
    with roots.open_file(root, path) as file:
        records = read_records(file, header.start, int(np.prod(_SHAPE)), rows)
    return [
        r if isinstance(r, Unreadable) else np.frombuffer(r, np.uint8).reshape(_SHAPE)
        for r in records
    ]


def _labels(root: str) -> IntArray:
    header = npy_header(root, "labels.npy")
    if header.shape != (_ROWS,) or header.dtype.kind not in "iu":
        raise DataError(
            f"{root}/labels.npy: {header.dtype} {header.shape}, expected whole numbers ({_ROWS},); "
            f"get it again from {ORIGIN}"
        )
    labels = np.frombuffer(roots.read(root, "labels.npy")[header.start :], header.dtype)
    if not (labels.min() >= 0 and labels.max() < len(CLASSES)):
        raise DataError(f"{root}/labels.npy: a label is outside 0 to 9; get it from {ORIGIN}")
    return labels.astype(np.int32)


def _size(root: str, path: str) -> int:
    """Return the bytes of a corruption's file, whose header must be the published one."""
    header = npy_header(root, path)
    if header.shape != (_ROWS, *_SHAPE) or header.dtype != np.uint8:
        raise DataError(
            f"{root}/{path}: {header.dtype} {header.shape}, expected uint8 {(_ROWS, *_SHAPE)}; "
            f"get it again from {ORIGIN}"
        )
    return header.start + _ROWS * int(np.prod(_SHAPE))


def splits(request: Request) -> list[Split]:
    """Return a split per corruption and severity; ids are those of CIFAR-10's test images."""
    options: CifarCOptions = request.options
    check_types(request.name, options.corruptions, options.severities)
    root = place_of(request, ORIGIN, ["CIFAR-10-C", ""])
    there = {file.path for file in roots.files(root, (".npy",), recursive=False)}
    missing = [name for name in options.corruptions if f"{name}.npy" not in there]
    if missing and (not options.partial or len(missing) == len(options.corruptions)):
        found = len(options.corruptions) - len(missing)
        raise DataError(
            f"{request.name}: {found} of {len(options.corruptions)} corruptions in {root}; "
            f"{missing[0]}.npy is missing; copy the rest from {ORIGIN}, or set `partial: true`"
        )
    labels = _labels(root)
    count = _TEST if options.protocol == "clean" else _IMAGES
    ids = [f"test/{i:05d}" for i in range(count)]
    made = []
    for name in (name for name in options.corruptions if name not in missing):
        size = _size(root, f"{name}.npy")
        for severity in options.severities:
            start = (severity - 1) * _IMAGES
            rows = range(start, start + count)
            sources = [f"{name}.npy#{row}" for row in rows]
            samples = Samples.of(ids, labels[start : start + count], sources)
            made.append(
                Split(
                    benchmark=request.name,
                    name=f"{name}/{severity}",
                    role="ood",
                    samples=samples,
                    classes=CLASSES,
                    digest=samples.digest("cifar-c-1", [size] * count),
                    reader=read_rows,
                    root=root,
                    shift=(name, severity),
                    side=SIDE,
                )
            )
    return made
