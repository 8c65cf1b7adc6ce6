"""Glass blur, compiled: what one image needs stays in the cache from the first blur to the last.

Pixels copy their neighbours one after the other, which no array operation does; and two blurs of
a small image by matrix products cost more than all the rest. Sums are taken in a stated order and
never contracted, so any machine makes the same pixels.

Indices are unsigned throughout: a signed one might be negative, and the check for it keeps a loop
from being vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numba import njit

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.benchmarks.corruptions.draws import GOLDEN, MIXERS, Draws
from ace_ray.benchmarks.corruptions.planes import gaussian_taps

_U: Final = np.uint64
_ONE, _THREE, _FOUR = _U(1), _U(3), _U(4)
(_SHIFT_1, _FACTOR_1), (_SHIFT_2, _FACTOR_2) = ((_U(s), _U(f)) for s, f in MIXERS)
_SHIFT_3: Final = _U(31)
_HALF, _LOW, _THREE32 = np.uint32(16), np.uint32(0xFFFF), np.uint32(3)


def blur_and_scatter(
    images: ImageArray, sigma: float, reach: int, passes: int, draws: Draws
) -> ImageArray:
    """Blur, let every pixel copy a random neighbour, blur.

    Args:
        images: (N, H, W, 3), contiguous.
        sigma: Of both blurs.
        reach: A neighbour lies -reach to reach - 1 rows and columns away.
        passes: How often every pixel copies.
        draws: Fresh: each pass takes 16 bits a pixel.
    """
    radius = int(4 * sigma + 0.5)
    out = np.empty_like(images)
    _glass(radius)(images, out, _taps(sigma, radius), _U(reach), passes, draws.keys)
    return out


@lru_cache(maxsize=32)
def _taps(sigma: float, radius: int) -> FloatArray:
    return gaussian_taps(sigma, radius).astype(np.float32)


@lru_cache(maxsize=32)
def _glass(radius: int) -> Callable[..., None]:
    """Compile for a radius: only with their number known are the taps' loops unrolled."""
    blur, scatter = _blur(radius), _compiled(_scatter)

    def glass(images: Any, out: Any, taps: Any, reach: Any, passes: Any, keys: Any) -> None:
        h, w = _U(images.shape[1]), _U(images.shape[2])
        tall = np.empty((h + _U(2 * radius)) * w * _THREE, np.float32)
        line = np.empty((w + _U(2 * radius)) * _THREE, np.float32)
        levels = np.empty(h * w * _THREE, np.uint8)
        words = np.empty((h * w + _THREE) // _FOUR, np.uint64)
        step = np.empty(h * w, np.int32)
        for i in range(len(images)):
            blur(images[i].ravel(), levels, taps, tall, line, h, w)
            scatter(levels, reach, passes, keys[i], words, step, h, w)
            blur(levels, out[i].ravel(), taps, tall, line, h, w)

    return _compiled(glass)


def _blur(radius: int) -> Callable[..., None]:
    """Return the blur of one (H, W, 3) image, flat; edges repeated, levels cut off."""
    r, weigh = _U(radius), _weigh(radius)

    def blur(src: Any, dst: Any, taps: Any, tall: Any, line: Any, h: Any, w: Any) -> None:
        width = w * _THREE
        for j in range(h * width):
            tall[r * width + j] = src[j]
        for k in range(r):
            for x in range(width):
                tall[k * width + x] = src[x]
                tall[(h + r + k) * width + x] = src[(h - _ONE) * width + x]
        for y in range(h):
            for x in range(width):
                line[_THREE * r + x] = weigh(tall, y * width + x, width, taps)
            for k in range(r):
                for c in range(_THREE):
                    line[_THREE * k + c] = line[_THREE * r + c]
                    line[(r + w + k) * _THREE + c] = line[(r + w - _ONE) * _THREE + c]
            for x in range(width):
                dst[y * width + x] = np.uint8(np.int32(weigh(line, x, _THREE, taps)))

    return _compiled(blur)


def _weigh(radius: int) -> Callable[..., Any]:
    """Return the weighted sum of 2 radius + 1 values a stride apart."""
    r = _U(radius)

    def weigh(src: Any, at: Any, stride: Any, taps: Any) -> Any:
        # The taps are symmetric: a product for every two.
        total = taps[r] * src[at + r * stride]
        for k in range(r):
            total += taps[k] * (src[at + k * stride] + src[at + (r + r - k) * stride])
        return total

    return _compiled(weigh)


def _scatter(
    levels: Any,
    reach: Any,
    passes: Any,
    key: Any,
    words: Any,
    step: Any,
    h: Any,
    w: Any,
) -> None:
    """Let every inner pixel copy a neighbour, from the last to the first, in place.

    The published sets were made by code that means to swap two pixels but, through views, copies
    the neighbour; so do we. A copy sees what the copies before it wrote.
    """
    first, bottom, right = reach + _ONE, min(h - reach + _ONE, h), min(w - reach + _ONE, w)
    count = (bottom - first) * (right - first)
    used, bits = _U(0), words.view(np.uint16)
    side, w32 = np.uint32(reach + reach), np.uint32(w)
    corner = np.int32(_THREE * (reach * w + reach))
    for _ in range(passes):
        # SplitMix64, as `Draws.bits`.
        for j in range((count + _THREE) // _FOUR):
            used += _ONE
            z = key + used * GOLDEN
            z = (z ^ (z >> _SHIFT_1)) * _FACTOR_1
            z = (z ^ (z >> _SHIFT_2)) * _FACTOR_2
            words[j] = z ^ (z >> _SHIFT_3)
        # A neighbour's row is the whole part of a fraction, its column that of what remains.
        for j in range(count):
            scaled = np.uint32(bits[j]) * side
            column = (scaled & _LOW) * side >> _HALF
            step[j] = np.int32(_THREE32 * ((scaled >> _HALF) * w32 + column)) - corner
        j = count
        for row in range(bottom - first):
            at = ((bottom - _ONE - row) * w + right - _ONE) * _THREE
            for _column in range(right - first):
                j -= _ONE
                source = at + _U(step[j])
                a, b, c = levels[source], levels[source + _ONE], levels[source + _ONE + _ONE]
                levels[at], levels[at + _ONE], levels[at + _ONE + _ONE] = a, b, c
                at -= _THREE


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    # Not kept on disk: a worker's install may be read-only, and a second is soon spent.
    compiled: Callable[..., Any] = njit(function, boundscheck=False, error_model="numpy")
    return compiled
