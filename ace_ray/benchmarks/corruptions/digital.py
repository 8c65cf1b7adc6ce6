"""Colour and geometry: brightness, contrast, saturate, pixelate, elastic_transform."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ace_ray.arrays import FloatArray
from ace_ray.benchmarks.corruptions.blur import smooth
from ace_ray.benchmarks.corruptions.kind import Generators


def brightness(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Raise V of HSV; at fixed hue and saturation the colour is proportional to V."""
    value = x.max(axis=-1, keepdims=True)
    raised = np.minimum(value + np.float32(c[0]), 1)
    scale = np.divide(raised, value, out=np.zeros_like(value), where=value > 0)
    return np.asarray(np.where(value > 0, x * scale, raised))


def contrast(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Shrink every value towards its channel's mean."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    return np.asarray((x - mean) * np.float32(c[0]) + mean)


def saturate(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Scale S of HSV; a channel lies at V (1 - S f), and f depends on the hue alone."""
    value = x.max(axis=-1, keepdims=True)
    drop = value - x
    spread = drop.max(axis=-1, keepdims=True)
    grey_f = np.array([0, 1, 1], np.float32)  # grey has hue 0, red
    f = np.divide(drop, spread, out=np.broadcast_to(grey_f, x.shape).copy(), where=spread > 0)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    scaled = np.clip(saturation * np.float32(c[0]) + np.float32(c[1]), 0, 1)
    return np.asarray(value * (1 - scaled * f))


def pixelate(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Shrink and enlarge with a box filter."""
    side = x.shape[1]
    small = (int(side * c[0]), int(side * c[0]))
    out = []
    for image in np.rint(x * 255).astype(np.uint8):
        shrunk = Image.fromarray(image).resize(small, Image.Resampling.BOX)
        out.append(np.asarray(shrunk.resize((side, side), Image.Resampling.BOX)))
    # The half keeps the final cast to uint8 from losing a level.
    return (np.stack(out).astype(np.float32) + np.float32(0.25)) / 255


def _reflect(at: FloatArray, size: int) -> FloatArray:
    """Fold coordinates into [0, size - 1], mirrored at the centre of the edge pixels."""
    period = 2 * (size - 1)
    return np.asarray((size - 1) - np.abs(at % period - (size - 1)))


def _sample(x: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Read (N, H, W, 3) at (N, H, W) positions, bilinear, mirrored outside."""
    n, h, w, channels = x.shape
    rows, columns = _reflect(rows, h), _reflect(columns, w)
    top = np.minimum(rows.astype(int), h - 2)
    left = np.minimum(columns.astype(int), w - 2)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    flat = x.reshape(n * h * w, channels)
    corner = np.arange(n)[:, None, None] * (h * w) + top * w + left
    upper = flat[corner] * (1 - right) + flat[corner + 1] * right
    lower = flat[corner + w] * (1 - right) + flat[corner + w + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def elastic_transform(x: FloatArray, c: tuple[float, ...], rngs: Generators) -> FloatArray:
    """Move three corners at random (an affine map), then every pixel a little."""
    n, side = x.shape[:2]
    displacement, smoothing, jitter = (side * v for v in c)
    centre, arm = side // 2, side // 3
    source = np.array(
        [
            [centre + arm, centre + arm],
            [centre + arm, centre - arm],
            [centre - arm, centre - arm],
        ],
        float,
    )
    moved = np.stack([source + rng.uniform(-jitter, jitter, source.shape) for rng in rngs])
    # The inverse map: output position -> source position, from three point pairs (x, y).
    homogeneous = np.concatenate([moved, np.ones((n, 3, 1))], axis=2)
    back = np.linalg.solve(homogeneous, np.broadcast_to(source, (n, 3, 2)))
    rows, columns = np.meshgrid(np.arange(float(side)), np.arange(float(side)), indexing="ij")
    grid = np.stack([columns, rows, np.ones_like(rows)], axis=-1).reshape(1, -1, 3)
    at = (grid @ back).reshape(n, side, side, 2)
    x = _sample(x, at[..., 1], at[..., 0])
    if displacement == 0:
        return x
    push = np.stack([rng.uniform(-1, 1, (2, side, side)) for rng in rngs])
    dx, dy = (displacement * smooth(push[:, k], smoothing, "reflect", 3) for k in (0, 1))
    return _sample(x, rows + dy, columns + dx)
