"""Layers in front of the lens: fog, frost, snow."""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.blur import smear, zoom_matrix
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.textures import DRAWN, load_textures


def plasma(draws: Draws, side: int, decay: float) -> FloatArray:
    """Return (N, side, side) diamond-square height maps in [0, 1]; side is a power of two."""
    height = np.zeros((draws.samples, side, side), np.float32)
    step, wibble = side, 100.0

    def jittered(total: FloatArray) -> FloatArray:
        noise = draws.uniform(-(wibble**2), wibble**2, *total.shape[1:])
        noise += np.float32(0.25) * total
        return noise

    while step >= 2:
        half = step // 2
        corners = np.ascontiguousarray(height[:, ::step, ::step])
        edge = corners + np.roll(corners, -1, 1)
        middle = jittered(edge + np.roll(edge, -1, 2))
        height[:, half::step, half::step] = middle
        across = middle + np.roll(middle, 1, 1) + corners + np.roll(corners, -1, 2)
        height[:, ::step, half::step] = jittered(across)
        height[:, half::step, ::step] = jittered(middle + np.roll(middle, 1, 2) + edge)
        step, wibble = half, wibble / decay
    height -= height.min(axis=(1, 2), keepdims=True)
    height /= height.max(axis=(1, 2), keepdims=True)
    return height


def _power_of_two(images: ImageArray) -> int:
    h, w = images.shape[1:3]
    return int(1 << (max(h, w) - 1).bit_length())


def fog(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Add a bright fractal, then keep the image's range."""
    n, h, w, _ = images.shape
    veil = plasma(draws, _power_of_two(images), c[1])[:, :h, :w]
    peak = images.reshape(n, -1).max(axis=1)[:, None, None].astype(np.float32)
    share = peak / (peak + np.float32(255 * c[0]))
    out = images * share[..., None]
    out += (veil * (np.float32(255 * c[0]) * share))[..., None]
    return np.asarray(out)


def _drawn_ice(images: ImageArray, draws: Draws) -> FloatArray:
    """Draw ice where there are no photographs: ridges of fractals, bluish white."""
    h, w = images.shape[1:3]
    size = _power_of_two(images)
    coarse, fine = plasma(draws, size, 2.0), plasma(draws, size, 1.5)
    ridges = (1 - np.abs(2 * coarse - 1)) ** 3 * np.float32(0.6)
    ridges += (1 - np.abs(2 * fine - 1)) ** 2 * np.float32(0.5)
    ice = ridges[:, :h, :w, None] * np.array([0.86, 0.95, 1.0], np.float32)
    return np.minimum(ice, 1) * np.float32(255)


def frost(
    images: ImageArray, c: tuple[float, ...], draws: Draws, textures: str = DRAWN
) -> FloatArray:
    """Lay ice over the image: a random part of a random photograph."""
    h, w = images.shape[1:3]
    if textures == DRAWN:
        out = _drawn_ice(images, draws)
    else:
        pictures = load_textures(textures, c[2], h, w)[: int(c[3])]
        out = np.empty(images.shape, np.float32)
        for to, (which, down, right) in zip(out, draws.uniform(0, 1, 3).tolist(), strict=True):
            picture = pictures[int(which * len(pictures))]
            top, left = int(down * (len(picture) - h)), int(right * (picture.shape[1] - w))
            to[:] = picture[top : top + h, left : left + w]
    out *= np.float32(c[1])
    out += np.float32(c[0]) * images
    return out


def snow(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Bleach the image and let flakes fall across it, once each way."""
    mean, sigma, zoom, threshold, radius, smear_sigma, weight = c
    h, w = images.shape[1:3]
    flakes: FloatArray = zoom_matrix(h, zoom) @ draws.normal(h, w) @ zoom_matrix(w, zoom).T
    # Interpolation weights have sum one, so the mean can be added afterwards.
    flakes = flakes * np.float32(sigma) + np.float32(mean)
    flakes[flakes < threshold] = 0
    np.minimum(flakes, 1, out=flakes)
    flakes = smear(flakes, radius, smear_sigma, draws.uniform(-135, -45))
    flakes = np.rint(flakes * np.float32(255))
    flakes += flakes[:, ::-1, ::-1].copy()
    x = images.astype(np.float32)
    grey = x @ np.array([0.299, 0.587, 0.114], np.float32)
    bleached = np.maximum(x, (grey * np.float32(1.5) + np.float32(127.5))[..., None])
    x *= np.float32(weight)
    x += np.float32(1 - weight) * bleached
    x += flakes[..., None]
    return x
