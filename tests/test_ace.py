"""ACE around every calibrator, its options, its relatives, and what it refuses."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import ace_ray
from ace_ray.calibration import CALIBRATORS, hard_set, make_calibrator
from ace_ray.calibration.temperature import BoundWarning
from ace_ray.calibration.vector import ConvergenceWarning
from ace_ray.errors import DataError, UsageError
from tests.samples import sample, softmax

NAMES = sorted(CALIBRATORS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("space", [None, "probs", "confidence", "geometric"])
def test_ace_around_every_calibrator(name: str, space: str | None, tmp_path: Path) -> None:
    logits, labels = sample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (BoundWarning, ConvergenceWarning))
        ace = ace_ray.ACE(make_calibrator(name), 2, 1, space=space).fit(logits, labels)
    test = 0.5 * logits
    proba, confidence = ace.predict_proba(test), ace.predict_confidence(test)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-9)
    assert 0 <= confidence.min() <= confidence.max() <= 1
    for alpha, member in ((1, ace.easy_), (0, ace.hard_)):
        if space == "geometric":
            np.testing.assert_allclose(
                ace.predict_confidence(test, alpha), member.predict_confidence(test), rtol=1e-12
            )
        else:
            assert (ace.predict_confidence(test, alpha) == member.predict_confidence(test)).all()
    ace.save(str(tmp_path / "ace"))
    loaded = ace_ray.load(tmp_path / "ace")
    assert (loaded.predict_proba(test) == proba).all()
    assert loaded.alpha(test) == ace.alpha(test)
    assert (loaded.hard_mask_ == ace.hard_mask_).all()


def test_class_subsets_and_matched_alpha() -> None:
    logits, labels = sample(c=8)
    kept = [1, 4, 6]
    test = 0.6 * logits[np.isin(labels, kept)]
    full = ace_ray.ACE(ace_ray.TemperatureScaling(), 2, classes=kept).fit(logits, labels)
    matched = ace_ray.ACE(
        ace_ray.TemperatureScaling(), 2, classes=kept, alpha_reference="matched", clip_alpha=False
    ).fit(logits, labels)
    of_test = softmax(test[:, kept]).max(1).mean()
    assert full.alpha_raw(test) == pytest.approx(of_test / softmax(logits).max(1).mean())
    assert matched.alpha_raw(test) == pytest.approx(
        of_test / softmax(logits[:, kept]).max(1).mean()
    )
    p = full.predict_proba(test, alpha=0.3)
    assert p.shape == (len(test), 3)
    inverse = 0.3 / full.easy_.temperature_ + 0.7 / full.hard_.temperature_
    np.testing.assert_allclose(p, softmax(inverse * test[:, kept]), atol=1e-12)


def test_vector_scaling_acts_before_the_subset() -> None:
    logits, labels = sample(c=8)
    kept = [1, 4, 6]
    ace = ace_ray.ACE(ace_ray.VectorScaling(), 2, classes=kept).fit(logits, labels)
    p_o = softmax(ace.easy_.transform(logits)[:, kept])
    np.testing.assert_allclose(ace.predict_proba(logits, alpha=1), p_o, atol=1e-12)


def test_alpha_per_batch() -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(ace_ray.TemperatureScaling(), 2).fit(logits, labels)
    test = logits[:100] * np.repeat([0.2, 1.0], 50)[:, None]
    alphas = ace.alphas(test, 50)
    assert alphas.tolist() == [ace.alpha(test[:50]), ace.alpha(test[50:])]
    halves = np.concatenate([ace.predict_confidence(test[:50]), ace.predict_confidence(test[50:])])
    assert (ace.predict_confidence(test, batch_size=50) == halves).all()
    with pytest.raises(UsageError, match="not both"):
        ace.predict_proba(test, alpha=0.5, batch_size=10)


def test_whole_set_and_same_size() -> None:
    logits, labels = sample()
    whole = ace_ray.ACE(ace_ray.TemperatureScaling(), difficulty=None).fit(logits, labels)
    assert whole.easy_.temperature_ == whole.hard_.temperature_
    same = ace_ray.ACE(ace_ray.TemperatureScaling(), 2, same_size=True).fit(logits, labels)
    plain = ace_ray.ACE(ace_ray.TemperatureScaling(), 2).fit(logits, labels)
    assert same.easy_.temperature_ != plain.easy_.temperature_
    assert same.hard_.temperature_ == plain.hard_.temperature_
    given = ace_ray.ACE(ace_ray.TemperatureScaling(), 2).fit(logits, labels, easy=plain.easy_)
    assert given.easy_ is plain.easy_


def test_several_sources_are_averaged() -> None:
    domains = [sample(seed=s) for s in (1, 2)]
    many = ace_ray.MultiSourceACE(ace_ray.ACE(ace_ray.Spline(), 2)).fit(domains)
    test = 0.5 * sample(seed=3)[0]
    single = [
        ace_ray.ACE(ace_ray.Spline(), 2).fit(z, y).predict_confidence(test) for z, y in domains
    ]
    np.testing.assert_allclose(many.predict_confidence(test), np.mean(single, 0), atol=1e-15)
    np.testing.assert_allclose(many.predict_proba(test).sum(1), 1, atol=1e-9)
    assert len(many.alpha(test)) == 2


def test_estimation_rebuilds_the_calibration_set() -> None:
    logits, labels = sample(3000)
    test = 0.5 * logits
    correct = logits.argmax(1) == labels
    gap = softmax(logits).max(1).mean() - softmax(test).max(1).mean()
    doc = ace_ray.Estimation(ace_ray.TemperatureScaling()).fit(logits, labels)
    assert doc.estimated_accuracy(test) == pytest.approx(correct.mean() - gap)
    twice = ace_ray.Estimation(ace_ray.TemperatureScaling(), slope=2).fit(logits, labels)
    assert twice.estimated_accuracy(test) == pytest.approx(correct.mean() - 2 * gap)
    error = 1 - doc.estimated_accuracy(test)
    assert doc.estimated_difficulty(test) == pytest.approx(error / (1 - error))
    mask = hard_set(correct, doc.estimated_difficulty(test), np.random.default_rng(1))
    expected = ace_ray.TemperatureScaling().fit(logits[mask], labels[mask])
    assert (doc.predict_proba(test) == expected.predict_proba(test)).all()


def test_atc_counts_test_samples_above_the_threshold() -> None:
    logits, labels = sample(3000)
    atc = ace_ray.Estimation(ace_ray.TemperatureScaling(), estimator="atc").fit(logits, labels)
    correct = logits.argmax(1) == labels
    # On the calibration set itself the estimate is its accuracy.
    assert atc.estimated_accuracy(logits) == pytest.approx(correct.mean())
    with pytest.raises(UsageError, match="estimator"):
        ace_ray.Estimation(ace_ray.TemperatureScaling(), estimator="x").fit(logits, labels)


def test_estimates_outside_the_unit_interval_are_clamped_with_a_warning() -> None:
    logits, labels = sample()
    far = ace_ray.Estimation(ace_ray.TemperatureScaling(), slope=9).fit(logits, labels)
    with pytest.warns(UserWarning, match="clamped"):
        assert 0 < far.estimated_accuracy(0.1 * logits) < 0.01


def test_errors_before_fitting_and_for_other_widths() -> None:
    logits, labels = sample()
    with pytest.raises(UsageError, match="not fitted"):
        ace_ray.VectorScaling().predict_proba(logits)
    with pytest.raises(UsageError, match="not fitted"):
        ace_ray.ACE(ace_ray.VectorScaling()).alpha(logits)
    fitted = ace_ray.VectorScaling().fit(logits, labels)
    with pytest.raises(DataError, match="5 classes, but VectorScaling was fitted on 6"):
        fitted.predict_proba(logits[:, :5])
    with pytest.raises(UsageError, match="unknown parameter 'l3'; available: l2"):
        fitted.set_params(l3=1)
    with pytest.raises(UsageError, match="no calibrated logits to mix"):
        ace_ray.ACE(ace_ray.Spline(), 2, space="logits").fit(logits, labels)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("space", [None, "probs", "confidence", "geometric"])
def test_weights_outside_the_unit_interval_stay_probabilities(name: str, space: str | None) -> None:
    logits, labels = sample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (BoundWarning, ConvergenceWarning))
        ace = ace_ray.ACE(make_calibrator(name), 2, clip_alpha=False, space=space).fit(
            logits, labels
        )
    for alpha in (None, 1.4, -0.3):
        p = ace.predict_proba(5 * logits, alpha)
        assert p.min() >= 0
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)
        confidence = ace.predict_confidence(5 * logits, alpha)
        assert 0 <= confidence.min() <= confidence.max() <= 1


@pytest.mark.parametrize("name", ["vector", "matrix", "temperature"])
def test_confidence_space_of_a_logit_family_ends_at_its_members(name: str) -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(make_calibrator(name), 2, space="confidence").fit(logits, labels)
    test = 2 * np.random.default_rng(1).normal(size=(200, 6))
    for alpha, member in ((1.0, ace.easy_), (0.0, ace.hard_)):
        np.testing.assert_allclose(
            ace.predict_proba(test, alpha), member.predict_proba(test), atol=1e-12
        )


def test_saving_takes_numpy_scalars_and_replaces_the_other_kind(tmp_path: Path) -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(
        ace_ray.Spline(knots=np.int64(6)), np.float32(2), np.int64(3), classes=np.array([0, 2, 4])
    ).fit(logits, labels)
    ace.save(str(tmp_path))
    loaded = ace_ray.load(tmp_path)
    assert (loaded.predict_proba(logits) == ace.predict_proba(logits)).all()
    ace_ray.VectorScaling(l2=np.float32(0.1)).fit(logits, labels).save(str(tmp_path))
    assert isinstance(ace_ray.load(tmp_path), ace_ray.VectorScaling)


def test_ace_checks_what_it_is_given() -> None:
    logits, labels = sample()
    ace = ace_ray.ACE(ace_ray.VectorScaling(), 2).fit(logits, labels)
    with pytest.raises(DataError, match="7 classes, but ACE was fitted on 6"):
        ace.predict_proba(np.zeros((3, 7)))
    for bad in (None, "temperature", ace_ray.TemperatureScaling):
        with pytest.raises(UsageError, match="expected an instance"):
            ace_ray.ACE(bad).fit(logits, labels)
    for classes in ([0.0, 1.0], [0, 0], [0, 9], [True, False, True], 3):
        with pytest.raises(DataError, match="classes"):
            ace_ray.ACE(ace_ray.TemperatureScaling(), 2, classes=classes).fit(logits, labels)
    with pytest.raises(UsageError, match="fitted TemperatureScaling"):
        ace_ray.ACE(ace_ray.TemperatureScaling(), 2).fit(logits, labels, easy=ace.easy_)
    with pytest.raises(DataError, match="alpha"):
        ace.predict_proba(logits, alpha="a")
    with pytest.raises(DataError, match="batch_size"):
        ace.predict_proba(logits, batch_size=2.5)
    with pytest.raises(UsageError, match="not fitted"):
        ace_ray.MultiSourceACE(ace).predict_proba(logits)


def test_estimators_handle_ties_and_the_clamp_is_usable() -> None:
    logits = np.tile([[2.0, 0, 0]], (100, 1))
    labels = np.where(np.arange(100) < 70, 0, 1)
    atc = ace_ray.Estimation(ace_ray.TemperatureScaling(), "atc").fit(logits, labels)
    assert atc.estimated_accuracy(logits) == pytest.approx(0.7)
    real, truth = sample()
    far = ace_ray.Estimation(ace_ray.TemperatureScaling(), slope=9).fit(real, truth)
    with pytest.warns(UserWarning, match="clamped"):
        assert np.isfinite(far.predict_confidence(0.01 * real)).all()
