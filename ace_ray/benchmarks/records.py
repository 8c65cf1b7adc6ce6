"""Records of one size in one file: read only those asked for, in as few reads as possible."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pyarrow import NativeFile

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.split import Unreadable
from ace_ray.errors import DataError

_HEADER_BYTES = 4096


class Span(NamedTuple):
    """A run of consecutive records, and where they belong in the answer."""

    first: int
    at: list[int]


def spans(numbers: Sequence[int]) -> list[Span]:
    """Return numbers as runs of consecutive ones."""
    found: list[Span] = []
    for position, number in enumerate(numbers):
        if found and number == found[-1].first + len(found[-1].at):
            found[-1].at.append(position)
        else:
            found.append(Span(number, [position]))
    return found


def read_records(
    file: NativeFile, start: int, size: int, numbers: Sequence[int]
) -> list[bytes | Unreadable]:
    """Return records by number; one that cannot be read whole says why.

    Args:
        file: Open for random access.
        start: Bytes before the first record.
        size: Bytes of a record.
        numbers: Which records.
    """
    found: list[bytes | Unreadable] = [Unreadable("the file ends before it")] * len(numbers)
    for first, at in spans(numbers):
        try:
            data = file.read_at(size * len(at), start + first * size)
        except OSError as error:
            data = b""
            for position in at:
                found[position] = Unreadable(f"cannot be read: {roots.why(error)}")
        for i, position in enumerate(at[: len(data) // size]):
            found[position] = data[i * size : (i + 1) * size]
    return found


class Header(NamedTuple):
    """What a .npy file says of itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    start: int  # bytes before the first value


def npy_header(root: str, path: str) -> Header:
    """Return the header of a .npy file without reading its values.

    Raises:
        DataError: If it is none, its rows do not follow one another, or it is cut short.
    """
    where = f"{root}/{path}"
    try:
        with roots.open_file(root, path) as file:
            there = file.size()
            head = io.BytesIO(file.read_at(min(_HEADER_BYTES, there), 0))
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {roots.why(error)}; copy it again") from error
    try:
        version = np.lib.format.read_magic(head)
        reader = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = reader(head)
    except ValueError as error:
        raise DataError(f"{where}: not a .npy file: {error}; copy it again") from error
    if fortran or dtype.hasobject:
        raise DataError(f"{where}: expected plain values in C order; save it again with numpy.save")
    needed = head.tell() + int(np.prod(shape)) * dtype.itemsize
    if there != needed:
        raise DataError(f"{where}: {there:,} bytes, expected {needed:,}; copy it again")
    return Header(shape, dtype, head.tell())
