"""One ACE per source domain, ensembled: a walk over a split's logits (Sec. 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ace_ray.calibration import ConfidenceCalibrator
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.softmax import true_class
from ace_ray.sweep.evaluate import Job, mixture
from ace_ray.sweep.measure import Measured, Output, as_row, figures
from ace_ray.sweep.trial import TrialSpec
from ace_ray.sweep.view import View


def measure_ensemble(spec: TrialSpec, view: View, members: Sequence[Job]) -> Measured:
    """Measure the mean of the members' outputs, as `MultiSourceACE` states it.

    Probabilities are averaged, and the prediction is that of the mean; where members mix
    confidences, these are averaged. Each member has its own alpha; the row has their mean.

    Args:
        spec: The trial.
        view: The split.
        members: One ACE per domain.
    """
    n = len(view.z)
    output = Output(np.empty(n), np.empty(n, bool), np.empty(n))
    weights = [job.weight for job in members if job.weight is not None]
    aces = [mixture(view, job) for job in members]
    own = isinstance(aces[0].easy_, ConfidenceCalibrator)
    for rows in row_blocks(*view.z.shape):
        block = block_of(view.z, rows, np.float64)
        pairs = [(ace, weight.rows[rows]) for ace, weight in zip(aces, weights, strict=True)]
        p = np.mean([ace._proba(block, alpha) for ace, alpha in pairs], axis=0)
        if aces[0]._by_confidence():
            each = [ace._mixed_confidence(block, alpha) for ace, alpha in pairs]
            output.confidence[rows] = np.mean(each, axis=0)
        else:
            output.confidence[rows] = p.max(axis=1)
        # A calibrator of the confidence alone states it for the network's own prediction.
        right = view.correct[rows] if own else p.argmax(axis=1) == view.label[rows]
        output.correct[rows] = right
        output.truth[rows] = true_class(p, view.label[rows])
    alpha, raw = (float(np.mean([getattr(w, name) for w in weights])) for name in ("alpha", "raw"))
    return as_row(spec, view.split, figures(output, spec), alpha, raw)
