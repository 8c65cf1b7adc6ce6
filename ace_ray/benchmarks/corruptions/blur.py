"""Blurs: gaussian, defocus, glass, zoom."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ace_ray.arrays import FloatArray
from ace_ray.benchmarks.corruptions.kind import Generators


def smooth(x: FloatArray, sigma: float, mode: str = "nearest", truncate: float = 4) -> FloatArray:
    """Blur axes 1 and 2 of a batch with a gaussian; the defaults are scikit-image's."""
    sigmas = (0.0, sigma, sigma) + (0.0,) * (x.ndim - 3)
    return np.asarray(ndimage.gaussian_filter(x, sigmas, mode=mode, truncate=truncate))


def gaussian_blur(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Blur with a gaussian."""
    return smooth(x, c[0])


def _disk(radius: float, alias_sigma: float) -> FloatArray:
    """Return an anti-aliased disk of weight one (radius up to 8)."""
    line = np.arange(-8, 9)
    disk = (line[:, None] ** 2 + line[None, :] ** 2 <= radius**2).astype(np.float32)
    tap = np.exp(-0.5 * (np.arange(-1, 2) / alias_sigma) ** 2)
    tap /= tap.sum()
    disk = ndimage.correlate1d(ndimage.correlate1d(disk / disk.sum(), tap, 0), tap, 1)
    reach = int(np.abs(line[disk.any(axis=0)]).max())
    return np.asarray(disk[8 - reach : 9 + reach, 8 - reach : 9 + reach])


def defocus_blur(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Blur with a disk."""
    kernel = _disk(c[0], c[1])[None, :, :, None]
    return np.asarray(ndimage.correlate(x, kernel, mode="mirror"))


def glass_blur(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Blur, scatter pixels among their neighbours, blur.

    The published sets were made by code that means to swap two pixels but, through views,
    copies the neighbour; so do we.
    """
    sigma, reach, passes = c[0], int(c[1]), int(c[2])
    out = np.floor(smooth(x, sigma) * 255) / 255
    side = x.shape[1]
    positions = range(side - reach, reach, -1)
    jitter = np.stack(
        [rng.integers(-reach, reach, (passes, len(positions), len(positions), 2)) for rng in rngs]
    )
    each = np.arange(len(x))
    for p in range(passes):
        for i, h in enumerate(positions):
            for j, w in enumerate(positions):
                shift = jitter[:, p, i, j]
                # h can be `side - reach`, one past the last row that a shift of +reach may reach
                out[:, h, w] = out[each, h + shift[:, 0], w + shift[:, 1]]
    return smooth(out.astype(np.float32), sigma)


def _zoom_matrix(side: int, factor: float) -> FloatArray:
    """Return the (side, side) linear map that crops the middle and stretches it back."""
    crop = int(np.ceil(side / factor))
    size = round(crop * factor)
    top, trim = (side - crop) // 2, (size - side) // 2
    at = (np.arange(side) + trim) * (crop - 1) / (size - 1)
    lower = np.minimum(at.astype(int), crop - 2)
    matrix = np.zeros((side, side), np.float32)
    matrix[np.arange(side), top + lower] = 1 - (at - lower)
    matrix[np.arange(side), top + lower + 1] += at - lower
    return matrix


def zoom_blur(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Average the image with enlarged copies of itself."""
    side = x.shape[1]
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    total = planes.copy()
    factors = np.arange(1, c[0], 0.01)
    for factor in factors:
        matrix = _zoom_matrix(side, factor)
        total += matrix @ planes @ matrix.T
    return np.asarray(total.transpose(0, 2, 3, 1) / np.float32(len(factors) + 1))
