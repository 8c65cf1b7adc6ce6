"""CIFAR-10's own files: binary batches, and Python batches without trusting the pickle."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy._core.multiarray import _reconstruct

from ace_ray.arrays import ImageArray, IntArray
from ace_ray.benchmarks import roots
from ace_ray.benchmarks.records import read_records
from ace_ray.benchmarks.split import Item, Unreadable
from ace_ray.errors import DataError

CLASSES: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SIDE: Final = 32
PIXELS: Final = 3 * SIDE * SIDE
_RECORD: Final = 1 + PIXELS  # a label, then the red, green and blue planes
ORIGIN: Final = "https://www.cs.toronto.edu/~kriz/cifar.html"


class Batch(NamedTuple):
    """Images as they are stored, one row each: the red, green and blue planes."""

    planes: ImageArray  # (N, 3072)
    labels: IntArray


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Stand for `_codecs.encode`, by which Python 3 pickles write the bytes of an array."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode(encoding)


_ALLOWED: Final[dict[tuple[str, str], Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    """Reads arrays, lists, dictionaries and text; anything else is refused before it exists."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which was not run")
        return _ALLOWED[module, name]


# A pickle can fail in any of these ways; none of them may be more than one line.
_DAMAGED: Final = (
    pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    MemoryError, OverflowError, ImportError,
)  # fmt: skip


def _unpickled(data: bytes, where: str) -> Batch:
    try:
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        fields = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
        planes, labels = fields["data"], np.asarray(fields["labels"])
    except _DAMAGED as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{where}: not a CIFAR-10 batch: {reason}; get it again from {ORIGIN}"
        ) from error
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.ndim != 2:
        raise DataError(f"{where}: `data` is no table of uint8; get it again from {ORIGIN}")
    return _checked(Batch(planes, labels), where)


def _checked(batch: Batch, where: str) -> Batch:
    planes, labels = batch
    shape = labels.shape == planes.shape[:1] and planes.shape[1] == PIXELS
    if not shape or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where}: images {planes.shape} and labels {labels.shape}, expected (N, {PIXELS}) "
            f"and (N,); get it again from {ORIGIN}"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < len(CLASSES)):
        raise DataError(f"{where}: a label is outside 0 to 9; get it again from {ORIGIN}")
    return Batch(planes, labels.astype(np.int32))


def read_batch(root: str, path: str, images: int) -> Batch:
    """Return all images of a binary (`*.bin`) or Python batch, which must have as many."""
    where = f"{root}/{path}"
    try:
        data = roots.read(root, path)
    except OSError as error:
        raise DataError(
            f"{where}: cannot be read: {roots.why(error)}; get it from {ORIGIN}"
        ) from error
    if not path.endswith(".bin"):
        batch = _unpickled(data, where)
        if len(batch.labels) == images:
            return batch
        got = f"{len(batch.labels):,} images, expected {images:,}"
    elif len(data) == images * _RECORD:
        records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
        return _checked(Batch(records[:, 1:], records[:, 0]), where)
    else:
        got = f"{len(data):,} bytes, expected {images * _RECORD:,}"
    raise DataError(f"{where}: {got}; copy it again, or get it from {ORIGIN}")


def as_image(planes: ImageArray) -> ImageArray:
    """Return (..., 3072) planes as images (..., 32, 32, 3)."""
    cube = planes.reshape(*planes.shape[:-1], 3, SIDE, SIDE)
    return np.ascontiguousarray(np.moveaxis(cube, -3, -1))


# A pickle can only be read whole: once per worker, not once per shard.
@lru_cache(maxsize=2)
def _python_batch(root: str, path: str) -> Batch:
    return _unpickled(roots.read(root, path), f"{root}/{path}")


def read_images(root: str, sources: Sequence[str]) -> list[Item]:
    """Read images by `<file>#<row>`."""
    items: list[Item] = [Unreadable("not asked for")] * len(sources)
    wanted: dict[str, list[int]] = {}
    for position, source in enumerate(sources):
        wanted.setdefault(source.rpartition("#")[0], []).append(position)
    for path, at in wanted.items():
        rows = [int(sources[position].rpartition("#")[2]) for position in at]
        for position, item in zip(at, _read_rows(root, path, rows), strict=True):
            items[position] = item
    return items


def _read_rows(root: str, path: str, rows: list[int]) -> list[Item]:
    try:
        if not path.endswith(".bin"):
            planes = _python_batch(root, path).planes
            return [as_image(planes[row]) for row in rows]
        with roots.open_file(root, path) as file:
            records = read_records(file, 0, _RECORD, rows)
    except (OSError, DataError, IndexError) as error:
        return [Unreadable(str(error).splitlines()[0])] * len(rows)
    return [
        r if isinstance(r, Unreadable) else as_image(np.frombuffer(r, np.uint8)[1:])
        for r in records
    ]
