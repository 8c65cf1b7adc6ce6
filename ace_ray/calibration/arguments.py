"""Checks of what callers pass in: every argument is checked once, at the public boundary."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.errors import DataError


class ProbabilityWarning(UserWarning):
    """Logits look like probabilities."""


def as_array(value: ArrayLike, name: str) -> Any:
    """Return an array of numbers or bools; ragged, text and complex input is refused."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected an array of numbers, got {error}") from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected an array of real numbers, got dtype {array.dtype}")
    return array


def as_number(value: Any, name: str, low: float = -np.inf, *, above: bool = False) -> float:
    """Return a finite number that is at least `low` (or above it)."""
    kind: type = type(value)
    numeric = isinstance(value, Real) and kind not in (bool, np.bool_)
    if not numeric or not np.isfinite(value) or value < low or (above and value <= low):
        bound = f" {'above' if above else '>='} {low:g}" if np.isfinite(low) else ""
        raise DataError(f"{name}: expected a finite number{bound}, got {value!r}")
    return float(value)


def as_count(value: Any, name: str, low: int = 1) -> int:
    """Return a whole number that is at least `low`."""
    kind: type = type(value)
    whole = isinstance(value, Integral) and kind not in (bool, np.bool_)
    if not whole or value < low:
        raise DataError(f"{name}: expected a whole number of at least {low}, got {value!r}")
    return int(value)


def as_bounds(value: Any) -> tuple[float, float]:
    """Return a range of temperatures, 0 < low < high."""
    try:
        low, high = (as_number(v, "bounds", 0, above=True) for v in value)
    except (TypeError, ValueError):
        raise DataError(f"bounds: expected 0 < low < high, got {value!r}") from None
    if not low < high:
        raise DataError(f"bounds: expected 0 < low < high, got {value!r}")
    return low, high


def as_logits(logits: ArrayLike) -> FloatArray:
    """Return logits as a finite floating (N, C) array with N >= 1 and C >= 2, without a copy."""
    z: FloatArray = as_array(logits, "logits")
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
    p = as_array(proba, "probabilities").astype(np.float64)
    if p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise DataError(f"probabilities: expected shape (N >= 1, C >= 2), got {p.shape}")
    if not (p.min() >= 0 and np.abs(p.sum(axis=1) - 1).max() < 1e-3):
        raise DataError("probabilities: expected values >= 0 with rows that sum to one")
    return np.asarray(p)


def as_labels(labels: ArrayLike, logits: FloatArray) -> IntArray:
    """Return labels as integers (N,) in [0, C)."""
    y: IntArray = as_array(labels, "labels")
    n, c = logits.shape
    if y.shape != (n,):
        raise DataError(f"labels: expected shape ({n},) to match the logits, got {y.shape}")
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"labels: expected integers, got {y.dtype}")
    if y.min() < 0 or y.max() >= c:
        raise DataError(f"labels: expected 0 to {c - 1}, got {y.min()} to {y.max()}")
    return y


def as_weights(weights: ArrayLike | None, n: int) -> FloatArray:
    """Return sample weights as float64 (N,) with a largest value of one; ones for None."""
    if weights is None:
        return np.ones(n)
    w = as_array(weights, "weights").astype(np.float64)
    if w.shape != (n,):
        raise DataError(f"weights: expected shape ({n},) to match the logits, got {w.shape}")
    if not np.isfinite(w).all() or w.min() < 0 or not w.any():
        raise DataError("weights: expected finite values >= 0 with at least one above 0")
    return np.asarray(w / w.max())


def as_correct(correct: ArrayLike) -> BoolArray:
    """Return whether each prediction was right: bools, or numbers that are exactly 0 or 1."""
    hit = as_array(correct, "correct")
    if hit.dtype != bool and not ((hit == 0) | (hit == 1)).all():
        raise DataError("correct: expected True and False (or 1 and 0) for right and wrong")
    return np.asarray(hit, bool)


def as_confidence(confidence: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Return top-1 confidences as float64 in [0, 1] and correctness as bool, same length."""
    p = as_unit(confidence)
    if p.ndim != 1 or not len(p):
        raise DataError(f"confidence: expected a non-empty vector, got shape {p.shape}")
    hit = as_correct(correct)
    if hit.shape != p.shape:
        raise DataError(f"correct: expected shape {p.shape} to match, got {hit.shape}")
    return p, hit


def as_unit(confidence: ArrayLike) -> FloatArray:
    """Return confidences as float64 in [0, 1]; single-precision rounding beyond 1 is clipped."""
    p = as_array(confidence, "confidence").astype(np.float64)
    if p.size and not (p.min() >= -1e-6 and p.max() <= 1 + 1e-6):
        raise DataError(f"confidence: expected values in [0, 1], got {p.min()} to {p.max()}")
    return np.asarray(np.clip(p, 0, 1))
