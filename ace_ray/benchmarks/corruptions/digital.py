"""Colour and coding: brightness, contrast, saturate, pixelate, jpeg_compression."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.planes import to_images, to_planes


def _value(planes: FloatArray) -> FloatArray:
    """Return V of HSV, (N, 1, H, W)."""
    return np.maximum(np.maximum(planes[:, :1], planes[:, 1:2]), planes[:, 2:])


def brightness(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Raise V of HSV; at fixed hue and saturation the colour is proportional to V."""
    planes = to_planes(images)
    value = _value(planes)
    raised = np.minimum(value + np.float32(255 * c[0]), np.float32(255))
    planes *= raised / np.maximum(value, 1)
    planes += np.where(value == 0, raised, np.float32(0))  # black has no colour to scale
    return to_images(planes)


def contrast(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Shrink every value towards its channel's mean."""
    planes = to_planes(images)
    # Sums of whole numbers are exact in double precision, in any order.
    mean = planes.mean(axis=(2, 3), keepdims=True, dtype=np.float64)
    planes *= np.float32(c[0])
    planes += ((1 - c[0]) * mean).astype(np.float32)
    return to_images(planes)


def saturate(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Scale S of HSV; a channel lies at V (1 - S f), and f depends on the hue alone."""
    planes = to_planes(images)
    value = _value(planes)
    drop = value - planes
    spread = _value(drop)
    scaled = spread / np.maximum(value, 1) * np.float32(c[0]) + np.float32(c[1])
    np.minimum(scaled, 1, out=scaled)
    scaled *= value
    drop *= scaled / np.maximum(spread, 1)
    if c[1]:  # grey has hue 0, red, once it has saturation
        drop[:, 1:] += np.where(spread == 0, scaled, np.float32(0))
    return to_images(value - drop)


def pixelate(images: ImageArray, c: tuple[float, ...], draws: Draws) -> ImageArray:
    """Shrink with a box filter, then repeat pixels."""
    h, w = images.shape[1:3]
    small = (int(w * c[0]), int(h * c[0]))
    out = np.empty_like(images)
    for image, to in zip(images, out, strict=True):
        shrunk = Image.fromarray(image).resize(small, Image.Resampling.BOX)
        to[:] = shrunk.resize((w, h), Image.Resampling.BOX)
    return out


def jpeg_compression(images: ImageArray, c: tuple[float, ...], draws: Draws) -> ImageArray:
    """Write and read a JPEG file."""
    out = np.empty_like(images)
    for image, to in zip(images, out, strict=True):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=int(c[0]))
        to[:] = Image.open(file)
    return out
