"""Noise per value: gaussian, shot, impulse, speckle."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from ace_ray.arrays import FloatArray, ImageArray, IntArray
from ace_ray.benchmarks.corruptions.draws import Draws

_BUCKETS_LOG2 = 12


def gaussian_noise(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Add normal noise."""
    noise = draws.normal(*images.shape[1:])
    noise *= np.float32(255 * c[0])
    noise += images
    return noise


def speckle_noise(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Add normal noise in proportion to the value."""
    noise = draws.normal(*images.shape[1:])
    noise *= np.float32(c[0])
    noise += 1
    noise *= images
    return noise


def impulse_noise(images: ImageArray, c: tuple[float, ...], draws: Draws) -> ImageArray:
    """Set a share of the values to 0 or 255, half each."""
    bits = draws.bits(np.uint32, *images.shape[1:])
    half = round(c[0] / 2 * 2**32)
    out = images.copy()
    out[bits < np.uint32(half)] = 255
    out[bits >= np.uint32(2**32 - half)] = 0
    return out


class _Counts(NamedTuple):
    """Photon counts by grey level: the inverse of the Poisson distribution, tabulated."""

    least: IntArray  # (256 * buckets), the count at the lower end of a bucket of the unit interval
    split: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # whether the bucket has more than one
    cumulative: FloatArray  # (256, counts)


@lru_cache(maxsize=10)
def _counts(photons: float) -> _Counts:
    most = int(photons + 12 * np.sqrt(photons) + 12)
    rate = np.arange(256)[:, None] * (photons / 255)
    cumulative = special.pdtr(np.arange(most), rate)
    buckets = 1 << _BUCKETS_LOG2
    bucket = np.minimum((cumulative * buckets).astype(np.intp), buckets - 1)
    flat = (np.arange(256)[:, None] * buckets + bucket).ravel()
    steps = np.bincount(flat, minlength=256 * buckets).reshape(256, buckets)
    least = steps.cumsum(axis=1) - steps
    return _Counts(least.astype(np.int16).ravel(), (steps > 0).ravel(), cumulative)


def shot_noise(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Count photons: a Poisson number per value, exact to the 32 bits that choose it."""
    counts = _counts(c[0])
    bits = draws.bits(np.uint32, *images.shape[1:]).ravel()
    level = images.ravel().astype(np.intp)
    bucket = (level << _BUCKETS_LOG2) + (bits >> np.uint32(32 - _BUCKETS_LOG2))
    found = counts.least.take(bucket)
    at = np.flatnonzero(counts.split.take(bucket))
    u = (bits[at] + 0.5) * 2.0**-32
    level, exact = level[at], found[at].astype(np.intp)
    last = counts.cumulative.shape[1] - 1
    active = np.arange(len(at))
    while active.size:
        beyond = (u[active] > counts.cumulative[level[active], exact[active]]) & (
            exact[active] < last
        )
        active = active[beyond]
        exact[active] += 1
    found[at] = exact
    return (found.reshape(images.shape) * np.float32(255 / c[0])).astype(np.float32)
