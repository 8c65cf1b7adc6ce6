"""CIFAR-10 and CIFAR-10-C as published.

Two protocols. `clean`: calibrate on test images 5,000 to 9,999, test on 0 to 4,999. `paper`:
calibrate on 5,000 training images, test on all 10,000; the network has seen what it is calibrated
on, so that this calibration is optimistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import ConfigDict

from ace_ray.arrays import IntArray
from ace_ray.benchmarks import cifar_c, roots
from ace_ray.benchmarks.cifar_batches import CLASSES, ORIGIN, SIDE, Batch, read_batch, read_images
from ace_ray.benchmarks.image_folder import Seed, root_of
from ace_ray.benchmarks.records import npy_header
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Role, Samples, Split
from ace_ray.errors import DataError
from ace_ray.identity import digest

_BATCH: Final = 10_000
_HALF: Final = 5_000
_CALIBRATION: Final = 5_000
_PLACES: Final = ("cifar-10-batches-bin", "cifar-10-batches-py", "")
_DRAWN: Final = "train_5k"  # 5,000 training images, drawn already
Protocol: TypeAlias = Literal["clean", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CifarOptions:
    """Which images calibrate."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    protocol: Protocol = "clean"
    seed: Seed = 1  # draws the training images of the paper's protocol


def _find(request: Request, root: str) -> tuple[str, str]:
    """Return the folder of the batches and the ending of their names."""
    for place in _PLACES:
        for ending in (".bin", ""):
            if roots.exists(roots.below(root, place, f"test_batch{ending}")):
                return place, ending
    raise DataError(
        f"{request.name}: no test_batch in {root} nor in its cifar-10-batches-bin or "
        f"cifar-10-batches-py; get them from {ORIGIN}"
    )


class _Chosen(NamedTuple):
    """Images of one role."""

    batch: Batch
    ids: list[str]
    sources: list[str]


def _split(request: Request, root: str, name: str, role: Role, chosen: _Chosen) -> Split:
    samples = Samples.of(chosen.ids, chosen.batch.labels, chosen.sources)
    # The labels lie between the pixels, so that these were read: they can be part of the digest.
    pixels = digest(np.ascontiguousarray(chosen.batch.planes).tobytes())
    return Split(
        benchmark=request.name,
        name=name,
        role=role,
        samples=samples,
        classes=CLASSES,
        digest=samples.digest(f"cifar-1 {pixels}"),
        reader=read_images,
        root=root,
        side=SIDE,
    )


def _drawn(root: str) -> _Chosen:
    """Return the 5,000 training images that lie beside the batches, with their numbers."""
    batch = read_batch(root, f"{_DRAWN}.bin", _CALIBRATION)
    numbers = np.arange(_CALIBRATION)
    beside = f"{_DRAWN}_indices.npy"
    if roots.exists(roots.below(root, beside)):
        header = npy_header(root, beside)
        numbers = np.frombuffer(roots.read(root, beside)[header.start :], header.dtype)
        if numbers.shape != (_CALIBRATION,) or len(np.unique(numbers)) < _CALIBRATION:
            raise DataError(f"{root}/{beside}: expected {_CALIBRATION:,} distinct numbers")
    return _Chosen(batch, _train(numbers), [f"{_DRAWN}.bin#{r}" for r in range(_CALIBRATION)])


def _draw(root: str, folder: str, ending: str, seed: int) -> _Chosen:
    """Return 5,000 of the 50,000 training images."""
    paths = [f"{folder}/data_batch_{i}{ending}".lstrip("/") for i in range(1, 6)]
    batches = [read_batch(root, path, _BATCH) for path in paths]
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(len(paths) * _BATCH, _CALIBRATION, replace=False))
    parts = [batches[b].planes[numbers[numbers // _BATCH == b] % _BATCH] for b in range(len(paths))]
    labels = np.concatenate([batch.labels for batch in batches])[numbers]
    sources = [f"{paths[n // _BATCH]}#{n % _BATCH}" for n in numbers.tolist()]
    return _Chosen(Batch(np.concatenate(parts), labels), _train(numbers), sources)


def _train(numbers: IntArray) -> list[str]:
    return [f"train/{number:05d}" for number in numbers.tolist()]


def _splits(request: Request) -> list[Split]:
    options: CifarOptions = request.options
    root = root_of(request, ORIGIN)
    folder, ending = _find(request, root)
    path = f"{folder}/test_batch{ending}".lstrip("/")
    test = read_batch(root, path, _BATCH)

    def part(name: str, role: Role, rows: range) -> Split:
        batch = Batch(test.planes[rows.start : rows.stop], test.labels[rows.start : rows.stop])
        ids = [f"test/{row:05d}" for row in rows]
        chosen = _Chosen(batch, ids, [f"{path}#{row}" for row in rows])
        return _split(request, root, name, role, chosen)

    if options.protocol == "clean":
        return [
            part("calibration", "calibration", range(_HALF, _BATCH)),
            part("test", "id", range(_HALF)),
        ]
    if roots.exists(roots.below(root, f"{_DRAWN}.bin")):
        chosen = _drawn(root)
    else:
        chosen = _draw(root, folder, ending, options.seed)
    return [
        _split(request, root, "calibration", "calibration", chosen),
        part("test", "id", range(_BATCH)),
    ]


register_benchmark(
    Benchmark(
        name="cifar10",
        about="CIFAR-10: 5,000 images to calibrate on, 5,000 to test on (paper: 5,000 + 10,000)",
        options=CifarOptions,
        splits=_splits,
        folder="cifar10",
        origin=ORIGIN,
    )
)
register_benchmark(
    Benchmark(
        name="cifar10-c",
        about="CIFAR-10-C: test images under published corruptions x 5 severities",
        options=cifar_c.CifarCOptions,
        splits=cifar_c.splits,
        folder="CIFAR-10-C",
        origin=cifar_c.ORIGIN,
    )
)
