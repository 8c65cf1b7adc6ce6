"""Noise per value: gaussian, shot, impulse, speckle."""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import FloatArray
from ace_ray.benchmarks.corruptions.kind import Generators


def _normal(x: FloatArray, rngs: Generators) -> FloatArray:
    return np.stack([rng.standard_normal(x.shape[1:], np.float32) for rng in rngs])


def gaussian_noise(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Add normal noise."""
    return x + np.float32(c[0]) * _normal(x, rngs)


def speckle_noise(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Add normal noise in proportion to the value."""
    return x + x * np.float32(c[0]) * _normal(x, rngs)


def shot_noise(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Count photons."""
    counts = [rng.poisson(image * c[0]) for rng, image in zip(rngs, x, strict=True)]
    return np.stack(counts).astype(np.float32) / np.float32(c[0])


def impulse_noise(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Set a share of the values to 0 or 1, half each."""
    u = np.stack([rng.random(x.shape[1:], np.float32) for rng in rngs])
    salted = np.where(u < np.float32(c[0] / 2), np.float32(1), x)
    return np.where(u > np.float32(1 - c[0] / 2), np.float32(0), salted)
