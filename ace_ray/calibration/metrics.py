"""Calibration metrics of top-1 predictions, accumulated in float64."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, xlogy

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.arguments import (
    as_confidence,
    as_correct,
    as_count,
    as_labels,
    as_logits,
    as_proba,
)
from ace_ray.calibration.blocks import row_blocks
from ace_ray.calibration.softmax import log_softmax, true_class
from ace_ray.errors import DataError

Binning: TypeAlias = Literal["width", "mass"]


class Bins(NamedTuple):
    """A reliability diagram: per bin, how many samples, and the sums of what they carry."""

    samples: IntArray
    confidence: FloatArray
    correct: FloatArray

    def merged(self, other: Bins) -> Bins:
        """Return the diagram of both sets of samples (equal-width bins of the same number)."""
        if len(self.samples) != len(other.samples):
            raise DataError(f"cannot merge {len(self.samples)} bins with {len(other.samples)}")
        return Bins(
            self.samples + other.samples,
            self.confidence + other.confidence,
            self.correct + other.correct,
        )


def reliability(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 25, binning: Binning = "width"
) -> Bins:
    """Group samples into bins.

    Args:
        confidence: Top-1 confidences in [0, 1].
        correct: Whether the prediction was right.
        bins: How many bins.
        binning: "width": equal-width bins (lo, hi], where a confidence of 0 falls in the first.
            "mass": as many samples in each bin, to within one, in order of confidence.
    """
    p, hit = as_confidence(confidence, correct)
    bins = as_count(bins, "bins")
    share: FloatArray = hit.astype(np.float64)
    if binning == "width":
        edges = np.linspace(0, 1, bins + 1)
        index = np.maximum(np.searchsorted(edges, p, side="left") - 1, 0)
    elif binning == "mass":
        index = np.empty(len(p), np.intp)
        index[np.argsort(p, kind="stable")] = np.arange(len(p)) * bins // len(p)
        # The edge of a bin may cut a tie: its samples share their accuracy, so that neither the
        # order of the samples nor luck decides who falls where.
        _, tie = np.unique(p, return_inverse=True)
        share = (np.bincount(tie, hit) / np.bincount(tie))[tie]
    else:
        raise DataError(f"binning: expected 'width' or 'mass', got {binning!r}")
    return Bins(
        np.bincount(index, minlength=bins),
        np.bincount(index, weights=p, minlength=bins).astype(np.float64),
        np.bincount(index, weights=share, minlength=bins).astype(np.float64),
    )


def ece_of(bins: Bins, *, debias: bool = False) -> float:
    """Return the ECE of a reliability diagram (Sec. 3.1): sum |B|/N |acc(B) - conf(B)|.

    With `debias`, the part of each bin's gap that sampling noise alone makes is subtracted: for a
    gap g with standard error s, E|N(g, s)| - |g| in closed form (Kumar et al., 2019, who sample
    it). As g itself is measured with noise, this removes a good part of the bias, not all of it.
    """
    total = bins.samples.sum()
    gap = np.abs(bins.correct - bins.confidence)
    if debias:
        n = np.maximum(bins.samples, 1)
        accuracy = bins.correct / n
        g, s = gap / n, np.sqrt(accuracy * (1 - accuracy) / n)
        noisy = s > 0
        ratio = np.divide(g, s, out=np.zeros_like(g), where=noisy)
        folded = s * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + g * (1 - 2 * ndtr(-ratio))
        gap = gap - np.where(noisy, bins.samples * (folded - g), 0)
    return float(gap.sum() / total)


def ece(
    confidence: ArrayLike,
    correct: ArrayLike,
    bins: int = 25,
    *,
    binning: Binning = "width",
    debias: bool = False,
) -> float:
    """Return the expected calibration error of top-1 predictions, a fraction in [0, 1].

    Only with `debias` it may fall below 0.

    >>> ece([0.4, 0.8, 0.6], [True, True, False], bins=2)
    0.3333333333333333
    """
    return ece_of(reliability(confidence, correct, bins, binning), debias=debias)


def mce(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 25, *, binning: Binning = "width"
) -> float:
    """Return the maximum calibration error: the largest gap of any bin that has samples."""
    found = reliability(confidence, correct, bins, binning)
    full = found.samples > 0
    gap = np.abs(found.correct - found.confidence)[full] / found.samples[full]
    return float(gap.max())


def classwise_ece(proba: ArrayLike, labels: ArrayLike, bins: int = 25) -> float:
    """Return the mean over classes of the ECE of "is it this class?" (Kull et al., 2019)."""
    p = as_proba(proba)
    y = as_labels(labels, p)
    bins = as_count(bins, "bins")
    edges = np.linspace(0, 1, bins + 1)
    gaps = 0.0
    for c in range(p.shape[1]):
        column = p[:, c]
        index = np.maximum(np.searchsorted(edges, column, side="left") - 1, 0)
        gaps += np.abs(np.bincount(index, (y == c) - column, bins)).sum() / len(y)
    return float(gaps / p.shape[1])


def smooth_ece(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the smooth ECE (Blasiok & Nakkiran, 2023): no bins, no parameter.

    Residuals are smoothed over confidence by a reflected Gaussian of width s and their absolute
    integral is taken; that falls with s, and the value is where it equals s.
    """
    p, hit = as_confidence(confidence, correct)

    def smoothed(width: float) -> float:
        cells = max(2000, round(20 / width))
        at = p * cells
        left = np.minimum(at.astype(np.intp), cells - 1)
        share = at - left
        residual = (hit - p) / len(p)
        mass = np.bincount(left, (1 - share) * residual, cells + 1)
        mass += np.bincount(left + 1, share * residual, cells + 1)
        # "mirror" reflects about the end points, which then count half on each side.
        mass[[0, -1]] *= 2
        density = gaussian_filter1d(mass, width * cells, mode="mirror", truncate=6)
        density[[0, -1]] /= 2
        return min(float(np.abs(density).sum()), 1.0)

    low, high = 1e-3, 1.0
    if smoothed(low) <= low:
        return smoothed(low)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return smoothed(high)


def ks_error(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the Kolmogorov-Smirnov calibration error (Gupta et al., 2021).

    max |cumsum(confidence) - cumsum(correct)| / N over samples sorted by confidence, read at
    the ends of groups of equal confidence, so that the order within a group does not matter.
    """
    p, hit = as_confidence(confidence, correct)
    order = np.argsort(p)
    p = p[order]
    gap = np.abs(np.cumsum(p - hit[order]))
    ends = np.append(p[1:] != p[:-1], True)
    return float(gap[ends].max() / len(p))


def brier(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the top-label Brier score, mean (confidence - correct)^2 (the paper's)."""
    p, hit = as_confidence(confidence, correct)
    return float(np.mean((p - hit) ** 2))


def brier_full(proba: ArrayLike, labels: ArrayLike) -> float:
    """Return the Brier score of whole vectors, mean over samples of sum_c (p_c - y_c)^2."""
    p = as_proba(proba)
    y = as_labels(labels, p)
    return float(np.mean(np.einsum("ij,ij->i", p, p) - 2 * true_class(p, y) + 1))


def nll(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels (Eq. 2), in nats."""
    z = as_logits(logits)
    y = as_labels(labels, z)
    total = sum(
        float(true_class(log_softmax(z[rows]), y[rows]).sum()) for rows in row_blocks(*z.shape)
    )
    return -total / len(y)


def aurc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the area under the risk-coverage curve (Geifman & El-Yaniv, 2017).

    Mean, over coverage 1/N .. 1, of the error among the most confident. Samples of equal
    confidence enter together, with the error that a random order among them has on average.
    """
    p, hit = as_confidence(confidence, correct)
    levels, group = np.unique(-p, return_inverse=True)
    size = np.bincount(group, minlength=len(levels))
    wrong = np.bincount(group, ~hit, minlength=len(levels))
    before = np.cumsum(wrong) - wrong
    start = np.cumsum(size) - size
    rank = np.arange(1, len(p) + 1)
    each = np.repeat(np.arange(len(levels)), size)
    expected = before[each] + wrong[each] / size[each] * (rank - start[each])
    return float(np.mean(expected / rank))


class ScoreSplit(NamedTuple):
    """A proper score as calibration + refinement: what recalibration removes, and what stays."""

    calibration: float
    refinement: float


def split_score(
    confidence: ArrayLike, correct: ArrayLike, score: Literal["brier", "log"] = "brier"
) -> ScoreSplit:
    """Split the top-label Brier or log score by isotonic recalibration (Dimitriadis et al., 2021).

    Refinement is the score of the best non-decreasing map of the confidence; calibration is how
    much worse the confidence itself scores, never below 0. A log score is infinite where a
    confidence of 1 was wrong or of 0 right.
    """
    p, hit = as_confidence(confidence, correct)
    _, group = np.unique(p, return_inverse=True)
    size = np.bincount(group)
    mapped = np.asarray(isotonic_regression(np.bincount(group, hit) / size, weights=size).x)

    def scored(q: FloatArray) -> float:
        if score == "brier":
            return float(np.mean((q - hit) ** 2))
        return float(-np.mean(xlogy(hit, q) + xlogy(~hit, 1 - q)))

    if score not in ("brier", "log"):
        raise DataError(f"score: expected 'brier' or 'log', got {score!r}")
    best = scored(np.clip(mapped, 0, 1)[group])
    return ScoreSplit(max(scored(p) - best, 0.0), best)


class Streaming:
    """Top-1 metrics of samples that arrive in pieces, or on several workers, exactly.

    Everything here is a sum over samples, so pieces may be merged in any order. What needs all
    confidences at once (KS, AURC, smooth and equal-mass ECE) is not here.

    >>> a, b = Streaming(bins=10), Streaming(bins=10)
    >>> a.update([0.9, 0.8], [True, False])
    >>> b.update([0.7], [True])
    >>> a.merge(b)
    >>> a.accuracy == 2 / 3
    True
    """

    def __init__(self, bins: int = 25) -> None:
        bins = as_count(bins, "bins")
        self.bins = Bins(np.zeros(bins, np.int64), np.zeros(bins), np.zeros(bins))
        self._squares = 0.0
        self._nll = 0.0
        self._whole = 0  # samples that came with whole vectors

    def update_proba(self, proba: ArrayLike, labels: ArrayLike) -> None:
        """Add samples with whole vectors, which also tell the NLL."""
        p = as_proba(proba)
        y = as_labels(labels, p)
        self.update(np.minimum(p.max(axis=1), 1), p.argmax(axis=1) == y)
        with np.errstate(divide="ignore"):
            self._nll -= float(np.log(true_class(p, y)).sum())
        self._whole += len(y)

    def update(self, confidence: ArrayLike, correct: ArrayLike) -> None:
        """Add samples."""
        p, hit = as_confidence(confidence, correct)
        self.bins = self.bins.merged(reliability(p, hit, len(self.bins.samples)))
        self._squares += float(((p - hit) ** 2).sum())

    def merge(self, other: Streaming) -> None:
        """Add the samples that another accumulator has seen."""
        self.bins = self.bins.merged(other.bins)
        self._squares += other._squares
        self._nll += other._nll
        self._whole += other._whole

    @property
    def n(self) -> int:
        """How many samples were seen."""
        return int(self.bins.samples.sum())

    def _seen(self) -> int:
        if not self.n:
            raise DataError("no samples were added yet")
        return self.n

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return float(self.bins.correct.sum() / self._seen())

    @property
    def confidence(self) -> float:
        """Mean confidence."""
        return float(self.bins.confidence.sum() / self._seen())

    @property
    def ece(self) -> float:
        """ECE with equal-width bins."""
        self._seen()
        return ece_of(self.bins)

    @property
    def brier(self) -> float:
        """Top-label Brier score."""
        return self._squares / self._seen()

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood in nats; needs whole vectors for every sample."""
        if self._whole != self.n:
            raise DataError(f"nll: only {self._whole} of {self.n} samples came with whole vectors")
        return self._nll / self._seen()


def difficulty(correct: ArrayLike) -> float:
    """Return wrong : right, N_F / N_T (Sec. 3.2). The authors' code uses the reciprocal."""
    hit = as_correct(correct)
    right = int(np.count_nonzero(hit))
    if right == 0:
        raise DataError(f"difficulty: none of {hit.size} samples is right, N_F / N_T undefined")
    return (hit.size - right) / right
