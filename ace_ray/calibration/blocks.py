"""Row blocks that fit the processor's cache: no temporary of the size of the logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import DTypeLike

from ace_ray.arrays import FloatArray

# 256 kB of float32 per block: large enough to amortise a numpy call, small enough that a few
# blocks stay in the L2 cache.
_ELEMENTS: Final = 1 << 16


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Cut n rows of `width` values into consecutive blocks."""
    rows = max(1, _ELEMENTS // width)
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def working_dtype(logits: FloatArray) -> type[np.float32] | type[np.float64]:
    """Return the precision to work in: single for large single-precision tables, else double.

    numpy's float32 exp is more than ten times faster than float64's. The rounding of a sum over
    many rows averages out: a temperature is good to about 1e-7 either way (tested).
    """
    large = logits.size > 1 << 21
    return np.float32 if large and logits.dtype.itemsize <= 4 else np.float64


def block_of(logits: FloatArray, rows: slice, dtype: DTypeLike) -> FloatArray:
    """Return a writable copy of a block in the working precision."""
    return np.array(logits[rows], dtype=dtype, order="C")
