"""Geometry: elastic_transform."""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.draws import Draws
from ace_ray.benchmarks.corruptions.planes import smooth


def _mirror(at: FloatArray, size: int) -> FloatArray:
    """Fold coordinates into [0, size - 1], mirrored at the centres of the edge pixels."""
    return np.asarray((size - 1) - np.abs(at % (2 * size - 2) - (size - 1)))


def _reflect(at: FloatArray, size: int) -> FloatArray:
    """Fold coordinates into [0, size - 1], mirrored at the outer borders of the edge pixels."""
    inside = (at + np.float32(0.5)) % (2 * size)
    inside = np.minimum(inside, 2 * size - inside) - np.float32(0.5)
    return np.asarray(np.clip(inside, 0, size - 1))


def _sample(x: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Read (N, H, W, 3) at (N, H, W) positions inside the image, bilinear."""
    n, h, w, channels = x.shape
    top = np.minimum(rows.astype(np.int32), h - 2)
    left = np.minimum(columns.astype(np.int32), w - 2)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    flat = x.reshape(n * h * w, channels)
    corner = np.arange(n)[:, None, None] * (h * w) + (top * w + left)
    upper = flat.take(corner, axis=0)
    upper += (flat.take(corner + 1, axis=0) - upper) * right
    lower = flat.take(corner + w, axis=0)
    lower += (flat.take(corner + (w + 1), axis=0) - lower) * right
    upper += (lower - upper) * down
    return np.asarray(upper)


def _tilt(x: FloatArray, jitter: float, draws: Draws) -> FloatArray:
    """Move three points at random and the image with them: an affine map."""
    n, h, w, _ = x.shape
    arm = min(h, w) // 3
    right, left, low, high = w // 2 + arm, w // 2 - arm, h // 2 + arm, h // 2 - arm
    source = np.array([[right, low], [right, high], [left, high]], float)
    moved = source + draws.uniform(-jitter, jitter, 3, 2)
    # The inverse map: output position -> source position, from three point pairs (x, y).
    homogeneous = np.concatenate([moved, np.ones((n, 3, 1))], axis=2)
    back = np.linalg.solve(homogeneous, np.broadcast_to(source, (n, 3, 2)))[:, :, :, None, None]
    rows, columns = np.arange(float(h))[:, None], np.arange(float(w))
    at = back[:, 0] * columns + back[:, 1] * rows + back[:, 2]
    return _sample(x, _mirror(at[:, 1], h), _mirror(at[:, 0], w))


def elastic_transform(images: ImageArray, c: tuple[float, ...], draws: Draws) -> FloatArray:
    """Move three points at random (an affine map), then every pixel a little.

    The constants are shares of the height, the smoothing's a share of each side.
    """
    h, w = images.shape[1:3]
    displacement, smoothing, jitter = c
    x = images.astype(np.float32)
    if jitter:
        x = _tilt(x, h * jitter, draws)
    if displacement:
        reach = h * displacement
        push = draws.uniform(-reach, reach, 2, h, w)
        push = smooth(push, (h * smoothing, w * smoothing), "reflect", 3)
        rows = push[:, 0] + np.arange(h, dtype=np.float32)[:, None]
        columns = push[:, 1] + np.arange(w, dtype=np.float32)
        x = _sample(x, _reflect(rows, h), _reflect(columns, w))
    return x
