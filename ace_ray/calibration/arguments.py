"""Checks of what callers pass in: every array is checked once, at the public boundary."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.errors import DataError


class ProbabilityWarning(UserWarning):
    """Logits look like probabilities."""


def as_logits(logits: ArrayLike) -> FloatArray:
    """Return logits as a finite floating (N, C) array with N >= 1 and C >= 2, without a copy."""
    z = np.asarray(logits)
    if not np.issubdtype(z.dtype, np.floating):
        raise DataError(f"logits: expected floating point, got {z.dtype}; cast with .astype(float)")
    if z.ndim != 2 or z.shape[0] < 1 or z.shape[1] < 2:
        raise DataError(f"logits: expected shape (N >= 1, C >= 2), got {z.shape}")
    # A finite sum has finite terms: one pass and no temporary of N x C. An overflowing sum of
    # finite terms is looked at again.
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(z.sum())
    if suspect and not (np.isfinite(z.min()) and np.isfinite(z.max())):
        bad = int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
        raise DataError(f"logits: NaN or infinite value in row {bad}; drop or repair the row")
    few = z[:64].astype(np.float64)
    if few.min() >= 0 and np.abs(few.sum(axis=1) - 1).max() < 1e-3:
        warnings.warn(
            "logits: rows are non-negative and sum to one, which looks like probabilities; "
            "they are used as logits. Pass np.log(probabilities) if that is what they are",
            ProbabilityWarning,
            stacklevel=3,
        )
    return z


def as_proba(proba: ArrayLike) -> FloatArray:
    """Return probabilities as float64 (N, C) whose rows sum to one."""
    p = np.asarray(proba, np.float64)
    if p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise DataError(f"probabilities: expected shape (N >= 1, C >= 2), got {p.shape}")
    if not (p.min() >= 0 and np.abs(p.sum(axis=1) - 1).max() < 1e-3):
        raise DataError("probabilities: expected values >= 0 with rows that sum to one")
    return p


def as_labels(labels: ArrayLike, logits: FloatArray) -> IntArray:
    """Return labels as integers (N,) in [0, C)."""
    y = np.asarray(labels)
    n, c = logits.shape
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"labels: expected integers, got {y.dtype}")
    if y.shape != (n,):
        raise DataError(f"labels: expected shape ({n},) to match the logits, got {y.shape}")
    if y.min() < 0 or y.max() >= c:
        raise DataError(f"labels: expected 0 to {c - 1}, got {y.min()} to {y.max()}")
    return y


def as_weights(weights: ArrayLike | None, n: int) -> FloatArray:
    """Return sample weights as float64 (N,), ones for None."""
    if weights is None:
        return np.ones(n)
    w = np.asarray(weights, np.float64)
    if w.shape != (n,):
        raise DataError(f"weights: expected shape ({n},) to match the logits, got {w.shape}")
    if not np.isfinite(w).all() or w.min() < 0 or not w.any():
        raise DataError("weights: expected finite values >= 0 with at least one above 0")
    return w


def as_confidence(confidence: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Return top-1 confidences as float64 in [0, 1] and correctness as bool, same length."""
    p, hit = np.asarray(confidence, np.float64), np.asarray(correct)
    if p.ndim != 1 or not len(p):
        raise DataError(f"confidence: expected a non-empty vector, got shape {p.shape}")
    if hit.shape != p.shape:
        raise DataError(f"correct: expected shape {p.shape} to match, got {hit.shape}")
    if not (p.min() >= 0 and p.max() <= 1):
        raise DataError(f"confidence: expected values in [0, 1], got {p.min():g} to {p.max():g}")
    return p, hit.astype(bool)
