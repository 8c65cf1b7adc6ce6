"""Softmax in float64, whatever the precision of the logits."""

from __future__ import annotations

import numpy as np

from ace_ray.arrays import FloatArray, IntArray


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return log probabilities (N, C)."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return z


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities (N, C)."""
    return np.exp(log_softmax(logits))


def top1_confidence(logits: FloatArray) -> FloatArray:
    """Return the largest probability of each row (N,): 1 / sum exp(z - max z)."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    return np.asarray(1 / np.exp(z, out=z).sum(axis=1))


def true_class(values: FloatArray, labels: IntArray) -> FloatArray:
    """Return the entry of each row's label (N,)."""
    return np.asarray(values[np.arange(len(labels)), labels])
