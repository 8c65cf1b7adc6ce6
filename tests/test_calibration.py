"""Calibrators, ACE, metrics and tests against independent witnesses."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.calibration import _TemperatureScaling as SklearnTemperature

import ace_ray
from ace_ray.calibration import (
    difficulty,
    hard_set,
    make_calibrator,
    reliability,
    two_sample_t,
)
from ace_ray.calibration.temperature import BoundWarning
from ace_ray.errors import AceRayError, DataError


def sample(n: int = 2000, c: int = 10, scale: float = 3.0, seed: int = 0):
    """Overconfident logits: the right class is raised, then everything is stretched."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, c, n)
    logits = scale * (rng.normal(size=(n, c)) + 1.5 * np.eye(c)[labels])
    return logits, labels


def test_temperature_matches_scikit_learn() -> None:
    logits, labels = sample()
    theirs = SklearnTemperature().fit(logits, labels)
    ours = ace_ray.TemperatureScaling().fit(logits, labels)
    assert 1 / ours.temperature_ == pytest.approx(theirs.beta_, rel=1e-4)


def test_temperature_is_the_optimum() -> None:
    logits, labels = sample(seed=1)
    found = ace_ray.TemperatureScaling().fit(logits, labels).temperature_

    def loss(t: float) -> float:
        return ace_ray.nll(logits / t, labels)

    best = optimize.minimize_scalar(
        loss, bounds=(0.5, 20), method="bounded", options={"xatol": 1e-9}
    )
    assert found == pytest.approx(best.x, rel=1e-6)


def test_temperature_weights_are_counts() -> None:
    logits, labels = sample(300)
    times = np.random.default_rng(2).integers(0, 4, 300)
    weighted = ace_ray.TemperatureScaling().fit(logits, labels, times)
    repeated = ace_ray.TemperatureScaling().fit(
        np.repeat(logits, times, 0), np.repeat(labels, times)
    )
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-9)


def test_temperature_says_when_it_hits_its_bound() -> None:
    logits, labels = sample()
    with pytest.warns(BoundWarning, match="at its bound"):
        fitted = ace_ray.TemperatureScaling(bounds=(0.5, 1.5)).fit(logits, labels)
    assert fitted.report_.bound_hit
    assert fitted.temperature_ == 1.5


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_temperature_takes_any_float_and_read_only_views(dtype: type) -> None:
    logits, labels = sample()
    view = logits.astype(dtype)[::2, ::-1]
    view.flags.writeable = False
    fitted = ace_ray.TemperatureScaling().fit(view, 9 - labels[::2])
    reference = ace_ray.TemperatureScaling().fit(view.astype(np.float64), 9 - labels[::2])
    assert fitted.temperature_ == reference.temperature_


def test_ece_by_hand() -> None:
    # Two bins: {0.4: right} and {0.8: right, 0.6: wrong}.
    confidence = np.array([0.4, 0.8, 0.6])
    correct = np.array([True, True, False])
    expected = 1 / 3 * abs(1 - 0.4) + 2 / 3 * abs(0.5 - 0.7)
    assert ace_ray.ece(confidence, correct, bins=2) == pytest.approx(expected, abs=1e-15)


def test_ece_matches_a_plain_loop_over_bins() -> None:
    rng = np.random.default_rng(3)
    confidence, correct = rng.random(5000), rng.random(5000) < 0.6
    edges, total = np.linspace(0, 1, 26), 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    assert ace_ray.ece(confidence, correct) == pytest.approx(total, abs=1e-13)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_ece_keeps_every_sample_and_ignores_order(rows, bins, random) -> None:
    confidence, correct = map(np.array, zip(*rows, strict=True))
    diagram = reliability(confidence, correct, bins)
    assert diagram.samples.sum() == len(rows)
    order = random.sample(range(len(rows)), len(rows))
    value = ace_ray.ece(confidence, correct, bins)
    assert 0 <= value <= 1
    assert ace_ray.ece(confidence[order], correct[order], bins) == pytest.approx(value, abs=1e-12)


def test_ece_bins_are_open_below_and_closed_above() -> None:
    diagram = reliability([0.0, 0.5, 1.0], [True, True, True], bins=2)
    assert diagram.samples.tolist() == [2, 1]


def test_ks_error_by_hand() -> None:
    # Sorted: 0.2 wrong, then a tie at 0.6 of one right and one wrong, read at its end.
    value = ace_ray.ks_error([0.6, 0.2, 0.6], [True, False, False])
    assert value == pytest.approx(max(0.2, abs(0.2 + 0.6 + 0.6 - 1)) / 3)


def test_brier_and_nll_by_hand() -> None:
    assert ace_ray.brier([0.9, 0.4], [True, False]) == pytest.approx((0.1**2 + 0.4**2) / 2)
    assert ace_ray.nll(np.log([[0.25, 0.75]]), [0]) == pytest.approx(-np.log(0.25))


@given(
    n_right=st.integers(1, 300),
    n_wrong=st.integers(1, 300),
    d=st.floats(0.05, 30),
    seed=st.integers(0, 5),
)
def test_hard_set_has_the_asked_difficulty_and_is_the_largest(n_right, n_wrong, d, seed) -> None:
    correct = np.arange(n_right + n_wrong) < n_right
    try:
        mask = hard_set(correct, d, np.random.default_rng(seed))
    except DataError:
        assert min(round(n_wrong / d), round(n_right * d)) < 1
        return
    right, wrong = int((mask & correct).sum()), int((mask & ~correct).sum())
    assert abs(right - wrong / d) <= 1 or abs(wrong - right * d) <= 1
    # Nothing can be added: one side is used up.
    assert right == n_right or wrong == n_wrong


def test_hard_set_is_the_seed_s_alone() -> None:
    correct = np.random.default_rng(0).random(1000) < 0.8
    first, again, other = (hard_set(correct, 10, np.random.default_rng(s)) for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert difficulty(correct[first]) == pytest.approx(10, rel=0.06)


def test_alpha_one_is_f_o_and_alpha_zero_is_f_h_exactly() -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(ace_ray.TemperatureScaling(), difficulty=3, seed=1).fit(logits, labels)
    assert (ace.predict_proba(logits, alpha=1) == ace.easy_.predict_proba(logits)).all()
    assert (ace.predict_proba(logits, alpha=0) == ace.hard_.predict_proba(logits)).all()


@settings(deadline=None)
@given(alpha=st.floats(0, 1))
def test_mixed_logits_are_one_temperature(alpha: float) -> None:
    """Eq. 8: alpha/T_o + (1 - alpha)/T_h is the inverse temperature of the ensemble."""
    logits, labels = sample(200)
    ace = ace_ray.ACE(ace_ray.TemperatureScaling(), difficulty=3, seed=1).fit(logits, labels)
    inverse = alpha / ace.easy_.temperature_ + (1 - alpha) / ace.hard_.temperature_
    np.testing.assert_allclose(ace.transform(logits, alpha), inverse * logits, atol=1e-12)


def test_alpha_is_the_ratio_of_mean_confidences() -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(ace_ray.TemperatureScaling(), difficulty=3, seed=1).fit(logits, labels)
    shifted = 0.3 * logits

    def confidence(z: np.ndarray) -> float:
        p = np.exp(z)
        return float((p.max(1) / p.sum(1)).mean())

    assert ace.alpha(shifted) == pytest.approx(confidence(shifted) / confidence(logits))
    assert ace.alpha_raw(3 * logits) > 1
    assert ace.alpha(3 * logits) == 1
    free = ace_ray.ACE(ace_ray.TemperatureScaling(), 3, 1, clip_alpha=False).fit(logits, labels)
    assert free.alpha(3 * logits) == free.alpha_raw(3 * logits)


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_temperature_keeps_the_argmax_and_probabilities_sum_to_one(seed: int) -> None:
    logits, labels = sample(100, 5, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundWarning)
        p = ace_ray.TemperatureScaling().fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert (p.argmax(1) == logits.argmax(1)).all()


def test_t_test_matches_scipy() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 1, 5), rng.normal(0.5, 1, 5)
    ours, theirs = two_sample_t(a, b), stats.ttest_ind(a, b)
    assert (ours.t, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-12)


def test_t_test_without_variance_is_never_nan() -> None:
    assert two_sample_t([1, 1, 1], [1, 1, 1])[:2] == (0.0, 1.0)
    exact = two_sample_t([1, 1, 1], [2, 2, 2])
    assert exact.deterministic
    assert exact.p is None
    one_sided = two_sample_t([1, 1, 1], [2, 2.1, 2.2])
    assert one_sided.p is not None
    assert one_sided.p < 0.01


Z = np.zeros((4, 3))
Z[:, 0] = 2


@pytest.mark.parametrize(
    ("logits", "labels", "weights", "message"),
    [
        (np.where(np.arange(12).reshape(4, 3) == 7, np.nan, Z), [0] * 4, None, "row 2"),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.inf, Z), [0] * 4, None, "row 2"),
        (Z[:, :1], [0] * 4, None, "C >= 2"),
        (Z[:0], [], None, "N >= 1"),
        (Z.astype(int), [0] * 4, None, "floating point"),
        (Z, [0, 1, 2, 3], None, "expected 0 to 2"),
        (Z, [0, 1], None, "match the logits"),
        (Z, [0.0, 1, 2, 1], None, "integers"),
        (Z, [0] * 4, [1, 1], "weights"),
        (Z, [0] * 4, [1, -1, 1, 1], "weights"),
        (Z, [0] * 4, [0, 0, 0, 0], "weights"),
    ],
)
def test_bad_arrays_are_named(logits, labels, weights, message) -> None:
    with pytest.raises(DataError, match=message):
        ace_ray.TemperatureScaling().fit(logits, labels, weights)


@pytest.mark.parametrize("d", [0, -1, np.nan, np.inf])
def test_difficulty_must_be_positive(d: float) -> None:
    logits, labels = sample(100)
    with pytest.raises(DataError, match="difficulty"):
        ace_ray.ACE(ace_ray.TemperatureScaling(), difficulty=d).fit(logits, labels)


@pytest.mark.parametrize(
    ("labels", "counts"), [([0] * 4, "4 right and 0 wrong"), ([1] * 4, "0 right")]
)
def test_one_sided_calibration_sets_name_their_counts(labels, counts) -> None:
    with pytest.raises(DataError, match=counts):
        ace_ray.ACE(ace_ray.TemperatureScaling()).fit(Z, labels)


@pytest.mark.parametrize("confidence", [[1.2, 0.5], [-0.1, 0.5], [np.nan, 0.5], [[0.5, 0.5]], []])
def test_bad_confidences_are_refused(confidence) -> None:
    with pytest.raises(DataError):
        ace_ray.ece(confidence, [True] * len(confidence))


def test_unknown_calibrator_suggests_the_nearest() -> None:
    with pytest.raises(AceRayError, match="did you mean 'temperature'"):
        make_calibrator("temperatur")
