"""The corruption family of the paper's protocol: 16 types x 5 severities (Sec. 4.1).

Every function works on a whole batch and takes one generator per sample, so a sample's pixels
depend on its own seed alone, never on the batch or worker that produced it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ace_ray.arrays import ImageArray
from ace_ray.benchmarks.corruptions import blur, digital, noise, weather
from ace_ray.benchmarks.corruptions.constants import CIFAR10_C
from ace_ray.benchmarks.corruptions.kind import Corruption
from ace_ray.errors import UsageError, nearest

# Part of every content key: raise it whenever a corrupted pixel changes.
ENGINE: Final = "corruptions-1"
SEVERITIES: Final = (1, 2, 3, 4, 5)
CORRUPTIONS: Final[dict[str, Corruption]] = {
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "defocus_blur": blur.defocus_blur,
    "elastic_transform": digital.elastic_transform,
    "fog": weather.fog,
    "frost": weather.frost,
    "gaussian_blur": blur.gaussian_blur,
    "gaussian_noise": noise.gaussian_noise,
    "glass_blur": blur.glass_blur,
    "impulse_noise": noise.impulse_noise,
    "pixelate": digital.pixelate,
    "saturate": digital.saturate,
    "shot_noise": noise.shot_noise,
    "spatter": weather.spatter,
    "speckle_noise": noise.speckle_noise,
    "zoom_blur": blur.zoom_blur,
}


def constants(name: str, severity: int) -> tuple[float, ...]:
    """Return the published constants of a corruption at a severity (32-pixel set)."""
    if name not in CORRUPTIONS:
        raise UsageError(f"unknown corruption {name!r}; {nearest(name, CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise UsageError(f"severity of {name}: expected 1 to 5, got {severity!r}")
    value = CIFAR10_C[name][severity - 1]
    return value if isinstance(value, tuple) else (value,)


def corrupt(images: ImageArray, name: str, severity: int, seeds: Sequence[int]) -> ImageArray:
    """Corrupt (N, H, W, 3) uint8 images; `seeds` holds one 64-bit seed per sample."""
    c = constants(name, severity)
    rngs = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
    x = np.asarray(images, np.float32) / 255
    out = CORRUPTIONS[name](x, c, rngs)
    # Truncation, not rounding: the published sets were made with a plain cast to uint8.
    return (np.clip(out, 0, 1) * np.float32(255)).astype(np.uint8)
