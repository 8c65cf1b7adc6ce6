"""Linear filters as small matrix products on colour planes, (N, 3, H, W) float32.

A product is taken per plane, so its shape, and with it every rounding, is independent of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ace_ray.arrays import FloatArray, ImageArray, IntArray

# What acts along the rows axis, (H, H), and along the columns axis, (W, W)
Pair: TypeAlias = tuple[FloatArray, FloatArray]


def to_planes(images: ImageArray) -> FloatArray:
    """Return (N, 3, H, W) float32 grey levels."""
    return images.transpose(0, 3, 1, 2).astype(np.float32, order="C")


def to_images(planes: FloatArray) -> FloatArray:
    """Return planes seen as (N, H, W, 3)."""
    return planes.transpose(0, 2, 3, 1)


def fold(at: IntArray, size: int, mode: str) -> IntArray:
    """Fold positions into [0, size): nearest, mirror (edge once) or reflect (edge twice)."""
    if mode == "nearest":
        return np.clip(at, 0, size - 1)
    if mode == "mirror":
        return (size - 1) - np.abs(at % (2 * size - 2) - (size - 1))
    inside = at % (2 * size)
    return np.minimum(inside, 2 * size - 1 - inside)


def band(size: int, taps: FloatArray, mode: str) -> FloatArray:
    """Return the (size, size) matrix that correlates an axis with centred taps."""
    reach = len(taps) // 2
    at = np.arange(size)
    matrix = np.zeros((size, size))
    for offset, tap in zip(range(-reach, reach + 1), taps, strict=True):
        np.add.at(matrix, (at, fold(at + offset, size, mode)), tap)
    return matrix.astype(np.float32)


def gaussian_taps(sigma: float, reach: int) -> FloatArray:
    """Return 2 reach + 1 weights with sum one."""
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum())


@lru_cache(maxsize=64)
def _gaussian(size: int, sigma: float, mode: str, truncate: float) -> FloatArray:
    return band(size, gaussian_taps(sigma, int(truncate * sigma + 0.5)), mode)


def apply(pairs: Sequence[Pair], planes: FloatArray) -> FloatArray:
    """Return the sum over pairs of rows @ plane @ columns^T."""
    (rows, columns), *more = pairs
    total = rows @ planes @ columns.T
    for rows, columns in more:
        total += rows @ planes @ columns.T
    return np.asarray(total)


def smooth(
    planes: FloatArray,
    sigma: float | tuple[float, float],
    mode: str = "nearest",
    truncate: float = 4,
) -> FloatArray:
    """Blur the last two axes with a gaussian; the defaults are scikit-image's."""
    sigmas = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    h, w = planes.shape[-2:]
    rows, columns = (_gaussian(n, s, mode, truncate) for n, s in zip((h, w), sigmas, strict=True))
    return apply([(rows, columns)], planes)


def stencil(maps: FloatArray, kernel: Sequence[Sequence[float]]) -> FloatArray:
    """Correlate the last two axes with a 3 x 3 kernel, mirrored at the edges."""
    h, w = maps.shape[-2:]
    width: Any = [(0, 0)] * (maps.ndim - 2) + [(1, 1), (1, 1)]
    padded = np.pad(maps, width, mode="reflect")
    total = np.zeros_like(maps)
    for i, row in enumerate(kernel):
        for j, weight in enumerate(row):
            if weight:
                total += np.float32(weight) * padded[..., i : i + h, j : j + w]
    return total
