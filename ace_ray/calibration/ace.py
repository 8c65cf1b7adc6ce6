"""Adaptive Calibrator Ensemble (Zou, Deng, Zheng, ICCV 2023)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration.arguments import (
    as_array,
    as_count,
    as_labels,
    as_logits,
    as_number,
)
from ace_ray.calibration.base import Calibrator, LogitCalibrator, Space, with_top
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.hard_set import hard_set
from ace_ray.calibration.metrics import difficulty as difficulty_of
from ace_ray.calibration.softmax import mean_confidence, softmax
from ace_ray.errors import DataError, UsageError


class ACE:
    """Mix a calibrator fitted on the whole calibration set with one fitted on its hard part.

    `z_cal = alpha f_o(z) + (1 - alpha) f_h(z)` with
    `alpha = avgConf(test) / avgConf(calibration)` from uncalibrated softmax (Eq. 5 and 6): no
    test label is needed. For temperature scaling the ensemble is itself one temperature,
    `1/T = alpha/T_o + (1 - alpha)/T_h` (Eq. 8).

    Args:
        calibrator: The family; it is copied, never fitted itself.
        difficulty: d = wrong : right of the hard set; None takes the whole set for both.
        seed: Draws the hard set, through `numpy.random.default_rng(seed)`.
        clip_alpha: Keep alpha in [0, 1]. The authors' code does not.
        space: What is mixed: "logits", "probs", "confidence", or "geometric" (probabilities, or
            confidences where only these are defined, to the powers alpha and 1 - alpha). None: the
            calibrator's own default, which is that of the authors' code.
        same_size: Fit f_o on a random part of the calibration set as large as the hard set.
        classes: Indices of the classes that the test set has (200 for ImageNet-R): calibrators act
            on all logits, then these columns are kept for confidence, probabilities and alpha.
        alpha_reference: "full" divides by the mean confidence over all classes, as the authors do;
            "matched" computes the calibration set's mean confidence on `classes` too.

    Attributes:
        easy_: f_o, fitted on the whole calibration set.
        hard_: f_h, fitted on the hard set.
        hard_mask_: Which samples form the hard set.
        difficulty_: N_F / N_T of the hard set as drawn.
        avg_confidence_: Mean uncalibrated confidence on the calibration set.
        width_: Number of classes of the logits.

    >>> import numpy as np
    >>> from ace_ray import ACE, TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 5, 400)
    >>> logits = 4 * rng.normal(size=(400, 5)) + 4 * np.eye(5)[labels]
    >>> ace = ACE(TemperatureScaling(), difficulty=2, seed=1).fit(logits, labels)
    >>> ace.alpha(logits)
    1.0
    >>> ace.alpha(0.3 * logits) < 1
    True
    """

    easy_: Calibrator
    hard_: Calibrator
    hard_mask_: BoolArray
    difficulty_: float
    avg_confidence_: float
    width_: int

    def __init__(
        self,
        calibrator: Calibrator,
        difficulty: float | None = 10,
        seed: int = 1,
        clip_alpha: bool = True,
        *,
        space: Space | None = None,
        same_size: bool = False,
        classes: Sequence[int] | IntArray | None = None,
        alpha_reference: Literal["full", "matched"] = "full",
    ) -> None:
        self.calibrator = calibrator
        self.difficulty = difficulty
        self.seed = seed
        self.clip_alpha = clip_alpha
        self.space = space
        self.same_size = same_size
        self.classes = classes
        self.alpha_reference = alpha_reference

    def fit(self, logits: ArrayLike, labels: ArrayLike, *, easy: Calibrator | None = None) -> Self:
        """Fit both calibrators.

        Args:
            logits: (N, C) of the calibration set.
            labels: (N,).
            easy: f_o, where it is already fitted on these logits (a sweep fits it once).
        """
        z = as_logits(logits)
        y = as_labels(labels, z)
        self._check_params(z.shape[1], easy)
        self.width_ = z.shape[1]
        correct = np.concatenate([z[r].argmax(axis=1) == y[r] for r in row_blocks(*z.shape)])
        rng = np.random.default_rng(self.seed)
        if self.difficulty is None:
            self.hard_mask_ = np.ones(len(z), bool)
        else:
            self.hard_mask_ = hard_set(correct, self.difficulty, rng)
        self.difficulty_ = difficulty_of(correct[self.hard_mask_])
        reference = self.classes if self.alpha_reference == "matched" else None
        self.avg_confidence_ = mean_confidence(z, reference)
        part = None
        if self.same_size:
            part = np.zeros(len(z), bool)
            part[rng.choice(len(z), int(self.hard_mask_.sum()), replace=False)] = True
        self.easy_ = copy.deepcopy(self.calibrator).fit(z, y, part) if easy is None else easy
        self.hard_ = copy.deepcopy(self.calibrator).fit(z, y, self.hard_mask_)
        return self

    def _check_params(self, width: int, easy: Calibrator | None) -> None:
        if not isinstance(self.calibrator, Calibrator):
            raise UsageError(
                f"calibrator: expected an instance such as TemperatureScaling(), "
                f"got {self.calibrator!r}"
            )
        as_count(self.seed, "seed", 0)
        if easy is not None and (type(easy) is not type(self.calibrator) or not easy.is_fitted()):
            raise UsageError(f"easy: expected a fitted {type(self.calibrator).__name__}")
        known = ("logits", "probs", "confidence", "geometric", None)
        if self.space not in known:
            raise UsageError(f"space: expected one of {known}, got {self.space!r}")
        if self.alpha_reference not in ("full", "matched"):
            raise UsageError(
                f"alpha_reference: expected 'full' or 'matched', got {self.alpha_reference!r}"
            )
        if self.mixing_space() == "logits" and not isinstance(self.calibrator, LogitCalibrator):
            raise UsageError(
                f"{type(self.calibrator).__name__} has no calibrated logits to mix; "
                "use space='confidence', 'probs' or 'geometric'"
            )
        if self.classes is not None:
            index = as_array(self.classes, "classes")
            whole = index.ndim == 1 and index.dtype.kind in "iu"
            distinct = whole and len(np.unique(index)) == len(index) >= 2
            if not distinct or index.min() < 0 or index.max() >= width:
                raise DataError(
                    f"classes: expected two or more distinct indices in 0..{width - 1}, "
                    f"got {index.dtype} of shape {index.shape}"
                )

    def mixing_space(self) -> Space:
        """Return what is mixed: the given space or the calibrator's default."""
        return self.space or self.calibrator.space

    def alpha_raw(self, test_logits: ArrayLike) -> float:
        """Return avgConf(test) / avgConf(calibration), unclipped (Eq. 6)."""
        return mean_confidence(self._checked(test_logits), self.classes) / self.avg_confidence_

    def alpha(self, test_logits: ArrayLike) -> float:
        """Return the weight of f_o for this test set, in [0, 1] unless `clip_alpha` is off."""
        return self.clipped(self.alpha_raw(test_logits))

    def clipped(self, alpha_raw: float) -> float:
        """Return alpha from its raw value."""
        return min(max(alpha_raw, 0.0), 1.0) if self.clip_alpha else alpha_raw

    def alphas(self, test_logits: ArrayLike, batch_size: int) -> FloatArray:
        """Return alpha of each consecutive batch of the test set."""
        z = self._checked(test_logits)
        as_count(batch_size, "batch_size")
        starts = range(0, len(z), batch_size)
        return np.array([self.alpha(z[start : start + batch_size]) for start in starts])

    def transform(self, logits: ArrayLike, alpha: float | None = None) -> FloatArray:
        """Return the mixed logits (space "logits"); alpha comes from these logits unless given."""
        if self.mixing_space() != "logits":
            raise UsageError(f"space is {self.mixing_space()!r}: there are no mixed logits")
        z = self._checked(logits)
        weight = self._alpha_rows(z, alpha, None)
        out = np.empty((len(z), self._width(z)))
        for rows in row_blocks(*z.shape):
            out[rows] = self._mixed_logits(block_of(z, rows, np.float64), weight[rows])
        return out

    def predict_proba(
        self, logits: ArrayLike, alpha: float | None = None, batch_size: int | None = None
    ) -> FloatArray:
        """Return calibrated probabilities.

        Args:
            logits: (N, C) of the test set, all classes.
            alpha: A fixed weight of f_o; from these logits if None.
            batch_size: Compute alpha from each batch of this size instead of the whole.
        """
        z = self._checked(logits)
        weight = self._alpha_rows(z, alpha, batch_size)
        out = np.empty((len(z), self._width(z)))
        for rows in row_blocks(*z.shape):
            out[rows] = self._proba(block_of(z, rows, np.float64), weight[rows])
        return out

    def predict_confidence(
        self, logits: ArrayLike, alpha: float | None = None, batch_size: int | None = None
    ) -> FloatArray:
        """Return the calibrated confidence of the top-1 prediction; arguments as above."""
        z = self._checked(logits)
        weight = self._alpha_rows(z, alpha, batch_size)
        out = np.empty(len(z))
        for rows in row_blocks(*z.shape):
            block = block_of(z, rows, np.float64)
            if self._by_confidence():
                out[rows] = self._mixed_confidence(block, weight[rows])
            else:
                out[rows] = self._proba(block, weight[rows]).max(axis=1)
        return out

    def _alpha_rows(self, z: FloatArray, alpha: float | None, batch: int | None) -> FloatArray:
        if alpha is not None and batch is not None:
            raise UsageError("give alpha or batch_size, not both")
        if alpha is not None:
            as_number(alpha, "alpha")
        if batch is not None:
            return np.repeat(self.alphas(z, batch), batch)[: len(z)]
        return np.full(len(z), self.alpha(z) if alpha is None else alpha)

    def _by_confidence(self) -> bool:
        """Whether confidences are mixed rather than whole vectors.

        For a calibrator of the confidence alone they always are: mixing its vectors linearly is
        mixing its confidences.
        """
        return self.mixing_space() == "confidence" or not isinstance(
            self.calibrator, LogitCalibrator
        )

    def predict(self, logits: ArrayLike) -> IntArray:
        """Return the class whose confidence `predict_confidence` states (of the kept classes)."""
        z = self._checked(logits)
        if not isinstance(self.calibrator, LogitCalibrator):
            return np.asarray(self._subset(z).argmax(axis=1))
        return np.asarray(self.predict_proba(z).argmax(axis=1))

    def _subset(self, values: FloatArray) -> FloatArray:
        return values if self.classes is None else values[:, np.asarray(self.classes)]

    def _width(self, z: FloatArray) -> int:
        return z.shape[1] if self.classes is None else len(self.classes)

    def _both(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities of f_o and f_h on the kept classes."""
        p_o, p_h = (self._subset(f._proba(z)) for f in (self.easy_, self.hard_))
        if self.classes is not None:
            p_o, p_h = (p / p.sum(axis=1, keepdims=True) for p in (p_o, p_h))
        return p_o, p_h

    def _mixed_logits(self, z: FloatArray, alpha: FloatArray) -> FloatArray:
        assert isinstance(self.easy_, LogitCalibrator)
        assert isinstance(self.hard_, LogitCalibrator)
        mixed = _mix(self.easy_._map_logits(z), self.hard_._map_logits(z), alpha[:, None])
        return self._subset(mixed)

    def _mixed_confidence(self, z: FloatArray, alpha: FloatArray) -> FloatArray:
        if self.classes is None:
            c_o, c_h = (f._confidence(z) for f in (self.easy_, self.hard_))
        elif isinstance(self.easy_, LogitCalibrator):
            c_o, c_h = (p.max(axis=1) for p in self._both(z))
        else:
            # A map of confidences acts on the confidence that the kept classes have.
            kept = self._subset(z)
            c_o, c_h = (f._confidence(kept) for f in (self.easy_, self.hard_))
        return mix_confidence(c_o, c_h, alpha, geometric=self.mixing_space() == "geometric")

    def _proba(self, z: FloatArray, alpha: FloatArray) -> FloatArray:
        if not isinstance(self.calibrator, LogitCalibrator):
            return with_top(softmax(self._subset(z)), self._mixed_confidence(z, alpha))
        if self.mixing_space() == "logits":
            return softmax(self._mixed_logits(z, alpha))
        p_o, p_h = self._both(z)
        if self.mixing_space() in ("probs", "confidence"):
            mixed = np.clip(_mix(p_o, p_h, alpha[:, None]), 0, 1)
            beyond = (alpha < 0) | (alpha > 1)
            mixed[beyond] /= mixed[beyond].sum(axis=1, keepdims=True)
            if self.mixing_space() == "probs":
                return mixed
            return with_top(mixed, self._mixed_confidence(z, alpha))
        product = _geometric(p_o, p_h, alpha[:, None])
        return np.asarray(product / product.sum(axis=1, keepdims=True))

    def _check_fitted(self) -> None:
        if not hasattr(self, "avg_confidence_"):
            raise UsageError("ACE is not fitted; call fit(logits, labels) first")

    def _checked(self, logits: ArrayLike) -> FloatArray:
        """Return test logits of the width that ACE was fitted on."""
        self._check_fitted()
        z = as_logits(logits)
        if z.shape[1] != self.width_:
            raise DataError(
                f"logits: {z.shape[1]} classes, but ACE was fitted on {self.width_}; pass all "
                "classes, `classes` selects"
            )
        return z

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of `__init__`."""
        names = ("calibrator", "difficulty", "seed", "clip_alpha", "space", "same_size", "classes",
                 "alpha_reference")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def save(self, path: str) -> None:
        """Write `ace.json` and `ace.safetensors` into the folder `path`."""
        from ace_ray.calibration.persistence import save

        save(self, path)


def mix_confidence(
    easy: FloatArray, hard: FloatArray, alpha: FloatArray, *, geometric: bool
) -> FloatArray:
    """Return the confidence that f_o and f_h state together."""
    if geometric:
        return _geometric(easy, hard, alpha)
    # A weight outside [0, 1] can push a mixed confidence out of its range.
    return np.clip(_mix(easy, hard, alpha), 0, 1)


def _mix(a: FloatArray, b: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return alpha a + (1 - alpha) b; exactly one of them at the ends."""
    mixed = alpha * a + (1 - alpha) * b
    return np.where(alpha == 1, a, np.where(alpha == 0, b, mixed))


def _geometric(a: FloatArray, b: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return a^alpha b^(1 - alpha); exactly one of them at the ends.

    A base of 0 counts as the smallest number, so that no weight makes an infinity of it.
    """
    tiny = np.finfo(np.float64).tiny
    logs = alpha * np.log(np.maximum(a, tiny)) + (1 - alpha) * np.log(np.maximum(b, tiny))
    # Bounded above: what is mixed are probabilities.
    mixed = np.exp(np.minimum(logs, 0)) if a.ndim == 1 else np.exp(logs)
    return np.where(alpha == 1, a, np.where(alpha == 0, b, mixed))
