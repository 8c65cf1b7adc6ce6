"""The sweep's engine: what a trial by itself gives, whoever computes it, whatever beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ace_ray.sweep.fits as fits_module
import ace_ray.sweep.view as view_module
from ace_ray.calibration import ACE, TemperatureScaling
from ace_ray.identity import canonical_json
from ace_ray.sweep.draws import hard_part, same_size_part, sized_part
from ace_ray.sweep.engine import sweep
from ace_ray.sweep.reference import fit_trial
from ace_ray.sweep.trial import EVERY_DOMAIN, EvaluationSplit, TrialResult, TrialSpec

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
            ace(name, domain=EVERY_DOMAIN),
            ace(name, domain=EVERY_DOMAIN, clip_alpha=False, seed=2),
            ace(name, domain="there", method="estimation", difficulty=None),
            ace(name, bins=10),
            ace(name, space="geometric"),
            ace(name, space="probs"),
            ace(name, space="confidence"),
            ace(name, space="confidence", domain=EVERY_DOMAIN),
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


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table goes the way of large ones."""
    monkeypatch.setattr(fits_module, "LARGE", 0)
    monkeypatch.setattr(view_module, "LARGE", 0)


def test_the_ways_of_large_tables_agree(large: None) -> None:
    found = sweep(keyed(specs()), SPLITS)
    for spec in specs():
        mine, expected = found[spec.key([])], fit_trial(spec, SPLITS)
        assert isinstance(mine, TrialResult)
        assert mine.warnings == expected.warnings
        for row, truth in zip(mine.measurements, expected.measurements, strict=True):
            for name, value in truth.items():
                if isinstance(value, float):
                    assert row[name] == pytest.approx(value, abs=1e-9), (str(spec), name)
                else:
                    assert row[name] == value


def test_a_trial_does_not_know_its_neighbours(large: None) -> None:
    """Alone, in another order, in small walks over the logits: the same to the last bit."""
    todo = [s for s in specs() if s.calibrator in (None, "temperature", "vector", "spline")]
    together = sweep(keyed(todo), SPLITS)
    backwards = sweep(keyed(todo[::-1]), SPLITS, memory=1 << 10)
    for spec in todo:
        key = spec.key([])
        assert text(together[key]) == text(backwards[key])
    for spec in todo[::7]:
        assert text(sweep(keyed([spec]), SPLITS)[spec.key([])]) == text(together[spec.key([])])


def test_a_bound_that_is_hit_is_said(large: None) -> None:
    steep = [s._replace(logits=s.logits / 1000) for s in SPLITS]
    spec = ace(method="alone", difficulty=None)
    (found,) = sweep(keyed([spec]), steep).values()
    assert isinstance(found, TrialResult)
    assert found.warnings == fit_trial(spec, steep).warnings
    assert "is at its bound" in found.warnings[0]


def test_draws_are_those_of_ace() -> None:
    """The hard set, and the part of its size, are the ones that `ACE` draws."""
    z, y = SPLITS[0].logits, SPLITS[0].label
    correct = z.argmax(1) == y
    mask = hard_part(correct, 3.0, 7, None)
    plain = ACE(TemperatureScaling(), 3.0, 7).fit(z, y)
    assert (mask == plain.hard_mask_).all()
    same = ACE(TemperatureScaling(), 3.0, 7, same_size=True).fit(z, y)
    part = same_size_part(correct, 3.0, 7)
    assert part.sum() == mask.sum()
    assert TemperatureScaling().fit(z, y, part).temperature_ == same.easy_.temperature_
    cut = hard_part(correct, 3.0, 7, 50)
    assert cut.sum() == 50
    assert not (cut & ~mask).any()
    assert sized_part(correct, 7, 200).sum() == 200
    # More than there are: all of them.
    assert sized_part(correct, 7, 701).all()
    assert (hard_part(correct, 3.0, 7, 701) == mask).all()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ace(difficulty=1e6), "hard set: difficulty 1e\\+06 needs"),
        (ace(domain="nowhere"), "'nowhere'; there are here, there"),
        (ace("spline", space="logits"), "no calibrated logits"),
    ],
)
def test_a_trial_that_cannot_be_fitted_says_why_and_the_others_stay(
    spec: TrialSpec, message: str
) -> None:
    found = sweep(keyed([spec, ace()]), SPLITS)
    with pytest.raises(AssertionError, match=message):
        text(found[spec.key([])])
    assert text(found[ace().key([])]) == text(fit_trial(ace(), SPLITS))
