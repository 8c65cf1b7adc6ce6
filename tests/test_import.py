"""Bring your own logits: what is committed, what is refused, and that a run needs nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ace_ray as package
from tests.conftest import ROOT, Done, ace_ray
from tests.test_command_line import invoke

SHARED = Path(os.environ.get("ACE_RAY_SHARED", ROOT.parent / "shared")) / "data"


def sample(n: int = 300, c: int = 7, scale: float = 3.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, c, n)
    return scale * (rng.normal(size=(n, c)) + 1.5 * np.eye(c)[labels]), labels


def bring(file: Path, store: Path, split: str, role: str, *more: object) -> Done:
    return invoke("import", file, "--model", "mine", "--benchmark", "shop", "--split", split,
                  "--role", role, "--store", store, *more)  # fmt: skip


def write(path: Path, kind: str, logits: np.ndarray, labels: np.ndarray) -> Path:
    ids = [f"image-{i}" for i in range(len(labels))]
    file = path / f"logits.{kind}"
    if kind == "npz":
        np.savez(file, logits=logits, labels=labels, sample_id=np.array(ids))
    elif kind == "npy":
        np.save(file, logits)
        np.save(path / "logits.labels.npy", labels)
    else:
        flat = pa.array(logits.ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, logits.shape[1])
        pq.write_table(pa.table({"sample_id": ids, "label": labels, "logits": column}), file)
    return file


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_kind_of_file_becomes_the_same_table(tmp_path: Path, kind: str, dtype: type) -> None:
    logits, labels = sample()
    file = write(tmp_path, kind, logits.astype(dtype), labels)
    done = bring(file, tmp_path / "store", "cal", "calibration", "--json")
    assert done.code == 0, done.stderr
    assert (done.json["rows"], done.json["classes"]) == (300, 7)
    folder = tmp_path / "store/logits/model=mine/benchmark=shop/split=cal"
    table = pq.read_table(folder)
    np.testing.assert_array_equal(
        table["logits"].combine_chunks().to_numpy_ndarray(), logits.astype(np.float32)
    )
    assert table["label"].to_pylist() == labels.tolist()
    assert len(set(table["sample_id"].to_pylist())) == 300
    # The same again is nothing new.
    again = bring(file, tmp_path / "store", "cal", "calibration", "--json")
    assert again.json == done.json


def test_probabilities_are_asked_for_by_name(tmp_path: Path) -> None:
    logits, labels = sample()
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    file = write(tmp_path, "npz", p, labels)
    refused = bring(file, tmp_path / "store", "cal", "calibration")
    assert refused.code == 2
    assert "pass --probabilities" in refused.error
    assert not (tmp_path / "store").exists()
    done = bring(file, tmp_path / "store", "cal", "calibration", "--probabilities")
    assert done.code == 0
    table = pq.read_table(tmp_path / "store/logits/model=mine/benchmark=shop/split=cal")
    found = table["logits"].combine_chunks().to_numpy_ndarray()
    np.testing.assert_allclose(np.exp(found), p, atol=1e-6)
    other = write(tmp_path, "npz", logits, labels)
    assert "sum to one" in bring(other, tmp_path / "s2", "x", "id", "--probabilities").error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z, y: (z[:-1], y), "expected 299 integers to match"),
        (lambda z, y: (np.where(np.arange(z.size).reshape(z.shape) == 9, np.nan, z), y), "row 1"),
        (lambda z, y: (1e39 * z, y), "infinite in float32"),
        (lambda z, y: (z, y + 7), "expected 0 to 6, got 7 to 13"),
        (lambda z, y: (z.astype(int), y), "expected floats"),
        (lambda z, y: (z[:, 0], y), "expected floats of shape"),
        (lambda z, y: (z, y.astype(float)), "integers"),
    ],
)
def test_bad_tables_are_refused_and_nothing_is_written(
    tmp_path: Path, change, message: str
) -> None:
    logits, labels = change(*sample())
    file = tmp_path / "x.npz"
    np.savez(file, logits=logits, labels=labels)
    done = bring(file, tmp_path / "store", "cal", "calibration")
    assert done.code == 2
    assert message in done.error
    assert "x.npz" in done.error
    assert not (tmp_path / "store").exists()


def test_other_refusals(tmp_path: Path) -> None:
    logits, labels = sample()
    store = tmp_path / "store"
    assert "no such file" in bring(tmp_path / "none.npz", store, "a", "id").error
    (tmp_path / "x.csv").write_text("a")
    assert "expected a file that ends in" in bring(tmp_path / "x.csv", store, "a", "id").error
    (tmp_path / "page.npz").write_text("<html>not found</html>")
    assert "it is no npz archive" in bring(tmp_path / "page.npz", store, "a", "id").error
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04nonsense")
    assert "cannot be read" in bring(tmp_path / "bad.npz", store, "a", "id").error
    np.savez(tmp_path / "objects.npz", logits=np.array([{}], object), labels=labels)
    assert bring(tmp_path / "objects.npz", store, "a", "id").code == 2
    np.savez(tmp_path / "half.npz", logits=logits)
    assert "needs `logits` and `labels`" in bring(tmp_path / "half.npz", store, "a", "id").error
    np.savez(tmp_path / "twice.npz", logits=logits, labels=labels, sample_id=["same"] * 300)
    assert "of which 1 differ" in bring(tmp_path / "twice.npz", store, "a", "id").error
    file = write(tmp_path, "npz", logits, labels)
    assert bring(file, store, "a", "id").code == 0
    other = write(tmp_path, "npz", 2 * logits, labels)
    assert "already holds other logits" in bring(other, store, "a", "id").error


def test_a_run_on_imported_logits_needs_no_image(tmp_path: Path) -> None:
    store, config = tmp_path / "store", tmp_path / "run.yaml"
    splits = {
        ("cal", "calibration"): sample(800, seed=1),
        ("test", "id"): sample(400, seed=2),
        ("fog/5", "ood"): sample(400, scale=1.0, seed=3),
        ("street", "ood"): sample(400, scale=1.5, seed=4),
    }
    for (split, role), (logits, labels) in splits.items():
        assert bring(write(tmp_path, "npz", logits, labels), store, split, role).code == 0
    config.write_text(
        "models: [mine]\nbenchmarks: [shop]\nsweep: {calibrators: [temperature, spline], "
        "difficulty: [2], seeds: [1, 2]}"
    )
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 0
    rows = pq.read_table(done.json["results"]).to_pylist()
    assert {(r["split"], r["role"], r["corruption"], r["severity"]) for r in rows} == {
        ("cal", "calibration", None, None),
        ("test", "id", None, None),
        ("fog/5", "ood", "fog", 5),
        ("street", "ood", None, None),
    }
    # One cell by hand, through the Python interface.
    z, y = (
        v.astype(np.float32) if v.dtype.kind == "f" else v for v in splits["cal", "calibration"]
    )
    test, truth = splits["street", "ood"]
    test = test.astype(np.float32)
    ace = package.ACE(package.TemperatureScaling(), 2, 1).fit(z, y)
    expected = package.ece(ace.predict_confidence(test), test.argmax(1) == truth)
    (found,) = [
        r["ece"]
        for r in rows
        if (r["split"], r["calibrator"], r["method"], r["seed"])
        == ("street", "temperature", "ace", 1)
    ]
    assert found == pytest.approx(expected, abs=1e-12)
    assert ace_ray("validate", "--store", store).code == 0
    # A damaged import cannot be extracted again: the remedy says what can be done.
    part = next((store / "logits/model=mine/benchmark=shop/split=street").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-5])
    assert "import this split again" in invoke("logits", config, "--repair", "--store", store).error


def test_imports_that_do_not_go_together(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for split, role, classes in (("a", "calibration", 7), ("b", "calibration", 7), ("t", "id", 5)):
        file = write(tmp_path, "npz", *sample(c=classes))
        assert bring(file, store, split, role).code == 0
    config = tmp_path / "run.yaml"
    config.write_text("models: [mine]\nbenchmarks: [shop]")
    assert "need exactly one calibration split" in invoke("plan", config, "--store", store).error
    shutil.rmtree(next(store.glob("logits/*/*/split=b")))
    error = invoke("plan", config, "--store", store).error
    assert "shop:a has 7 classes, shop:t has 5" in error
    shutil.rmtree(next(store.glob("logits/*/*/split=t")))
    assert "mine: nothing to test on, its only split is shop:a" in (
        invoke("plan", config, "--store", store).error
    )
    # Images under a name that imported logits have: which are meant?
    config.write_text("models: [mine]\nbenchmarks: [{name: shop, type: folder, path: /data}]")
    error = invoke("plan", config, "--store", store).error
    assert "the store holds imported logits of 'mine' under this name" in error


def test_unknown_names_speak_of_the_store(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("models: [mine]\nbenchmarks: [shop]")
    done = invoke("plan", config, "--store", tmp_path / "store")
    assert done.code == 2
    assert "unknown 'shop'" in done.error
    assert "no imported logits of 'mine' on it" in done.error


@pytest.mark.skipif(not SHARED.is_dir(), reason="real data is not part of the project")
def test_real_imagenet_logits(tmp_path: Path) -> None:
    file = SHARED / "imagenet/tf_efficientnet_lite0_val5k_logits.parquet"
    done = bring(file, tmp_path / "store", "val", "calibration", "--json")
    assert done.code == 0, done.stderr
    assert (done.json["rows"], done.json["classes"]) == (5000, 1000)
