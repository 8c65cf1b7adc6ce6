"""Metrics and statistics against other libraries, exact formulas and simulation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import ace_ray
from ace_ray.calibration import (
    Bootstrap,
    Streaming,
    effect_size,
    holm,
    reliability,
    split_score,
    two_sample_t,
    welch,
)
from ace_ray.errors import DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # their imports warn of their own dependencies
    import netcal.metrics
    import relplot
    from netcal.scaling import TemperatureScaling as NetcalTemperature
    from torchmetrics.functional.classification import multiclass_calibration_error


def sample(n: int = 4000, c: int = 10, scale: float = 3.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, c, n)
    logits = scale * (rng.normal(size=(n, c)) + 1.5 * np.eye(c)[labels])
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return p, labels


@pytest.mark.parametrize("bins", [1, 10, 15, 25])
def test_ece_matches_torchmetrics_and_netcal(bins: int) -> None:
    p, labels = sample()
    ours = ace_ray.ece(p.max(1), p.argmax(1) == labels, bins)
    theirs = multiclass_calibration_error(torch.tensor(p), torch.tensor(labels), 10, bins)
    assert ours == pytest.approx(theirs.item(), abs=1e-6)  # torchmetrics sums in float32
    assert ours == pytest.approx(netcal.metrics.ECE(bins).measure(p, labels), abs=1e-12)


def test_mce_matches_netcal() -> None:
    p, labels = sample()
    ours = ace_ray.mce(p.max(1), p.argmax(1) == labels, 15)
    assert ours == pytest.approx(netcal.metrics.MCE(15).measure(p, labels), abs=1e-12)


def test_we_do_not_have_netcal_s_float32_defect() -> None:
    """netcal 1.4 returns T = 1 for float32 probabilities without a word; in float64 it fits."""
    p, labels = sample()
    ours = 1 / ace_ray.TemperatureScaling().fit(np.log(p).astype(np.float32), labels).temperature_
    fitted = {}
    for dtype in (np.float32, np.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator = NetcalTemperature()
            calibrator.fit(p.astype(dtype), labels)
        fitted[dtype] = float(calibrator.temperature[0])
    assert fitted[np.float32] == 1
    assert fitted[np.float64] == pytest.approx(ours, rel=1e-4)


def test_we_do_not_drop_certain_predictions() -> None:
    """Half-open bins without care lose confidences of exactly 0 and 1; the wrong certain ones
    are the worst of all."""
    assert ace_ray.ece([1.0, 1.0], [False, False]) == 1
    assert ace_ray.ece([0.0, 0.0], [True, True]) == 1


def exact_smooth_ece(confidence: np.ndarray, correct: np.ndarray) -> float:
    """The definition: reflected Gaussian kernel summed over samples, no grid of residuals."""
    residual = (correct - confidence) / len(confidence)
    t = np.linspace(0, 1, 2001)

    def smoothed(width: float) -> float:
        density = np.zeros_like(t)
        for k in range(-4, 5):
            for sign in (-1, 1):
                away = (t[:, None] + sign * confidence[None] + 2 * k) / width
                density += stats.norm.pdf(away) @ residual / width
        return float(np.trapezoid(np.abs(density), t))

    low, high = 1e-3, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return smoothed(high)


@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_smooth_ece_matches_its_definition_and_relplot(power: float) -> None:
    rng = np.random.default_rng(int(10 * power))
    confidence = rng.beta(4, 1.5, 300)
    correct = rng.random(300) < confidence**power
    ours = ace_ray.smooth_ece(confidence, correct)
    assert ours == pytest.approx(exact_smooth_ece(confidence, correct), abs=2e-4)
    # relplot stops its search for the width earlier.
    assert ours == pytest.approx(relplot.smECE(confidence, correct.astype(float)), abs=2e-3)


def test_equal_mass_bins_hold_equal_counts() -> None:
    p, labels = sample(1003)
    found = reliability(p.max(1), p.argmax(1) == labels, 10, "mass")
    assert found.samples.sum() == 1003
    assert np.ptp(found.samples) <= 1


@given(
    st.lists(st.tuples(st.sampled_from([0, 0.25, 0.5, 1]), st.booleans()), min_size=2, max_size=40)
)
def test_equal_mass_ece_ignores_the_order_within_ties(rows) -> None:
    confidence, correct = (np.array(v) for v in zip(*rows, strict=True))
    value = ace_ray.ece(confidence, correct, 4, binning="mass")
    again = ace_ray.ece(confidence[::-1], correct[::-1], 4, binning="mass")
    assert value == pytest.approx(again, abs=1e-12)


def test_debiasing_removes_part_of_what_sampling_noise_adds() -> None:
    """A perfectly calibrated forecaster: the plain ECE is far above 0, the debiased nearer."""
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(200):
        confidence = rng.random(1000)
        correct = rng.random(1000) < confidence
        plain.append(ace_ray.ece(confidence, correct))
        debiased.append(ace_ray.ece(confidence, correct, debias=True))
    assert np.mean(plain) > 0.04
    assert 0 < np.mean(debiased) < 0.65 * np.mean(plain)


def test_classwise_ece_by_hand() -> None:
    p = np.array([[0.7, 0.3], [0.6, 0.4]])
    # One bin: class 0 has mean probability 0.65 and share 0.5; class 1 has 0.35 and 0.5.
    assert ace_ray.classwise_ece(p, [0, 1], bins=1) == pytest.approx(0.15)


def test_full_brier_by_hand_and_against_the_definition() -> None:
    p, labels = sample(200)
    expected = np.mean(((p - np.eye(10)[labels]) ** 2).sum(1))
    assert ace_ray.brier_full(p, labels) == pytest.approx(expected, abs=1e-14)


def test_aurc_by_hand() -> None:
    # Ranked: right, wrong, right. Errors of the most confident 1, 2, 3: 0, 1/2, 1/3.
    assert ace_ray.aurc([0.9, 0.8, 0.7], [True, False, True]) == pytest.approx(
        (0 + 1 / 2 + 1 / 3) / 3
    )
    # A tie counts its average order: (0 + 1)/2 after one, then 1/2.
    assert ace_ray.aurc([0.5, 0.5], [True, False]) == pytest.approx(0.5)


@pytest.mark.parametrize("score", ["brier", "log"])
def test_scores_split_into_calibration_and_refinement(score: str) -> None:
    p, labels = sample()
    confidence, correct = np.clip(p.max(1), 1e-9, 1 - 1e-9), p.argmax(1) == labels
    total = {
        "brier": np.mean((confidence - correct) ** 2),
        "log": -np.mean(np.where(correct, np.log(confidence), np.log(1 - confidence))),
    }[score]
    split = split_score(confidence, correct, score)
    assert split.calibration + split.refinement == pytest.approx(total)
    assert split.calibration > 0
    # A monotone stretch of the confidence moves calibration and leaves refinement alone.
    stretched = split_score(confidence**0.5, correct, score)
    assert stretched.refinement == pytest.approx(split.refinement)


@given(st.integers(1, 30), st.integers(0, 100))
def test_streaming_in_pieces_is_the_whole(pieces: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random(100), rng.random(100) < 0.7
    parts = []
    for index in np.array_split(rng.permutation(100), pieces):
        part = Streaming(bins=15)
        part.update(confidence[index], correct[index])
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    assert total.n == 100
    assert total.ece == pytest.approx(ace_ray.ece(confidence, correct, 15), abs=1e-12)
    assert total.brier == pytest.approx(ace_ray.brier(confidence, correct), abs=1e-12)
    assert total.accuracy == pytest.approx(correct.mean())
    assert total.confidence == pytest.approx(confidence.mean())


def test_streaming_whole_vectors_tell_the_nll() -> None:
    p, labels = sample(300)
    total, part = Streaming(), Streaming()
    total.update_proba(p[:100], labels[:100])
    part.update_proba(p[100:], labels[100:])
    total.merge(part)
    assert total.nll == pytest.approx(ace_ray.nll(np.log(p), labels))
    assert total.ece == pytest.approx(ace_ray.ece(p.max(1), p.argmax(1) == labels))
    total.update([0.5], [True])
    with pytest.raises(DataError, match="300 of 301"):
        _ = total.nll


def test_merging_other_bins_is_refused() -> None:
    with pytest.raises(DataError, match="cannot merge"):
        Streaming(5).merge(Streaming(6))


def test_welch_matches_scipy() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 1, 5), rng.normal(0.5, 3, 7)
    ours, theirs = welch(a, b), stats.ttest_ind(a, b, equal_var=False)
    assert (ours.t, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-12)
    assert welch([1, 1], [2, 2]).deterministic


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.03, 0.04: times 3, 2, 1, then made non-decreasing.
    assert holm([0.04, 0.01, 0.03]).tolist() == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    with pytest.raises(DataError):
        holm([1.2])


def test_effect_size_by_hand() -> None:
    # Means 2 and 4, both variances 1: d = -2, times 1 - 3 / (4 * 4 - 1).
    assert effect_size([1, 2, 3], [3, 4, 5]) == pytest.approx(-2 * (1 - 3 / 15))
    assert effect_size([1, 1], [1, 1]) == 0
    assert effect_size([1, 1], [2, 2]) is None


def test_bootstrap_uses_the_same_resamples_for_all_methods() -> None:
    p, labels = sample(500)
    correct = p.argmax(1) == labels
    confidence = p.max(1)
    found = Bootstrap(
        {"a": confidence, "same": confidence, "b": confidence**2}, correct, resamples=200
    )
    assert found.difference("a", "same") == (0, 0, 0, 1)
    assert found.ece("a").value == pytest.approx(ace_ray.ece(confidence, correct))
    interval = found.ece("a")
    assert interval.low < interval.value < interval.high
    change = found.difference("b", "a")
    assert change.value == pytest.approx(found.ece("b").value - found.ece("a").value)
    assert (change.p < 0.05) == (not change.low <= 0 <= change.high)


def test_bootstrap_refuses_what_cannot_be_paired() -> None:
    with pytest.raises(DataError, match="different lengths"):
        Bootstrap({"a": [0.5, 0.5], "b": [0.5]}, {"a": [True, True], "b": [True]})
    with pytest.raises(DataError, match="at least one method"):
        Bootstrap({}, [True])


def test_t_test_rejects_a_true_null_at_its_level() -> None:
    rng = np.random.default_rng(1)
    trials = 4000
    groups = rng.normal(size=(trials, 2, 5))
    rejected = np.mean([(two_sample_t(a, b).p or 0) < 0.05 for a, b in groups])
    assert rejected == pytest.approx(0.05, abs=0.015)


def rejections(n: int, shift: float, noise: float, bins: int, trials: int) -> float:
    """Share of rejections between two methods with exchangeable noise: their true ECE is equal."""
    rng = np.random.default_rng(2)
    rejected = 0
    for trial in range(trials):
        truth = rng.beta(5, 2, n)
        correct = rng.random(n) < truth
        a, b = (np.clip(truth + shift + rng.normal(0, noise, n), 0, 1) for _ in range(2))
        found = Bootstrap({"a": a, "b": b}, correct, bins, resamples=150, seed=trial)
        rejected += found.difference("a", "b").p < 0.05
    return rejected / trials


def test_paired_bootstrap_rejects_a_true_null_at_its_level() -> None:
    assert rejections(4000, 0.3, 0.05, 10, 800) == pytest.approx(0.05, abs=0.015)


def test_paired_bootstrap_is_cautious_where_bins_hold_little_but_noise() -> None:
    """Few samples per bin: the absolute value makes the ECE rough, and the error is overstated."""
    assert rejections(1000, 0.15, 0.08, 25, 200) <= 0.05 + 0.015


def test_equal_mass_bins_do_not_separate_right_from_wrong_in_a_tie() -> None:
    confidence, correct = [0.5] * 100, [True] * 50 + [False] * 50
    assert ace_ray.ece(confidence, correct, 10, binning="mass") == pytest.approx(0)
    assert ace_ray.mce(confidence, correct, 10, binning="mass") == pytest.approx(0)


@pytest.mark.parametrize(
    "correct", [[3, 7, 0], [np.nan, 0, 1], [0.5, 0.2, 0], ["True", "False", "True"]]
)
def test_correct_means_right_or_wrong(correct) -> None:
    with pytest.raises(DataError, match="correct"):
        ace_ray.ece([0.5, 0.6, 0.7], correct)
    assert ace_ray.ece([0.5, 0.6, 0.7], [1, 0, 1.0]) >= 0


def test_single_precision_confidences_may_round_above_one() -> None:
    assert ace_ray.ece(np.array([1.0000001, 0.5], np.float32), [True, True]) == pytest.approx(0.25)


@pytest.mark.parametrize("bins", [0, -1, 2.5, "10", None, True])
def test_bins_are_a_whole_number(bins) -> None:
    p, labels = sample(50)
    for call in (
        lambda: ace_ray.ece([0.5], [True], bins),
        lambda: ace_ray.classwise_ece(p, labels, bins),
        lambda: Streaming(bins),
        lambda: Bootstrap({"a": [0.5, 0.6]}, [True, False], bins),
    ):
        with pytest.raises(DataError, match="bins"):
            call()


def test_statistics_never_return_nan() -> None:
    for bad in ([1, np.nan, 2], [1, np.inf, 2]):
        with pytest.raises(DataError, match="finite"):
            two_sample_t(bad, [1, 2])
    tiny = two_sample_t([1e-200, 2e-200], [3e-200, 5e-200])
    assert tiny.t == pytest.approx(two_sample_t([1, 2], [3, 5]).t)
    with pytest.raises(DataError, match="no samples"):
        _ = Streaming().accuracy
    with pytest.raises(DataError, match="unknown method 'zz'"):
        Bootstrap({"a": [0.5, 0.6]}, [True, False], resamples=5).difference("a", "zz")
