"""Corruptions of images: 19 types x 5 severities, in two published sets of constants.

Every function works on a whole batch and draws each sample's random numbers from that sample's
seed, so its pixels depend on its own seed alone, never on the batch or worker that produced it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from ace_ray.arrays import ImageArray
from ace_ray.benchmarks.corruptions import blur, digital, elastic, noise, weather
from ace_ray.benchmarks.corruptions.constants import CONSTANT_SETS, TABLES, ConstantSet
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.kind import Corruption
from ace_ray.benchmarks.corruptions.spatter import spatter
from ace_ray.benchmarks.corruptions.textures import DRAWN, find_textures, textures_identity
from ace_ray.errors import DataError, UsageError, nearest

__all__ = [
    "CONSTANT_SETS",
    "CORRUPTIONS",
    "DRAWN",
    "ENGINE",
    "PROTOCOL",
    "SEVERITIES",
    "ConstantSet",
    "Corruption",
    "constants",
    "corrupt",
    "find_textures",
    "textures_identity",
]

# Part of every content key: raise it whenever a corrupted pixel changes.
ENGINE: Final = "corruptions-3"
SEVERITIES: Final = (1, 2, 3, 4, 5)
CORRUPTIONS: Final[dict[str, Corruption]] = {
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "defocus_blur": blur.defocus_blur,
    "elastic_transform": elastic.elastic_transform,
    "fog": weather.fog,
    "frost": weather.frost,
    "gaussian_blur": blur.gaussian_blur,
    "gaussian_noise": noise.gaussian_noise,
    "glass_blur": blur.glass_blur,
    "impulse_noise": noise.impulse_noise,
    "jpeg_compression": digital.jpeg_compression,
    "motion_blur": blur.motion_blur,
    "pixelate": digital.pixelate,
    "saturate": digital.saturate,
    "shot_noise": noise.shot_noise,
    "snow": weather.snow,
    "spatter": spatter,
    "speckle_noise": noise.speckle_noise,
    "zoom_blur": blur.zoom_blur,
}
# The types of the paper's protocol (Sec. 4.1).
PROTOCOL: Final = tuple(
    name for name in CORRUPTIONS if name not in {"jpeg_compression", "motion_blur", "snow"}
)
# Images are corrupted in blocks of this many pixels, which fit in a core's cache.
_BLOCK_PIXELS = 2**16
# Compiled: these go through their images one by one, so that blocks would only cost a copy.
_ONE_BY_ONE: Final = frozenset({"glass_blur"})
_MASK: Final = 2**64 - 1


def constants(
    name: str, severity: int, constant_set: ConstantSet = "cifar10-c"
) -> tuple[float, ...]:
    """Return the published constants of a corruption at a severity."""
    if name not in CORRUPTIONS:
        raise UsageError(f"unknown corruption {name!r}; {nearest(name, CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise UsageError(f"severity of {name}: expected 1 to 5, got {severity!r}")
    if constant_set not in TABLES:
        raise UsageError(f"unknown constants {constant_set!r}; {nearest(constant_set, TABLES)}")
    value = TABLES[constant_set][name][severity - 1]
    return value if isinstance(value, tuple) else (value,)


def corrupt(
    images: ImageArray,
    name: str,
    severity: int,
    seeds: Sequence[int],
    *,
    constant_set: ConstantSet = "cifar10-c",
    textures: str = DRAWN,
) -> ImageArray:
    """Corrupt images.

    Args:
        images: (N, H, W, 3) uint8, at least 32 x 32.
        name: One of CORRUPTIONS.
        severity: 1 to 5.
        seeds: One 64-bit seed per sample.
        constant_set: Whose constants to use.
        textures: Where frost's ice comes from, as `find_textures` returns it.
    """
    c = constants(name, severity, constant_set)
    images = np.ascontiguousarray(images)
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise DataError(f"images: expected (N, H, W, 3) uint8, got {images.shape} {images.dtype}")
    n, h, w, _ = images.shape
    if min(h, w) < 32:
        raise DataError(f"images: expected at least 32 x 32 pixels, got {h} x {w}")
    if len(seeds) != n:
        raise DataError(f"seeds: expected one per image, {n}, got {len(seeds)}")
    function = partial(weather.frost, textures=textures) if name == "frost" else CORRUPTIONS[name]
    words = np.array([seed & _MASK for seed in seeds], np.uint64)
    if name in _ONE_BY_ONE:
        return np.asarray(function(images, c, Draws(words)))
    out = np.empty_like(images)
    block = max(1, _BLOCK_PIXELS // (h * w))
    for start in range(0, n, block):
        part = slice(start, start + block)
        levels = function(images[part], c, Draws(words[part]))
        if levels.dtype == np.uint8:
            out[part] = levels
            continue
        np.clip(levels, 0, 255, out=levels)
        # Truncation, not rounding: the published sets were made with a plain cast to uint8.
        # Channel by channel, because levels may be planes seen as images.
        for channel in range(3):
            out[part, ..., channel] = levels[..., channel]
    return out
