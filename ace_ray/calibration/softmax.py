"""Softmax in float64, whatever the precision of the logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.blocks import block_of, row_blocks


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return log probabilities (N, C)."""
    z = np.array(logits, np.float64)
    z -= z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities (N, C)."""
    z = np.array(logits, np.float64)
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def top1_confidence(logits: FloatArray) -> FloatArray:
    """Return the largest probability of each row (N,): 1 / sum exp(z - max z)."""
    z = np.array(logits, np.float64)
    z -= z.max(axis=1, keepdims=True)
    return np.asarray(1 / np.exp(z, out=z).sum(axis=1))


def mean_confidence(logits: FloatArray, classes: Sequence[int] | IntArray | None = None) -> float:
    """Return the mean largest probability, over all classes or a subset of them, block by block."""
    total = 0.0
    index = None if classes is None else np.asarray(classes)
    for rows in row_blocks(*logits.shape):
        block = block_of(logits, rows, np.float64)
        total += float(top1_confidence(block if index is None else block[:, index]).sum())
    return total / len(logits)


def true_class(values: FloatArray, labels: IntArray) -> FloatArray:
    """Return the entry of each row's label (N,)."""
    return np.asarray(values[np.arange(len(labels)), labels])
