"""Drawn characters: the images of the embedded benchmark, a pure function of split seed and index.

Every image is 32x32 RGB and shows one of 36 characters (0-9, A-Z) with random position, scale,
rotation, shear, stroke and colours on a textured background with clutter. Nothing is stored: a
sample's own counter-based generator supplies all of its random numbers, so a sample's pixels do
not depend on the batch it is drawn in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from ace_ray.arrays import FloatArray, ImageArray, IntArray

SIDE: Final = 32
CLASSES: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Part of every content key: raise it whenever a pixel changes.
RENDERER: Final = "glyphs-1"
# One counter space per split: no image of one can appear in another.
SEEDS: Final = {"train": 1, "validation": 2, "calibration": 3, "test": 4}

# A polyline is a row of points "xy" on a 9x9 grid (x right, y down); "|" lifts the pen.
_PEN: Final = {
    "0": "20 60 82 86 68 28 06 02 20 | 71 17",
    "1": "22 40 48 | 28 68",
    "2": "02 20 60 82 83 08 88",
    "3": "01 20 60 82 83 64 34 | 64 85 86 68 28 07",
    "4": "68 60 05 85",
    "5": "80 00 04 54 85 86 68 08",
    "6": "70 30 03 06 28 68 86 85 64 04",
    "7": "00 80 38",
    "8": "64 24 02 01 20 60 81 82 64 86 87 68 28 07 06 24",
    "9": "84 24 03 02 20 60 82 85 58 18",
    "A": "08 40 88 | 25 65",
    "B": "04 64 82 81 60 00 08 68 86 85 64",
    "C": "82 60 20 02 06 28 68 86",
    "D": "00 08 58 85 83 50 00",
    "E": "80 00 08 88 | 04 64",
    "F": "80 00 08 | 04 64",
    "G": "82 60 20 02 06 28 68 86 84 54",
    "H": "00 08 | 80 88 | 04 84",
    "I": "20 60 | 40 48 | 28 68",
    "J": "40 80 | 70 76 58 28 06",
    "K": "00 08 | 80 04 88",
    "L": "00 08 88",
    "M": "08 00 45 80 88",
    "N": "08 00 88 80",
    "O": "20 60 82 86 68 28 06 02 20",
    "P": "08 00 60 82 83 65 05",
    "Q": "20 60 82 86 68 28 06 02 20 | 55 88",
    "R": "08 00 60 82 83 65 05 | 45 88",
    "S": "82 60 20 02 03 24 64 85 86 68 28 06",
    "T": "00 80 | 40 48",
    "U": "00 06 28 68 86 80",
    "V": "00 48 80",
    "W": "00 28 43 68 80",
    "X": "00 88 | 80 08",
    "Y": "00 44 80 | 44 48",
    "Z": "00 80 08 88",
}
_CLUTTER: Final = 5  # stray strokes per image
_TEXTURE: Final = 6  # cells along a side of the background texture
_UNIFORMS: Final = 32 + 6 * _CLUTTER + 3 * _TEXTURE * _TEXTURE


def _segments(character: str) -> FloatArray:
    """Return the strokes as (S, 4) rows x0, y0, x1, y1, centred and scaled to [-1, 1]."""
    rows = []
    for line in _PEN[character].split("|"):
        points = [(int(p[0]) / 4 - 1, int(p[1]) / 4 - 1) for p in line.split()]
        rows += [(*a, *b) for a, b in pairwise(points)]
    return np.array(rows, dtype=np.float32)


def _segment_table() -> FloatArray:
    """Stack all characters as (36, S, 4), short ones filled up by repeating their last stroke."""
    strokes = [_segments(c) for c in CLASSES]
    longest = max(len(s) for s in strokes)
    return np.stack([np.vstack([s, np.repeat(s[-1:], longest - len(s), 0)]) for s in strokes])


def _uniforms(seed: int, indices: IntArray) -> FloatArray:
    """Return the random numbers of each sample, in [0, 1): row i depends on (seed, indices[i])."""
    rows = [
        np.random.Generator(np.random.Philox(key=[seed, int(i)])).random(_UNIFORMS, np.float32)
        for i in indices
    ]
    return np.stack(rows)


def _distance(
    x: FloatArray, y: FloatArray, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray
) -> FloatArray:
    """Squared distance of each pixel to one segment per image; all arguments (N, 1) or (N, P)."""
    dx, dy = x1 - x0, y1 - y0
    along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy + 1e-6)
    np.clip(along, 0, 1, out=along)
    return np.asarray((x - x0 - along * dx) ** 2 + (y - y0 - along * dy) ** 2)


def _coverage(squared: FloatArray, radius: FloatArray) -> FloatArray:
    """Anti-aliased ink: 1 inside the stroke, falling to 0 over one pixel at its rim."""
    return np.asarray(np.clip(radius + 0.5 - np.sqrt(squared), 0, 1))


def _texture(cells: FloatArray) -> FloatArray:
    """Interpolate (N, 3, K, K) cell values linearly to (N, P, 3) pixels."""
    position = np.linspace(0, _TEXTURE - 1, SIDE, dtype=np.float32)
    lower = np.minimum(position.astype(int), _TEXTURE - 2)
    weight = np.zeros((SIDE, _TEXTURE), np.float32)
    weight[np.arange(SIDE), lower] = 1 - (position - lower)
    weight[np.arange(SIDE), lower + 1] += position - lower
    field = weight @ cells @ weight.T
    return np.ascontiguousarray(field.reshape(len(cells), 3, SIDE * SIDE).transpose(0, 2, 1))


def labels(seed: int, indices: IntArray) -> IntArray:
    """Return the class of each sample: uniform over the 36 characters."""
    offset = seed * 0x9E3779B97F4A7C15 % 2**64
    state = np.asarray(indices, np.uint64) + np.uint64(offset)
    # splitmix64: a cheap, well-mixed integer hash, so labels need no generator per sample.
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return np.asarray(state % np.uint64(len(CLASSES)), np.int32)


def draw(seed: int, indices: IntArray) -> ImageArray:
    """Draw the samples with these indices as (N, 32, 32, 3) uint8."""
    indices = np.asarray(indices)
    u = _uniforms(seed, indices)
    n = len(u)

    def between(column: int, low: float, high: float) -> FloatArray:
        return low + (high - low) * u[:, column : column + 1]

    grid = np.arange(SIDE, dtype=np.float32)
    px = np.tile(grid, SIDE)[None]
    py = np.repeat(grid, SIDE)[None]

    # Strokes of the character: scale, shear, rotate, then move (pixels).
    stroke = _SEGMENTS[labels(seed, indices)]
    half = between(0, 5.0, 10.0)
    wide, shear = between(1, 0.6, 1.05), between(2, -0.35, 0.35)
    angle = between(3, -0.45, 0.45)
    cos, sin = np.cos(angle), np.sin(angle)
    centre_x, centre_y = between(4, 11, 20), between(5, 11, 20)
    warped = np.empty_like(stroke)
    for end in (0, 2):
        gx = half * (wide * stroke[:, :, end] + shear * stroke[:, :, end + 1])
        gy = half * stroke[:, :, end + 1]
        warped[:, :, end] = centre_x + cos * gx - sin * gy
        warped[:, :, end + 1] = centre_y + sin * gx + cos * gy
    nearest = np.full((n, SIDE * SIDE), np.inf, np.float32)
    for s in range(warped.shape[1]):
        ends = [warped[:, s, k : k + 1] for k in range(4)]
        np.minimum(nearest, _distance(px, py, *ends), out=nearest)
    ink = _coverage(nearest, between(6, 0.4, 1.5)) * between(7, 0.55, 1.0)

    # Background: one colour, a texture around it, stray strokes.
    paper = u[:, None, 8:11]
    first = 32 + 6 * _CLUTTER
    cells = u[:, first:].reshape(n, 3, _TEXTURE, _TEXTURE)
    image = paper + between(11, 0.1, 0.7)[:, None] * (_texture(cells) - 0.5)
    for k in range(_CLUTTER):
        v = u[:, 32 + 6 * k : 38 + 6 * k]
        x0, y0 = v[:, 0:1] * SIDE, v[:, 1:2] * SIDE
        x1, y1 = x0 + (v[:, 2:3] - 0.5) * 24, y0 + (v[:, 3:4] - 0.5) * 24
        stray = _coverage(_distance(px, py, x0, y0, x1, y1), 0.3 + v[:, 4:5])
        shade = np.roll(u[:, 12:15], k, axis=1)[:, None] * (0.5 + v[:, None, 5:6])
        image += (0.8 * stray)[..., None] * (shade - image)

    # The pen keeps a distance from the paper in every channel, so no character is invisible.
    away = np.where(paper > 0.5, -1, 1) * (0.15 + 0.6 * u[:, None, 16:19])
    image += ink[..., None] * (paper + away - image)
    pixels = np.clip(image, 0, 1) * 255 + 0.5
    return pixels.astype(np.uint8).reshape(n, SIDE, SIDE, 3)


_SEGMENTS: Final = _segment_table()
