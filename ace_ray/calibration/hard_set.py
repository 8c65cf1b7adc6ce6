"""The hard part of a calibration set (Sec. 3.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray
from ace_ray.calibration.arguments import as_correct, as_number
from ace_ray.errors import DataError


def hard_set(correct: ArrayLike, difficulty: float, rng: np.random.Generator) -> BoolArray:
    """Draw the largest subset with difficulty N_F / N_T = d (Sec. 3.3), as a mask.

    All samples of the scarce side are kept, the other side is drawn without replacement; the
    ratio holds to within one sample. The authors' code draws with replacement.

    Raises:
        DataError: If d is not positive, or a side would be empty.
    """
    right = as_correct(correct)
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    difficulty = as_number(difficulty, "difficulty (wrong : right)", 0, above=True)
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
