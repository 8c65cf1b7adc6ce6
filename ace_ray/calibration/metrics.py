"""Calibration metrics of top-1 predictions, accumulated in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration.arguments import as_confidence, as_labels, as_logits
from ace_ray.calibration.softmax import log_softmax, true_class
from ace_ray.errors import DataError


class Bins(NamedTuple):
    """A reliability diagram: per bin, how many samples, and the sums of what they carry."""

    samples: IntArray
    confidence: FloatArray
    correct: FloatArray


def reliability(confidence: ArrayLike, correct: ArrayLike, bins: int = 25) -> Bins:
    """Group samples into equal-width bins (lo, hi]; a confidence of 0 falls in the first."""
    p, hit = as_confidence(confidence, correct)
    if bins < 1:
        raise DataError(f"bins: expected at least 1, got {bins}")
    edges = np.linspace(0, 1, bins + 1)
    index = np.maximum(np.searchsorted(edges, p, side="left") - 1, 0)
    return Bins(
        np.bincount(index, minlength=bins),
        np.bincount(index, weights=p, minlength=bins).astype(np.float64),
        np.bincount(index, weights=hit, minlength=bins).astype(np.float64),
    )


def ece_of(bins: Bins) -> float:
    """Return the ECE of a reliability diagram (Sec. 3.1): sum |B|/N |acc(B) - conf(B)|."""
    return float(np.abs(bins.correct - bins.confidence).sum() / bins.samples.sum())


def ece(confidence: ArrayLike, correct: ArrayLike, bins: int = 25) -> float:
    """Return the expected calibration error of top-1 predictions, a fraction in [0, 1]."""
    return ece_of(reliability(confidence, correct, bins))


def ks_error(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the Kolmogorov-Smirnov calibration error (Gupta et al., 2021).

    max |cumsum(confidence) - cumsum(correct)| / N over samples sorted by confidence, read at
    the ends of groups of equal confidence, so that the order within a group does not matter.
    """
    p, hit = as_confidence(confidence, correct)
    order = np.argsort(p, kind="stable")
    p = p[order]
    gap = np.abs(np.cumsum(p - hit[order]))
    ends = np.append(p[1:] != p[:-1], True)
    return float(gap[ends].max() / len(p))


def brier(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the top-label Brier score, mean (confidence - correct)^2 (the paper's)."""
    p, hit = as_confidence(confidence, correct)
    return float(np.mean((p - hit) ** 2))


def nll(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels (Eq. 2), in nats."""
    z = as_logits(logits)
    return float(-true_class(log_softmax(z), as_labels(labels, z)).mean())


def difficulty(correct: BoolArray) -> float:
    """Return wrong : right, N_F / N_T (Sec. 3.2). The authors' code uses the reciprocal."""
    right = int(np.count_nonzero(correct))
    if right == 0:
        raise DataError(f"difficulty: none of {len(correct)} samples is right, N_F / N_T undefined")
    return (len(correct) - right) / right
