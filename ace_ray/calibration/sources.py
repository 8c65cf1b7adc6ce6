"""Several source domains: one ACE per domain, ensembled."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import FloatArray
from ace_ray.calibration.ace import ACE
from ace_ray.errors import DataError, UsageError


class MultiSourceACE:
    """One ACE per source domain, ensembled by the mean of their outputs (Sec. 3.5).

    Attributes:
        aces_: The fitted members, in the order of the domains.
    """

    aces_: list[ACE]

    def __init__(self, ace: ACE) -> None:
        self.ace = ace

    def fit(self, domains: Iterable[tuple[ArrayLike, ArrayLike]]) -> Self:
        """Fit on (logits, labels) of each domain."""
        self.aces_ = [copy.deepcopy(self.ace).fit(z, y) for z, y in domains]
        if not self.aces_:
            raise DataError("domains: expected at least one (logits, labels) pair")
        return self

    def _members(self) -> list[ACE]:
        if not getattr(self, "aces_", None):
            raise UsageError("MultiSourceACE is not fitted; call fit(domains) first")
        return self.aces_

    def alpha(self, test_logits: ArrayLike) -> FloatArray:
        """Return alpha of each member."""
        return np.array([ace.alpha(test_logits) for ace in self._members()])

    def predict_proba(self, logits: ArrayLike) -> FloatArray:
        """Return the members' mean probabilities."""
        return np.asarray(np.mean([ace.predict_proba(logits) for ace in self._members()], axis=0))

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return the confidence in the top-1 prediction: of the mean, or the members' mean.

        Members that mix confidences agree on the prediction; those that mix whole vectors may not,
        and the mean vector states the confidence.
        """
        members = self._members()
        if members[0]._by_confidence():
            return np.asarray(np.mean([ace.predict_confidence(logits) for ace in members], axis=0))
        return np.asarray(self.predict_proba(logits).max(axis=1))
