"""Layers in front of the lens: fog, frost, spatter."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ace_ray.arrays import FloatArray
from ace_ray.benchmarks.corruptions.blur import smooth
from ace_ray.benchmarks.corruptions.kind import Generators


def plasma(rngs: Generators, side: int, decay: float) -> FloatArray:
    """Return (N, side, side) diamond-square height maps in [0, 1]; side is a power of two."""
    height = np.zeros((len(rngs), side, side))
    step, wibble = side, 100.0

    def jittered(total: FloatArray) -> FloatArray:
        noise = np.stack([rng.uniform(-wibble, wibble, total.shape[1:]) for rng in rngs])
        return total / 4 + wibble * noise

    while step >= 2:
        half = step // 2
        corners = height[:, ::step, ::step]
        edge = corners + np.roll(corners, -1, 1)
        height[:, half::step, half::step] = jittered(edge + np.roll(edge, -1, 2))
        middle = height[:, half::step, half::step]
        across = middle + np.roll(middle, 1, 1) + corners + np.roll(corners, -1, 2)
        height[:, ::step, half::step] = jittered(across)
        down = middle + np.roll(middle, 1, 2) + corners + np.roll(corners, -1, 1)
        height[:, half::step, ::step] = jittered(down)
        step, wibble = half, wibble / decay
    height -= height.min(axis=(1, 2), keepdims=True)
    return np.asarray(height / height.max(axis=(1, 2), keepdims=True))


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()


def fog(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Add a bright fractal, then keep the image's range."""
    side = x.shape[1]
    veil = plasma(rngs, _power_of_two(side), c[1])[:, :side, :side, None]
    peak = x.max(axis=(1, 2, 3), keepdims=True)
    return np.asarray((x + c[0] * veil) * peak / (peak + c[0]), np.float32)


def frost(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Lay ice over the image. The ice is drawn: ridges of fractals, bluish white."""
    side = x.shape[1]
    size = _power_of_two(side)
    coarse, fine = plasma(rngs, size, 2.0), plasma(rngs, size, 1.5)
    ridges = (1 - np.abs(2 * coarse - 1)) ** 3 * 0.6 + (1 - np.abs(2 * fine - 1)) ** 2 * 0.5
    ice = ridges[:, :side, :side, None] * np.array([0.86, 0.95, 1.0])
    return np.asarray(c[0] * x + c[1] * np.minimum(ice, 1), np.float32)


def _equalise(levels: FloatArray) -> FloatArray:
    """Histogram-equalise each (H, W) map of whole numbers 0 to 255."""
    n, size = len(levels), levels[0].size
    index = levels.astype(np.intp).reshape(n, size)
    flat = index + 256 * np.arange(n)[:, None]
    histogram = np.bincount(flat.ravel(), minlength=256 * n).reshape(n, 256)
    below = histogram.cumsum(axis=1)
    first = np.take_along_axis(below, index.min(axis=1, keepdims=True), axis=1)
    scale = 255 / np.maximum(size - first, 1)
    table = np.rint((below - first) * scale)
    # A flat map has nothing to equalise and stays as it is.
    table = np.where(first < size, table, np.arange(256))
    return np.take_along_axis(table, index, axis=1).reshape(levels.shape)


def _box(levels: FloatArray) -> FloatArray:
    return np.asarray(ndimage.uniform_filter(levels, (0, 3, 3), mode="mirror"))


def _water(liquid: FloatArray, strength: float) -> FloatArray:
    """Return the brightness that drops of water add, (N, H, W)."""
    wet = liquid > 0
    rim = wet & ~ndimage.binary_erosion(wet, np.ones((1, 3, 3)), border_value=1)
    # The large step along the batch keeps each image's distances to its own rims.
    distance = ndimage.distance_transform_edt(~rim, sampling=(1e6, 1, 1))
    levels = _equalise(np.floor(_box(np.minimum(distance, 20))))
    kernel = np.array([[[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]], float)
    relief = _box(np.clip(ndimage.correlate(levels, kernel, mode="mirror"), 0, 255))
    drops = liquid * relief
    peak = drops.max(axis=(1, 2), keepdims=True)
    return np.asarray(strength * np.divide(drops, peak, out=np.zeros_like(drops), where=peak > 0))


def spatter(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Splash water (lightens) or mud (covers) on the lens."""
    mean, sigma, smoothing, threshold, drop, mud = c
    noise = np.stack([rng.normal(mean, sigma, x.shape[1:3]) for rng in rngs])
    liquid = smooth(noise, smoothing)
    liquid[liquid < threshold] = 0
    if not mud:
        colour = np.array([175, 238, 238]) / 255
        return np.asarray(x + _water(liquid, drop)[..., None] * colour, np.float32)
    cover = smooth((liquid > threshold).astype(np.float32), drop)
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    colour = np.array([63, 42, 20]) / 255
    return np.asarray(x * (1 - cover) + colour * cover, np.float32)
