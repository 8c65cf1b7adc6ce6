"""Many vector-scaled mixtures at once: one walk over the logits serves all fitted parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.vector import VectorScaling

# Rows of a block times classes: logits, f_o's probabilities and a buffer stay in the cache.
_ELEMENTS: Final = 1 << 16
# exp of anything smaller neither overflows nor, as the largest of a row, vanishes.
_SAFE: Final = 600.0


class Mixed(NamedTuple):
    """Per hard calibrator (rows) and sample (columns)."""

    confidence: FloatArray
    predicted: IntArray
    truth: FloatArray  # probability of the label


def mix_probabilities(
    logits: FloatArray,
    labels: IntArray,
    easy: VectorScaling,
    hard: Sequence[VectorScaling],
    alpha: Sequence[FloatArray],
    classes: IntArray | None = None,
) -> Mixed:
    """Return top-1 confidence, prediction and p(label) of alpha p_o + (1 - alpha) p_h.

    Args:
        logits: (N, C).
        labels: (N,), positions among `classes` where these are given.
        easy: f_o.
        hard: Each f_h.
        alpha: For each f_h, the weight of f_o for every sample, in [0, 1].
        classes: The classes to keep.
    """
    n = len(logits)
    shape = len(hard), n
    out = Mixed(np.empty(shape), np.empty(shape, np.int32), np.empty(shape))
    w_o, b_o = _kept(easy, classes)
    parameters = [_kept(f, classes) for f in hard]
    c = len(w_o)
    ones, step = np.ones(c), max(1, _ELEMENTS // c)
    buffer = np.empty((step, c))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        z = np.array(logits[rows] if classes is None else logits[rows][:, classes], np.float64)
        y, each = labels[rows], np.arange(len(z))
        p_o = z * w_o + b_o
        p_o -= p_o.max(axis=1, keepdims=True)
        np.exp(p_o, out=p_o)
        p_o /= p_o.sum(axis=1, keepdims=True)
        first = p_o.argmax(axis=1)
        first_o, truth_o = p_o[each, first], p_o[each, y]
        reach = float(np.abs(z).max())
        u = buffer[: len(z)]
        for i, (w_h, b_h) in enumerate(parameters):
            a = alpha[i][rows]
            np.multiply(z, w_h, out=u)
            u += b_h
            high = u.max(axis=1)
            alike = u[each, first] == high
            if reach * float(np.abs(w_h).max()) + float(np.abs(b_h).max()) > _SAFE:
                u -= high[:, None]
            np.exp(u, out=u)
            scale = (1 - a) / (u @ ones)
            out.truth[i, rows] = a * truth_o + scale * u[each, y]
            # Where both put the same class first, the mixture does; elsewhere it is looked for.
            out.confidence[i, rows] = a * first_o + scale * u[each, first]
            out.predicted[i, rows] = first
            if not alike.all():
                other = np.flatnonzero(~alike)
                mixed = u[other] * scale[other, None]
                mixed += a[other, None] * p_o[other]
                top = mixed.argmax(axis=1)
                out.predicted[i, start + other] = top
                out.confidence[i, start + other] = mixed[np.arange(len(other)), top]
    np.minimum(out.confidence, 1, out=out.confidence)
    return out


def _kept(f: VectorScaling, classes: IntArray | None) -> tuple[FloatArray, FloatArray]:
    return (f.weight_, f.bias_) if classes is None else (f.weight_[classes], f.bias_[classes])
