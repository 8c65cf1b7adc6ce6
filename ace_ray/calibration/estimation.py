"""Estimation: rebuild the calibration set at the difficulty that the test set seems to have."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration.arguments import (
    as_confidence,
    as_labels,
    as_logits,
    as_number,
    as_unit,
)
from ace_ray.calibration.base import Calibrator
from ace_ray.calibration.blocks import row_blocks
from ace_ray.calibration.hard_set import hard_set
from ace_ray.calibration.softmax import top1_confidence
from ace_ray.errors import DataError, UsageError


class EstimationWarning(UserWarning):
    """An estimated accuracy left (0, 1) and was clamped."""


def difference_of_confidences(
    confidence: ArrayLike, correct: ArrayLike, test_confidence: ArrayLike, slope: float = 1.0
) -> float:
    """Estimate test accuracy by DoC (Guillory et al., 2021): Acc_o - slope (conf_o - conf_test).

    The authors' code uses slope 2; the paper's formula has 1.
    """
    p, hit = as_confidence(confidence, correct)
    test = as_unit(test_confidence)
    return float(hit.mean() - as_number(slope, "slope") * (p.mean() - test.mean()))


def average_thresholded_confidence(
    confidence: ArrayLike, correct: ArrayLike, test_confidence: ArrayLike
) -> float:
    """Estimate test accuracy by ATC (Garg et al., 2022).

    The share of test confidences above the threshold that as many calibration samples exceed as
    are right.
    """
    p, hit = as_confidence(confidence, correct)
    test = as_unit(test_confidence)
    right = int(np.count_nonzero(hit))
    if right in (0, len(p)):
        return right / len(p)
    threshold = np.sort(p)[len(p) - right - 1]
    # Of the calibration samples at the threshold itself, this share counts as above it.
    tied = (right - np.count_nonzero(p > threshold)) / np.count_nonzero(p == threshold)
    return float(np.mean(test > threshold) + tied * np.mean(test == threshold))


_ESTIMATORS: Final[tuple[str, ...]] = ("doc", "atc")


class Estimation:
    """Fit a calibrator on the part of the calibration set as difficult as the test set seems.

    The test accuracy is estimated without labels, turned into a difficulty
    d = (1 - accuracy) / accuracy, and the largest subset of the calibration set with that
    difficulty is drawn (Sec. 3.4, "an alternative method").

    Args:
        calibrator: The family; it is copied for each test set.
        estimator: "doc" (difference of confidences) or "atc" (average thresholded confidence).
        slope: Of the difference of confidences.
        seed: Draws the subset.
    """

    logits_: FloatArray
    labels_: IntArray

    def __init__(
        self,
        calibrator: Calibrator,
        estimator: Literal["doc", "atc"] = "doc",
        slope: float = 1.0,
        seed: int = 1,
    ) -> None:
        self.calibrator = calibrator
        self.estimator = estimator
        self.slope = slope
        self.seed = seed

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """Keep the calibration set; fitting waits for a test set."""
        if self.estimator not in _ESTIMATORS:
            raise UsageError(f"estimator: expected one of {_ESTIMATORS}, got {self.estimator!r}")
        self.logits_ = as_logits(logits)
        self.labels_ = as_labels(labels, self.logits_)
        self._correct = self.logits_.argmax(axis=1) == self.labels_
        self._confidence = _confidences(self.logits_)
        return self

    def estimated_accuracy(self, test_logits: ArrayLike) -> float:
        """Return the estimated accuracy on a test set, clamped into (0, 1) with a warning."""
        if not hasattr(self, "logits_"):
            raise UsageError("Estimation is not fitted; call fit(logits, labels) first")
        test = _confidences(as_logits(test_logits))
        return self._accuracy(self._confidence, self._correct, test)

    def _accuracy(self, confidence: FloatArray, correct: BoolArray, test: FloatArray) -> float:
        estimate: Callable[[], float] = {
            "doc": lambda: difference_of_confidences(confidence, correct, test, self.slope),
            "atc": lambda: average_thresholded_confidence(confidence, correct, test),
        }[self.estimator]
        accuracy = estimate()
        # The furthest that a subset of the calibration set with both kinds of samples can reach.
        right = int(correct.sum())
        wrong = len(correct) - right
        clamped = min(max(accuracy, 1 / (1 + wrong)), right / (1 + right))
        if clamped != accuracy:
            warnings.warn(
                f"estimated accuracy {accuracy:.4f} clamped to {clamped:.4f}",
                EstimationWarning,
                stacklevel=3,
            )
        return clamped

    def difficulty_from(
        self, confidence: FloatArray, correct: BoolArray, test: FloatArray
    ) -> float:
        """Return the difficulty of a test set, where all top-1 confidences are known already."""
        accuracy = self._accuracy(confidence, correct, test)
        return (1 - accuracy) / accuracy

    def estimated_difficulty(self, test_logits: ArrayLike) -> float:
        """Return d = wrong : right that the test set seems to have."""
        accuracy = self.estimated_accuracy(test_logits)
        return (1 - accuracy) / accuracy

    def calibrator_for(self, test_logits: ArrayLike) -> Calibrator:
        """Return a calibrator fitted at the test set's estimated difficulty."""
        d = self.estimated_difficulty(test_logits)
        try:
            mask = hard_set(self._correct, d, np.random.default_rng(self.seed))
        except DataError as error:
            raise DataError(
                f"estimation: no calibration set at difficulty {d:.4g}: {error}"
            ) from error
        return copy.deepcopy(self.calibrator).fit(self.logits_, self.labels_, mask)

    def predict_proba(self, logits: ArrayLike) -> FloatArray:
        """Return calibrated probabilities of a test set."""
        return self.calibrator_for(logits).predict_proba(logits)

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return calibrated top-1 confidences of a test set."""
        return self.calibrator_for(logits).predict_confidence(logits)


def _confidences(z: FloatArray) -> FloatArray:
    return np.concatenate([top1_confidence(z[rows]) for rows in row_blocks(*z.shape)])
