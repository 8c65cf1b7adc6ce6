"""Adaptive Calibrator Ensemble (Zou, Deng, Zheng, ICCV 2023)."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray
from ace_ray.calibration.arguments import as_labels, as_logits
from ace_ray.calibration.base import Calibrator
from ace_ray.calibration.metrics import difficulty as difficulty_of
from ace_ray.calibration.softmax import softmax, top1_confidence
from ace_ray.errors import DataError


def hard_set(correct: ArrayLike, difficulty: float, rng: np.random.Generator) -> BoolArray:
    """Draw the largest subset with difficulty N_F / N_T = d (Sec. 3.3), as a mask.

    All samples of the scarce side are kept, the other side is drawn without replacement; the
    ratio holds to within one sample. The authors' code draws with replacement.

    Raises:
        DataError: If d is not positive, or a side would be empty.
    """
    right = np.asarray(correct, bool)
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    if not (np.isfinite(difficulty) and difficulty > 0):
        raise DataError(f"difficulty: expected a number above 0 (wrong : right), got {difficulty}")
    keep_right = min(n_right, round(n_wrong / difficulty))
    keep_wrong = n_wrong if n_wrong / difficulty <= n_right else round(n_right * difficulty)
    if min(keep_right, keep_wrong) < 1:
        raise DataError(
            f"hard set: difficulty {difficulty:g} needs at least one right and one wrong sample, "
            f"but {n_right} right and {n_wrong} wrong leave {keep_right} and {keep_wrong}; "
            "use a larger calibration set or another difficulty"
        )
    mask = np.zeros(len(right), bool)
    mask[rng.choice(np.flatnonzero(right), keep_right, replace=False)] = True
    mask[rng.choice(np.flatnonzero(~right), keep_wrong, replace=False)] = True
    return mask


class ACE:
    """Mix a calibrator fitted on the whole calibration set with one fitted on its hard part.

    `z_cal = alpha f_o(z) + (1 - alpha) f_h(z)` with
    `alpha = avgConf(test) / avgConf(calibration)` from uncalibrated softmax (Eq. 5 and 6): no
    test label is needed. For temperature scaling the ensemble is itself one temperature,
    `1/T = alpha/T_o + (1 - alpha)/T_h` (Eq. 8).

    Attributes:
        easy_: f_o, fitted on the whole calibration set.
        hard_: f_h, fitted on the hard set.
        hard_mask_: Which samples form the hard set.
        difficulty_: N_F / N_T of the hard set as drawn.
        avg_confidence_: Mean uncalibrated confidence on the calibration set.

    >>> import numpy as np
    >>> from ace_ray.calibration import ACE, TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 5, 400)
    >>> logits = 4 * rng.normal(size=(400, 5)) + 4 * np.eye(5)[labels]
    >>> ace = ACE(TemperatureScaling(), difficulty=2, seed=1).fit(logits, labels)
    >>> ace.alpha(logits)
    1.0
    """

    easy_: Calibrator
    hard_: Calibrator
    hard_mask_: BoolArray
    difficulty_: float
    avg_confidence_: float

    def __init__(
        self,
        calibrator: Calibrator,
        difficulty: float = 10,
        seed: int = 1,
        clip_alpha: bool = True,
    ) -> None:
        self.calibrator = calibrator
        self.difficulty = difficulty
        self.seed = seed
        self.clip_alpha = clip_alpha

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """Fit both calibrators; the hard set is drawn with `numpy.random.default_rng(seed)`."""
        z = as_logits(logits)
        y = as_labels(labels, z)
        correct = z.argmax(axis=1) == y
        self.hard_mask_ = hard_set(correct, self.difficulty, np.random.default_rng(self.seed))
        self.difficulty_ = difficulty_of(correct[self.hard_mask_])
        self.avg_confidence_ = float(top1_confidence(z).mean())
        self.easy_ = copy.deepcopy(self.calibrator).fit(z, y)
        self.hard_ = copy.deepcopy(self.calibrator).fit(z, y, self.hard_mask_)
        return self

    def alpha_raw(self, test_logits: ArrayLike) -> float:
        """Return avgConf(test) / avgConf(calibration), unclipped (Eq. 6)."""
        return float(top1_confidence(as_logits(test_logits)).mean() / self.avg_confidence_)

    def alpha(self, test_logits: ArrayLike) -> float:
        """Return the weight of f_o for this test set, in [0, 1] unless `clip_alpha` is off."""
        return self.clipped(self.alpha_raw(test_logits))

    def clipped(self, alpha_raw: float) -> float:
        """Return alpha from its raw value."""
        return min(max(alpha_raw, 0.0), 1.0) if self.clip_alpha else alpha_raw

    def transform(self, logits: ArrayLike, alpha: float | None = None) -> FloatArray:
        """Return the mixed logits; alpha comes from these logits unless given."""
        z = as_logits(logits)
        a = self.alpha(z) if alpha is None else alpha
        # At the ends the mix is one calibrator exactly, with no rounding from the other.
        if a == 1:
            return self.easy_.transform(z)
        if a == 0:
            return self.hard_.transform(z)
        return a * self.easy_.transform(z) + (1 - a) * self.hard_.transform(z)

    def predict_proba(self, logits: ArrayLike, alpha: float | None = None) -> FloatArray:
        """Return softmax of the mixed logits."""
        return softmax(self.transform(logits, alpha))

    def predict_confidence(self, logits: ArrayLike, alpha: float | None = None) -> FloatArray:
        """Return the largest probability of each row."""
        return top1_confidence(self.transform(logits, alpha))
