"""One ACE per source domain, ensembled: the command line against straight-line numpy."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from ace_ray.calibration import ACE, MultiSourceACE, VectorScaling, hard_set
from bench.straight_line import inverse_temperature, spline_map
from tests.conftest import ace_ray
from tests.test_command_line import invoke
from tests.test_pipeline import plain_ece, top1

C, D, SEEDS = 6, 3.0, (1, 2)
DOMAINS = ("art/calibration", "photo/calibration")
ROLES = dict.fromkeys(DOMAINS, "calibration") | {"test": "id", "sketch": "ood", "clip": "ood"}


def logits_of(n: int, scale: float, skill: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, C, n)
    tilt = rng.normal(size=C)  # a domain prefers some classes, which vector scaling sees
    z = scale * (rng.normal(size=(n, C)) + skill * np.eye(C)[label] + 0.3 * tilt)
    return z.astype(np.float32), label


SPLITS = {
    "art/calibration": logits_of(900, 3.0, 1.6, 1),
    "photo/calibration": logits_of(600, 5.0, 1.1, 2),
    "test": logits_of(500, 3.5, 1.5, 3),
    "sketch": logits_of(400, 2.5, 0.8, 4),
    "clip": logits_of(300, 2.0, 0.4, 5),
}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("domains")
    for split, role in ROLES.items():
        z, y = SPLITS[split]
        np.savez(folder / "logits.npz", logits=z, labels=y)
        done = invoke("import", folder / "logits.npz", "--model", "m", "--benchmark", "office",
                      "--split", split, "--role", role, "--store", folder / "store")  # fmt: skip
        assert done.code == 0, done.stderr
    (folder / "run.yaml").write_text(
        "models: [m]\nbenchmarks: [office]\nstudies: [domains]\n"
        f"sweep: {{calibrators: [temperature, spline, vector], difficulty: [{D}], "
        f"seeds: {list(SEEDS)}}}\n"
    )
    done = ace_ray("run", folder / "run.yaml", "--store", folder / "store", "--json")
    assert done.code == 0, done.stderr
    return Path(done.json["run_dir"])


def fitted(family: str, domain: str, rows: np.ndarray) -> Any:
    single, y = SPLITS[domain]
    z = single.astype(float)
    if family == "temperature":
        return inverse_temperature(z[rows], y[rows])
    if family == "spline":
        return spline_map(top1(z[rows]), (z.argmax(1) == y)[rows])
    # The parameters are the package's, what follows from them is not.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        found = VectorScaling().fit(single, y, rows.astype(float))
    return found.weight_, found.bias_


def member(family: str, domain: str, split: str, seed: int) -> np.ndarray:
    """What the ACE of one domain says of a split: probabilities, or confidences of a spline."""
    z, y = SPLITS[domain][0].astype(float), SPLITS[domain][1]
    test = SPLITS[split][0].astype(float)
    hard = hard_set(z.argmax(1) == y, D, np.random.default_rng(seed))
    f_o, f_h = (fitted(family, domain, rows) for rows in (np.ones(len(y), bool), hard))
    alpha = min(top1(test).mean() / top1(z).mean(), 1)
    if family == "temperature":
        return softmax((alpha * f_o + (1 - alpha) * f_h) * test, axis=1)
    if family == "spline":
        c_o, c_h = (np.clip(np.interp(top1(test), *f), 0, 1) for f in (f_o, f_h))
        return alpha * c_o + (1 - alpha) * c_h
    p_o, p_h = (softmax(w * test + b, axis=1) for w, b in (f_o, f_h))
    return alpha * p_o + (1 - alpha) * p_h


def expected(family: str, split: str, seed: int) -> float:
    said = np.mean([member(family, domain, split, seed) for domain in DOMAINS], axis=0)
    z, y = SPLITS[split]
    if family == "spline":
        return plain_ece(said, z.argmax(1) == y)
    return plain_ece(said.max(1), said.argmax(1) == y)


@pytest.mark.parametrize("family", ["temperature", "spline", "vector"])
def test_the_ensemble_is_what_straight_line_numpy_says(run_dir: Path, family: str) -> None:
    table = json.loads((run_dir / "tables/domains.json").read_text())
    rows = {row[0][1]: row[1:] for row in table["rows"]}
    assert table["columns"] == ["method", "office:clip", "office:sketch"]
    assert not any(cell[2] == "missing" for row in rows.values() for cell in row)
    for how in [*(f"{domain} alone" for domain in DOMAINS), "domains pooled"]:
        assert len(rows[f"{family}+ACE, {how}"]) == 2
    found = rows[f"{family}+ACE, one per domain, ensembled"]
    for cell, split in zip(found, ("clip", "sketch"), strict=True):
        mine = [expected(family, split, seed) for seed in SEEDS]
        assert cell[0] == pytest.approx(100 * np.mean(mine), abs=1e-7)
    results = pq.read_table(run_dir / "results.parquet").to_pylist()
    for row in results:
        if (row["domain"], row["calibrator"]) == ("*", family) and row["role"] != "calibration":
            assert row["ece"] == pytest.approx(expected(family, row["split"], row["seed"]), 1e-9)
            test = top1(SPLITS[row["split"]][0].astype(float)).mean()
            raw = [test / top1(SPLITS[domain][0].astype(float)).mean() for domain in DOMAINS]
            assert row["alpha_raw"] == pytest.approx(np.mean(raw), 1e-9)
            assert row["alpha"] == pytest.approx(np.minimum(raw, 1).mean(), 1e-9)


def test_members_of_another_opinion_are_one_vector() -> None:
    """Vector scaling changes predictions: the confidence is that of the ensemble's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        many = MultiSourceACE(ACE(VectorScaling(), D)).fit([SPLITS[domain] for domain in DOMAINS])
    test = SPLITS["clip"][0]
    each = [ace.predict(test) for ace in many.aces_]
    assert (each[0] != each[1]).any()
    confidence = many.predict_confidence(test)
    np.testing.assert_array_equal(confidence, many.predict_proba(test).max(1))
    apart = np.mean([ace.predict_confidence(test) for ace in many.aces_], axis=0)
    assert (confidence < apart - 1e-3).any()
