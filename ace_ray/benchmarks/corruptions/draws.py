"""Random numbers for a whole batch at once, each sample's from its own seed.

The generator is SplitMix64 (Steele, Lea & Flood, 2014), which is counter-based: the i-th word of a
sample is a hash of its seed and i. No state means no loop over samples, and no way for a sample's
numbers to depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ace_ray.arrays import FloatArray

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
MIXERS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit words in place."""
    for shift, factor in MIXERS:
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


class Draws:
    """The random numbers of a batch; successive calls give successive numbers.

    Args:
        seeds: One per sample, below 2^64.

    Attributes:
        keys: (N,) hashed seeds; the i-th word of a sample is the hash of its key + i GOLDEN.
    """

    def __init__(self, seeds: Sequence[int] | NDArray[np.uint64]) -> None:
        self.keys = _mix(np.asarray(seeds, np.uint64) + GOLDEN)
        self._used = 0

    @property
    def samples(self) -> int:
        """The number of samples, N."""
        return len(self.keys)

    def bits(self, dtype: type[np.unsignedinteger[Any]], *shape: int) -> NDArray[Any]:
        """Return (N, *shape) unsigned integers of random bits."""
        count = prod(shape)
        words = -(-count * np.dtype(dtype).itemsize // 8)
        steps = np.arange(self._used + 1, self._used + words + 1, dtype=np.uint64) * GOLDEN
        self._used += words
        drawn = _mix(self.keys[:, None] + steps).view(dtype)
        return drawn[:, :count].reshape(len(self.keys), *shape)

    def uniform(self, low: float, high: float, *shape: int) -> FloatArray:
        """Return (N, *shape) float32 values in (low, high), in steps of 2^-24 of the width."""
        # Signed integers convert faster; the half keeps clear of zero, for logarithms.
        whole = (self.bits(np.uint32, *shape) >> np.uint32(8)).view(np.int32)
        out = whole.astype(np.float32)
        out += np.float32(0.5)
        out *= np.float32((high - low) * 2.0**-24)
        out += np.float32(low)
        return out

    def normal(self, *shape: int) -> FloatArray:
        """Return (N, *shape) standard normal float32 values (Box & Muller, 1958)."""
        count = prod(shape)
        half = -(-count // 2)
        radius = self.uniform(0, 1, half)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        # A uniform number that rounds up to one has a logarithm of zero: never negative here.
        np.sqrt(radius, out=radius)
        angle = self.uniform(-np.pi, np.pi, half)
        out = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return out[:, :count].reshape(len(out), *shape)
