"""Water and mud on the lens: spatter."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ace_ray.arrays import BoolArray, FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.planes import smooth, stencil

_BOX = ((1 / 9,) * 3,) * 3
_RELIEF = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
_FAR = 20
_WEAK, _STRONG = 50, 150


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
    table = np.where(first < size, table, np.arange(256)).astype(np.float32)
    return table.ravel().take(flat).reshape(levels.shape)


def _distance(rim: BoolArray) -> FloatArray:
    """Return the distance to the nearest rim in (N, H, W), at most 20."""
    n, h, w = rim.shape
    along = np.full((n, h + 1, w), np.float32(_FAR))
    for y in range(h):  # to the nearest rim above
        along[:, y] = np.where(rim[:, y], 0, along[:, y - 1] + 1)
    for y in range(h - 2, -1, -1):  # or below, in the same column
        np.minimum(along[:, y], along[:, y + 1] + 1, out=along[:, y])
    squared = np.minimum(along[:, :h], _FAR) ** 2
    nearest = squared.copy()
    for x in range(1, min(_FAR, w)):
        other = squared + np.float32(x * x)
        np.minimum(nearest[:, :, x:], other[:, :, :-x], out=nearest[:, :, x:])
        np.minimum(nearest[:, :, :-x], other[:, :, x:], out=nearest[:, :, :-x])
    return np.asarray(np.sqrt(nearest))


def _edges(levels: FloatArray) -> BoolArray:
    """Find the edges of (N, H, W) whole grey levels with Canny's method, as OpenCV does.

    Sobel gradients in their L1 norm, thinned across the edge, between 50 and 150 kept only where
    they touch a stronger one.
    """
    n, h, w = levels.shape
    padded = np.pad(levels, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = padded[:, :, 2:] - padded[:, :, :-2]
    down = padded[:, 2:] - padded[:, :-2]
    gx = across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]
    gy = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    ax, ay = np.abs(gx), np.abs(gy)
    strength = np.zeros((n, h + 2, w + 2), np.float32)
    size = strength[:, 1:-1, 1:-1]
    np.add(ax, ay, out=size)

    def beside(y: int, x: int) -> FloatArray:
        return strength[:, 1 + y : 1 + y + h, 1 + x : 1 + x + w]

    tangent = np.float32(np.tan(np.pi / 8))
    flat, steep = ay < ax * tangent, ay > ax * (tangent + 2)
    rising = (size > beside(-1, -1)) & (size > beside(1, 1))
    falling = (size > beside(-1, 1)) & (size > beside(1, -1))
    peak = np.where((gx < 0) != (gy < 0), falling, rising)
    peak = np.where(steep, (size > beside(-1, 0)) & (size >= beside(1, 0)), peak)
    peak = np.where(flat, (size > beside(0, -1)) & (size >= beside(0, 1)), peak)
    peak &= size > _WEAK
    # Neighbours touch within an image, never along the batch.
    touching = np.zeros((3, 3, 3), bool)
    touching[1] = True
    labels, count = ndimage.label(peak, touching)
    kept = np.zeros(count + 1, bool)
    kept[labels[peak & (size > _STRONG)]] = True
    return np.asarray(kept.take(labels))


def _water(liquid: FloatArray, strength: float) -> FloatArray:
    """Return the brightness that drops of water add, (N, H, W)."""
    liquid = np.floor(liquid * 255)
    levels = _equalise(np.floor(stencil(_distance(_edges(liquid)), _BOX)))
    relief = np.rint(stencil(np.clip(stencil(levels, _RELIEF), 0, 255), _BOX))
    drops = liquid * relief
    peak = drops.max(axis=(1, 2), keepdims=True)
    return np.asarray(np.float32(strength) * drops / np.maximum(peak, 1))


def spatter(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Splash water (lightens) or mud (covers) on the lens."""
    mean, sigma, smoothing, threshold, drop, mud = c
    liquid = smooth(draws.normal(*images.shape[1:3]), smoothing)
    liquid = liquid * np.float32(sigma) + np.float32(mean)
    liquid[liquid < threshold] = 0
    if not mud:
        cover = _water(liquid, drop)[..., None]
        return np.asarray(images + cover * np.array([175, 238, 238], np.float32))
    cover = smooth((liquid > threshold).astype(np.float32), drop)
    cover[cover < 0.8] = 0
    cover = cover[..., None]
    return np.asarray(images * (1 - cover) + cover * np.array([63, 42, 20], np.float32))
