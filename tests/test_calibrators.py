"""Every calibrator against an independent witness, and what all of them must keep."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

import ace_ray
from ace_ray.calibration import CALIBRATORS, make_calibrator
from ace_ray.calibration.arguments import ProbabilityWarning
from ace_ray.calibration.temperature import BoundWarning
from ace_ray.calibration.vector import ConvergenceWarning
from ace_ray.errors import DataError, IntegrityError, StoreError
from bench.looped_spline import looped_spline
from tests.samples import sample, softmax

NAMES = sorted(CALIBRATORS)


@pytest.mark.parametrize("name", NAMES)
def test_every_calibrator_keeps_the_contract(name: str, tmp_path: Path) -> None:
    logits, labels = sample()
    calibrator = make_calibrator(name)
    assert calibrator.fit(logits, labels) is calibrator
    proba, confidence = calibrator.predict_proba(logits), calibrator.predict_confidence(logits)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-12)
    assert proba.min() >= 0
    assert confidence.min() >= 0
    assert confidence.max() <= 1
    report = calibrator.report_
    assert report.converged
    assert report.nll_before == pytest.approx(ace_ray.nll(logits, labels), rel=1e-9)
    expected = -np.log(proba[np.arange(len(labels)), labels]).mean()
    assert report.nll_after == pytest.approx(expected, rel=1e-6)
    if name not in ("identity", "histogram"):
        assert ace_ray.ece(confidence, calibrator.predict(logits) == labels) < ace_ray.ece(
            softmax(logits).max(1), logits.argmax(1) == labels
        )
    # Parameters as scikit-learn has them; saving keeps every bit.
    assert type(calibrator)(**calibrator.get_params()).get_params() == calibrator.get_params()
    calibrator.save(str(tmp_path / "saved"))
    loaded = ace_ray.load(tmp_path / "saved")
    assert type(loaded) is type(calibrator)
    assert loaded.get_params() == calibrator.get_params()
    assert loaded.report_ == calibrator.report_
    assert (loaded.predict_proba(logits) == proba).all()
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == [
        "calibrator.json", "calibrator.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_float_type_and_layout(name: str) -> None:
    logits, labels = sample(c=5)
    reference = make_calibrator(name).fit(logits, labels).predict_confidence(logits)
    fortran = np.asfortranarray(logits)
    padded = np.zeros((len(logits), 10))
    padded[:, ::2] = logits
    strided = padded[:, ::2]
    strided.flags.writeable = False
    for same in (fortran, strided):
        found = make_calibrator(name).fit(same, labels).predict_confidence(same)
        np.testing.assert_allclose(found, reference, atol=1e-9)
    for dtype, tolerance in ((np.float32, 1e-3), (np.float16, 5e-2)):
        found = make_calibrator(name).fit(logits.astype(dtype), labels)
        gap = found.predict_confidence(logits.astype(dtype)) - reference
        assert np.abs(gap).mean() < tolerance


@pytest.mark.parametrize("name", NAMES)
def test_weight_zero_is_absence(name: str) -> None:
    logits, labels = sample()
    mask = np.random.default_rng(1).random(len(labels)) < 0.7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundWarning)
        weighted = make_calibrator(name).fit(logits, labels, mask)
        subset = make_calibrator(name).fit(logits[mask], labels[mask])
    np.testing.assert_allclose(
        weighted.predict_proba(logits), subset.predict_proba(logits), atol=1e-9
    )


def test_vector_scaling_is_the_optimum() -> None:
    logits, labels = sample(seed=3)
    fitted = ace_ray.VectorScaling().fit(logits, labels)
    p = fitted.predict_proba(logits)
    p[np.arange(len(labels)), labels] -= 1
    # The slope of a convex objective is zero at its optimum alone.
    assert np.abs(p.mean(0)).max() < 1e-6
    assert np.abs((p * logits).mean(0)).max() < 1e-6
    assert (
        fitted.report_.nll_after
        <= ace_ray.TemperatureScaling().fit(logits, labels).report_.nll_after
    )


def test_vector_scaling_l2_shrinks_and_is_optimal() -> None:
    logits, labels = sample(seed=3)
    l2 = 0.1
    fitted = ace_ray.VectorScaling(l2=l2).fit(logits, labels)
    p = fitted.predict_proba(logits)
    p[np.arange(len(labels)), labels] -= 1
    assert np.abs(p.mean(0) + l2 * fitted.bias_).max() < 1e-6
    assert np.abs((p * logits).mean(0) + l2 * fitted.weight_).max() < 1e-6


def test_vector_scaling_names_absent_classes() -> None:
    logits, labels = sample()
    with pytest.warns(ConvergenceWarning, match="1 of 6 classes have no sample"):
        ace_ray.VectorScaling().fit(logits[labels > 0], labels[labels > 0])


@pytest.mark.parametrize("cls", [ace_ray.MatrixScaling, ace_ray.Dirichlet])
def test_matrix_families_meet_their_optimality_conditions(cls: type) -> None:
    logits, labels = sample(seed=5)
    fitted = cls(off_diagonal=0.02, intercept=0.03).fit(logits, labels)
    x = logits - logits.mean(1, keepdims=True)
    if cls is ace_ray.Dirichlet:
        x = np.log(softmax(logits))
    p = softmax(x @ fitted.weight_.T + fitted.bias_)
    np.testing.assert_allclose(p, fitted.predict_proba(logits), atol=1e-12)
    p[np.arange(len(labels)), labels] -= 1
    c = logits.shape[1]
    off = fitted.weight_ * (1 - np.eye(c))
    slope = p.T @ x / len(x) + 2 * 0.02 / (c * (c - 1)) * off
    assert np.abs(slope).max() < 1e-5
    assert np.abs(p.mean(0) + 2 * 0.03 / c * fitted.bias_).max() < 1e-5


def test_matrix_families_refuse_many_classes_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match=r"129 classes.*use VectorScaling"):
        ace_ray.MatrixScaling().fit(rng.normal(size=(10, 129)), rng.integers(0, 129, 10))


def test_isotonic_matches_scikit_learn() -> None:
    logits, labels = sample()
    confidence, correct = softmax(logits).max(1), logits.argmax(1) == labels
    theirs = IsotonicRegression(out_of_bounds="clip").fit(confidence, correct)
    ours = ace_ray.Isotonic().fit(logits, labels)
    at = np.linspace(0, 1, 501)
    np.testing.assert_allclose(ours.map_confidence(at), theirs.predict(at), atol=1e-9)


@pytest.mark.parametrize("strategy", ["width", "mass"])
def test_histogram_binning_gives_each_bin_its_accuracy(strategy: str) -> None:
    logits, labels = sample()
    fitted = ace_ray.HistogramBinning(bins=10, strategy=strategy).fit(logits, labels)
    confidence, correct = softmax(logits).max(1), logits.argmax(1) == labels
    mapped = fitted.map_confidence(confidence)
    for value in np.unique(mapped):
        assert correct[mapped == value].mean() == pytest.approx(value, abs=1e-12)
    if strategy == "mass":
        inside = np.histogram(confidence, fitted.edges_)[0]
        assert inside.min() >= len(labels) // 10 - 1


@pytest.mark.parametrize("swapped", [False, True])
def test_spline_equals_the_published_loop(swapped: bool) -> None:
    logits, labels = sample(400)
    fitted = ace_ray.Spline(compat_interpolation=swapped).fit(logits, labels)
    confidence, correct = softmax(logits).max(1), logits.argmax(1) == labels
    at = np.random.default_rng(2).random(200)
    expected = looped_spline(confidence, correct, at, swapped=swapped)
    np.testing.assert_allclose(fitted.map_confidence(at), expected, atol=1e-12)


def test_spline_rescales_the_other_classes_in_proportion() -> None:
    logits, labels = sample()
    fitted = ace_ray.Spline().fit(logits, labels)
    p, q = softmax(logits), fitted.predict_proba(logits)
    top = p.argmax(1)
    np.testing.assert_allclose(
        q[np.arange(len(q)), top], fitted.predict_confidence(logits), atol=1e-12
    )
    others = np.ones_like(p, bool)
    others[np.arange(len(p)), top] = False
    ratio = (q[others] / p[others]).reshape(len(p), -1)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones_like(ratio), rtol=1e-9)


def test_probabilities_are_noticed_but_not_guessed() -> None:
    logits, labels = sample()
    with pytest.warns(ProbabilityWarning, match="looks like probabilities"):
        ace_ray.TemperatureScaling(bounds=(1e-3, 20)).fit(softmax(logits), labels)


@pytest.mark.parametrize(
    ("calibrator", "message"),
    [
        (ace_ray.VectorScaling(l2=-1), "l2"),
        (ace_ray.Spline(knots=2), "knots"),
        (ace_ray.HistogramBinning(bins=0), "bins"),
        (ace_ray.HistogramBinning(strategy="x"), "strategy"),
        (ace_ray.MatrixScaling(off_diagonal=-1), "off_diagonal"),
        (ace_ray.AvUTS(beta=-1), "beta"),
        (ace_ray.TemperatureScaling(bounds=(2, 1)), "bounds"),
    ],
)
def test_bad_parameters_are_named(calibrator, message: str) -> None:
    with pytest.raises(DataError, match=message):
        calibrator.fit(*sample(100))


def test_loading_damage_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"neither ace\.json nor calibrator\.json"):
        ace_ray.load(tmp_path)
    ace_ray.VectorScaling().fit(*sample()).save(str(tmp_path))
    tensors = tmp_path / "calibrator.safetensors"
    good = tensors.read_bytes()
    tensors.write_bytes(good[:-1] + b"x")
    with pytest.raises(IntegrityError, match="not the file"):
        ace_ray.load(tmp_path)
    tensors.write_bytes(good)
    (tmp_path / "calibrator.json").write_text("{}")
    with pytest.raises(IntegrityError, match="damaged"):
        ace_ray.load(tmp_path)


def test_plugins_are_found_by_their_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from ace_ray.calibration import base

    loaded: list[str] = []

    class Point(EntryPoint):
        def load(self) -> None:
            loaded.append(self.name)
            CALIBRATORS["plugged"] = ace_ray.TemperatureScaling

    monkeypatch.setattr(base, "entry_points", lambda group: [Point("mine", "module", group)])
    try:
        assert isinstance(make_calibrator("plugged"), ace_ray.TemperatureScaling)
    finally:
        del CALIBRATORS["plugged"]
    assert loaded == ["mine"]


def test_third_parties_register_by_decorator() -> None:
    from ace_ray.calibration import LogitCalibrator
    from ace_ray.calibration.base import Fit

    @ace_ray.register_calibrator("halving")
    class Halving(LogitCalibrator):
        """Half of everything."""

        space = "logits"

        def __init__(self) -> None:
            pass

        def _fit(self, z, y, w) -> Fit:
            return Fit()

        def _map_logits(self, z):
            return z / 2

    try:
        logits, labels = sample()
        made = make_calibrator("halving").fit(logits, labels)
        np.testing.assert_allclose(made.predict_proba(logits), softmax(logits / 2), atol=1e-15)
    finally:
        del CALIBRATORS["halving"]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["temperature", "avuts", "identity"]))
def test_one_temperature_keeps_the_argmax(seed: int, name: str) -> None:
    logits, labels = sample(80, 4, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundWarning)
        p = make_calibrator(name).fit(logits, labels).predict_proba(logits)
    assert (p.argmax(1) == logits.argmax(1)).all()


def test_memory_maps_are_read_in_blocks(tmp_path: Path) -> None:
    logits, labels = sample(2000, 30)
    mapped = np.lib.format.open_memmap(tmp_path / "z.npy", "w+", np.float32, logits.shape)
    mapped[:] = logits
    mapped.flush()
    read = np.load(tmp_path / "z.npy", mmap_mode="r")
    for name in ("temperature", "vector", "spline"):
        fitted = make_calibrator(name).fit(read, labels)
        out = np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, read.shape)
        fitted.predict_proba(read, out=out)
        plain = make_calibrator(name).fit(logits.astype(np.float32), labels)
        np.testing.assert_allclose(
            out, plain.predict_proba(logits.astype(np.float32)), rtol=1e-5, atol=1e-9
        )


def test_extreme_logits_keep_rows_finite() -> None:
    """A margin of hundreds leaves denormal probabilities to the other classes."""
    rng = np.random.default_rng(0)
    logits = np.array([[740.0, 0, -100, -2000]] + [[3.0, 0, 1, 2]] * 50)
    labels = np.r_[1, rng.integers(0, 4, 50)]
    for name in ("isotonic", "spline", "histogram"):
        p = make_calibrator(name).fit(logits, labels).predict_proba(logits)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)


def test_spline_ignores_the_order_of_ties() -> None:
    logits = np.tile([[2.0, 0, 0]], (1000, 1))
    labels = np.where(np.arange(1000) < 600, 0, 1)
    found = [
        ace_ray.Spline().fit(logits[order], labels[order]).predict_confidence(logits[:1])[0]
        for order in (slice(None), slice(None, None, -1))
    ]
    assert found[0] == found[1]
    # The published ranks run from 0 to 1 over N samples: good to 1/N.
    assert found[0] == pytest.approx(0.6, abs=1 / 1000)


@pytest.mark.parametrize(
    "bad",
    [["a", "b"], [[1, 2], [3]], [1 + 1j, 2], [None, 1]],
    ids=["text", "ragged", "complex", "none"],
)
def test_nonsense_arrays_are_data_errors(bad) -> None:
    logits, labels = sample(2, 3)
    for call in (
        lambda: ace_ray.ece(bad, [True, False]),
        lambda: ace_ray.ece([0.5, 0.5], bad),
        lambda: ace_ray.TemperatureScaling().fit(bad, labels),
        lambda: ace_ray.TemperatureScaling().fit(logits, bad),
        lambda: ace_ray.TemperatureScaling().fit(logits, labels, bad),
        lambda: ace_ray.brier_full(bad, labels),
    ):
        with pytest.raises(DataError):
            call()
