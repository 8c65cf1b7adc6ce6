"""Families of one temperature: the exact fit, the table of many fits, AvUTS."""

from __future__ import annotations

import numpy as np
import pytest

import ace_ray
from ace_ray.calibration import CALIBRATORS, TemperatureTable, hard_set
from ace_ray.calibration.avuts import avu_loss
from ace_ray.calibration.temperature import BoundWarning
from ace_ray.errors import DataError
from tests.samples import sample

NAMES = sorted(CALIBRATORS)


def test_avu_loss_by_hand() -> None:
    confidence, entropy = np.array([0.9, 0.6, 0.8, 0.5]), np.array([0.1, 0.9, 0.2, 1.0])
    correct = np.array([True, True, False, False])
    # accurate-certain, accurate-uncertain, inaccurate-certain, inaccurate-uncertain
    ac, au = 0.9 * (1 - np.tanh(0.1)), 0.6 * np.tanh(0.9)
    ic, iu = 0.2 * (1 - np.tanh(0.2)), 0.5 * np.tanh(1.0)
    expected = np.log(1 + (au + ic) / (ac + iu))
    assert avu_loss(confidence, entropy, correct, np.ones(4), 0.5) == pytest.approx(expected)


def test_avuts_without_its_loss_is_temperature_scaling() -> None:
    logits, labels = sample()
    plain = ace_ray.TemperatureScaling().fit(logits, labels)
    assert ace_ray.AvUTS(beta=0).fit(logits, labels).temperature_ == pytest.approx(
        plain.temperature_, rel=1e-4
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_table_equals_an_exact_fit_of_every_weighting(dtype: type) -> None:
    logits, labels = sample(4000, 40, seed=9)
    logits = logits.astype(dtype)
    correct = logits.argmax(1) == labels
    grid = [(d, s) for d in (0.5, 1, 3, 10, 15) for s in range(4)]
    masks = np.array([hard_set(correct, d, np.random.default_rng(s)) for d, s in grid])
    found = TemperatureTable(logits, labels).fit(masks)
    for mask, t in zip(masks, found, strict=True):
        exact = ace_ray.TemperatureScaling().fit(logits.astype(np.float64)[mask], labels[mask])
        assert t == pytest.approx(exact.temperature_, rel=1e-5)


def test_table_stops_at_its_bounds() -> None:
    logits, labels = sample(500)
    correct = logits.argmax(1) == labels
    found = TemperatureTable(logits, labels, bounds=(0.5, 4)).fit(np.array([correct, ~correct]))
    assert found.tolist() == [0.5, 4.0]
    with pytest.raises(DataError, match="weights"):
        TemperatureTable(logits, labels).fit(np.zeros((1, 500)))


def test_single_precision_on_large_tables_keeps_the_optimum() -> None:
    logits, labels = sample(30_000, 100, seed=4)
    single = ace_ray.TemperatureScaling().fit(logits.astype(np.float32), labels)
    double = ace_ray.TemperatureScaling().fit(logits, labels)
    assert single.temperature_ == pytest.approx(double.temperature_, rel=1e-6)


def test_single_precision_says_when_it_hits_its_bound() -> None:
    logits = np.random.default_rng(0).normal(size=(30_000, 100)).astype(np.float32)
    with pytest.warns(BoundWarning):
        fitted = ace_ray.TemperatureScaling().fit(logits, logits.argmin(1))
    assert fitted.temperature_ == 20
    assert fitted.report_.bound_hit


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_offsets_and_half_precision_do_not_corrupt_the_nll(dtype: type) -> None:
    logits, labels = sample(2000)
    logits = (logits + 50).astype(dtype)
    fitted = ace_ray.TemperatureScaling().fit(logits, labels)
    exact = ace_ray.TemperatureScaling().fit(logits.astype(np.float64), labels)
    assert fitted.report_.nll_after == pytest.approx(exact.report_.nll_after, rel=1e-9)
    masks = np.random.default_rng(1).random((5, 2000)) < 0.1
    for mask, t in zip(masks, TemperatureTable(logits, labels).fit(masks), strict=True):
        alone = ace_ray.TemperatureScaling().fit(logits.astype(np.float64), labels, mask)
        assert t == pytest.approx(alone.temperature_, rel=1e-5)


def test_data_that_say_nothing_leave_the_temperature_at_one() -> None:
    for logits, labels in (
        (np.zeros((10, 3)), np.zeros(10, int)),
        (1000 * np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 0])),
    ):
        fitted = ace_ray.TemperatureScaling().fit(logits, labels)
        assert (fitted.temperature_, fitted.report_.bound_hit) == (1.0, False)
        table = TemperatureTable(logits, labels).fit(np.ones((1, len(labels))))
        assert table.tolist() == [1.0]


def test_huge_and_lonely_weights() -> None:
    logits, labels = sample(60, 3)
    plain = ace_ray.TemperatureScaling().fit(logits, labels).temperature_
    huge = ace_ray.TemperatureScaling().fit(logits, labels, np.full(60, 1e307)).temperature_
    assert huge == pytest.approx(plain)
    lonely = ace_ray.Spline().fit(logits, labels, np.r_[1e25, np.ones(59)])
    assert np.isfinite(lonely.predict_confidence(logits)).all()
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="finite"):
            TemperatureTable(logits, labels).fit(np.full((1, 60), bad))
    assert TemperatureTable(logits, labels).fit(np.ones((0, 60))).shape == (0,)
