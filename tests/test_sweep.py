"""The sweep's engine: what a trial by itself gives, whoever computes it, whatever beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ace_ray.identity import canonical_json
from ace_ray.sweep.engine import sweep
from ace_ray.sweep.reference import fit_trial
from ace_ray.sweep.trial import EvaluationSplit, TrialResult, TrialSpec

ALL = ("temperature", "vector", "spline", "isotonic", "histogram", "matrix", "dirichlet", "avuts")
C = 8


def split(
    name: str, role: str, n: int, scale: float, seed: int, subset: tuple[int, ...] | None = None
) -> EvaluationSplit:
    rng = np.random.default_rng(seed)
    label = rng.choice(np.arange(C) if subset is None else np.asarray(subset), n)
    logits = scale * (rng.normal(size=(n, C)) + 1.3 * np.eye(C)[label])
    return EvaluationSplit(
        "bench", name, None, None, role, label.astype(np.int32), logits.astype(np.float32), subset
    )


SPLITS = [
    split("here", "calibration", 700, 3.0, 1),
    split("there", "calibration", 500, 4.0, 2),
    split("test", "id", 400, 3.2, 3),
    split("fog", "ood", 300, 1.5, 4),
    split("few", "ood", 350, 2.0, 5, (6, 1, 3, 2)),
]


def ace(calibrator: str = "temperature", **fields: Any) -> TrialSpec:
    common = {"model": "m", "method": "ace", "difficulty": 3.0, "seed": 1}
    return TrialSpec(calibrator=calibrator, **{**common, **fields})


def specs() -> list[TrialSpec]:
    found = [TrialSpec(model="m", method="uncalibrated")]
    for name in ALL:
        found += [
            ace(name),
            ace(name, method="alone", difficulty=None),
            ace(name, method="hard"),
            ace(name, method="estimation", difficulty=None),
        ]
    for name in ("temperature", "vector", "spline"):
        found += [
            ace(name, seed=2),
            ace(name, clip_alpha=False),
            ace(name, fixed_alpha=0.3),
            ace(name, batch=64),
            ace(name, size=200),
            ace(name, hard_size=150),
            ace(name, same_size=True),
            ace(name, method="alone", same_size=True),
            ace(name, domain="there"),
            ace(name, domain="there", method="estimation", difficulty=None),
            ace(name, bins=10),
            ace(name, space="geometric"),
            ace(name, space="probs"),
            ace(name, space="confidence"),
        ]
    return found


def keyed(specs: list[TrialSpec]) -> dict[str, TrialSpec]:
    return {spec.key([]): spec for spec in specs}


def text(result: TrialResult | str) -> str:
    assert not isinstance(result, str), result
    return canonical_json(result._asdict())


@pytest.fixture(scope="module")
def results() -> dict[str, TrialResult | str]:
    return sweep(keyed(specs()), SPLITS)


@pytest.mark.parametrize("spec", specs(), ids=str)
def test_the_engine_says_what_a_trial_by_itself_says(
    spec: TrialSpec, results: dict[str, TrialResult | str]
) -> None:
    """To the last bit: small tables go the straight way."""
    assert text(results[spec.key([])]) == text(fit_trial(spec, SPLITS))
