"""Blurs: gaussian, defocus, glass, motion, zoom."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import ndimage

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.planes import (
    Pair,
    apply,
    band,
    gaussian_taps,
    smooth,
    to_images,
    to_planes,
)


def gaussian_blur(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Blur with a gaussian."""
    return to_images(smooth(to_planes(images), c[0]))


def disk(radius: float, alias_sigma: float) -> FloatArray:
    """Return an anti-aliased disk of weight one, cut off as the published code does."""
    reach, alias_reach = (8, 1) if radius <= 8 else (int(radius), 2)
    line = np.arange(-reach, reach + 1)
    inside = (line[:, None] ** 2 + line[None, :] ** 2 <= radius**2).astype(float)
    taps = gaussian_taps(alias_sigma, alias_reach)
    once = ndimage.correlate1d(inside / inside.sum(), taps, 0, mode="mirror")
    return np.asarray(ndimage.correlate1d(once, taps, 1, mode="mirror"))


@lru_cache(maxsize=16)
def _disk_pairs(h: int, w: int, radius: float, alias_sigma: float) -> list[Pair]:
    """Split the disk into products of a column and a row: few, as few of its rows differ."""
    weight, vectors = np.linalg.eigh(disk(radius, alias_sigma))
    used = np.abs(weight) > 1e-7
    return [
        (band(h, s * v, "mirror"), band(w, v, "mirror"))
        for s, v in zip(weight[used], vectors.T[used], strict=True)
    ]


def defocus_blur(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Blur with a disk."""
    h, w = images.shape[1:3]
    return to_images(apply(_disk_pairs(h, w, c[0], c[1]), to_planes(images)))


def glass_blur(images: ImageArray, c: tuple[float, ...], draws: Draws) -> ImageArray:
    """Blur, scatter pixels among their neighbours, blur."""
    # The compiler takes a while to load, and no other corruption needs it.
    from ace_ray.benchmarks.corruptions.glass import blur_and_scatter

    return blur_and_scatter(images, c[0], int(c[1]), int(c[2]), draws)


def smear(layers: FloatArray, radius: float, sigma: float, angles: FloatArray) -> FloatArray:
    """Drag (N, H, W, ...) layers along a line of 2 radius + 1 pixels, edges repeated.

    Args:
        layers: What to blur.
        radius: Half the length of the line.
        sigma: Of the half gaussian that weighs it.
        angles: Direction by sample, in degrees.
    """
    h, w = layers.shape[1:3]
    along = np.arange(2 * int(radius) + 1)
    weight = np.exp(-0.5 * (along / sigma) ** 2)
    weight = (weight / weight.sum()).astype(np.float32)
    out = np.zeros_like(layers)
    for layer, angle, total in zip(layers, np.deg2rad(angles.astype(float)), out, strict=True):
        dy = -np.ceil(along * np.sin(angle) - 0.5).astype(int)
        dx = -np.ceil(along * np.cos(angle) - 0.5).astype(int)
        # A line longer than the image stops at its size and so loses weight, as published.
        count = int(np.argmax(np.append((np.abs(dy) >= h) | (np.abs(dx) >= w), True)))
        dy, dx = dy[:count], dx[:count]
        top, left = max(dy.max(), 0), max(dx.max(), 0)
        edges = [(top, max(-dy.min(), 0)), (left, max(-dx.min(), 0)), (0, 0)]
        padded = np.pad(layer, edges[: layer.ndim], mode="edge")
        for y, x, k in zip((top - dy).tolist(), (left - dx).tolist(), weight, strict=False):
            total += k * padded[y : y + h, x : x + w]
    return out


def motion_blur(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Drag the image along a line."""
    angles = draws.uniform(-45, 45)
    return smear(images.astype(np.float32), c[0], c[1], angles)


@lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> FloatArray:
    """Return the (size, size) linear map that crops the middle and stretches it back."""
    crop = int(np.ceil(size / factor))
    stretched = round(crop * factor)
    at = np.arange(size) * (crop - 1) / (stretched - 1)
    lower = np.minimum(at.astype(int), crop - 2)
    first = (size - crop) // 2 + lower
    matrix = np.zeros((size, size), np.float32)
    matrix[np.arange(size), first] = 1 - (at - lower)
    matrix[np.arange(size), first + 1] += at - lower
    return matrix


def zoom_blur(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Average the image with enlarged copies of itself."""
    h, w = images.shape[1:3]
    planes = to_planes(images)
    factors = np.arange(1, c[0], c[1]).tolist()
    total = apply([(zoom_matrix(h, f), zoom_matrix(w, f)) for f in factors], planes)
    total += planes
    total /= np.float32(len(factors) + 1)
    return to_images(total)
