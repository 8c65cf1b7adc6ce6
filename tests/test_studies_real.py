"""table1 on real logits, brought in through the command line, against straight-line numpy."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from ace_ray.calibration import VectorScaling, hard_set
from bench.straight_line import inverse_temperature, spline_map
from tests.conftest import ace_ray
from tests.test_command_line import invoke
from tests.test_import import SHARED
from tests.test_pipeline import plain_ece, top1

FILE = SHARED / "imagenet/tf_efficientnet_lite0_val5k_logits.parquet"
SEEDS, DIFFICULTY = (1, 2, 3), 10.0
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="real data is not part of the project")


def real_splits() -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Calibration, in-distribution test, and two tests shifted by noise on the logits."""
    table = pq.read_table(FILE)
    z = table["logits"].combine_chunks().flatten().to_numpy().reshape(-1, 1000)
    y = table["label"].to_numpy()
    # Ten neighbours become one class: vector scaling wants more samples than parameters.
    z = np.logaddexp.reduce(z.reshape(len(z), 100, 10).astype(float), axis=2).astype(np.float32)
    y = y // 10
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    z, y = z[order], y[order]
    noisy, noisier = (
        (0.7 * (z + noise * rng.normal(size=z.shape))).astype(np.float32) for noise in (1.0, 2.0)
    )
    return {
        ("cal", "calibration"): (z[:2500], y[:2500]),
        ("test", "id"): (z[2500:4000], y[2500:4000]),
        ("near", "ood"): (noisy[4000:], y[4000:]),
        ("far", "ood"): (noisier[2500:], y[2500:]),
    }


class StraightLine:
    """ECE of every cell, from arrays alone."""

    def __init__(self, splits: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]) -> None:
        self.splits = {k[0]: (z.astype(float), y) for k, (z, y) in splits.items()}
        self.z, self.y = self.splits["cal"]
        self.right = self.z.argmax(1) == self.y
        self.single = splits["cal", "calibration"][0]
        self.fits: dict[tuple[str, int | None], Any] = {}

    def fit(self, family: str, seed: int | None) -> Any:
        key = family, seed
        if key not in self.fits:
            rows = np.ones(len(self.y), bool)
            if seed is not None:
                rows = hard_set(self.right, DIFFICULTY, np.random.default_rng(seed))
            self.fits[key] = self.fitted(family, rows)
        return self.fits[key]

    def fitted(self, family: str, rows: np.ndarray) -> Any:
        z, y = self.z[rows], self.y[rows]
        if family == "temperature":
            return inverse_temperature(z, y)
        if family == "spline":
            assert len(np.unique(top1(z))) == len(z)  # no ties: nothing to share
            return spline_map(top1(z), self.right[rows])
        # Its 200 parameters are taken from the package, what follows from them is not.
        # One thread, as workers have: another number ends L-BFGS elsewhere.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            fitted = VectorScaling().fit(self.single, self.y, rows.astype(float))
        return fitted.weight_, fitted.bias_

    def cell(self, family: str | None, split: str, seed: int | None) -> float:
        z, y = self.splits[split]
        correct = z.argmax(1) == y
        if family is None:
            return plain_ece(top1(z), correct)
        f_o = self.fit(family, None)
        f_h, alpha = f_o, 1.0
        if seed is not None:
            f_h = self.fit(family, seed)
            alpha = min(top1(z).mean() / top1(self.z).mean(), 1)
        if family == "temperature":
            return plain_ece(top1((alpha * f_o + (1 - alpha) * f_h) * z), correct)
        if family == "spline":
            c_o, c_h = (np.clip(np.interp(top1(z), *f), 0, 1) for f in (f_o, f_h))
            return plain_ece(alpha * c_o + (1 - alpha) * c_h, correct)
        p_o, p_h = (softmax(w * z + b, axis=1) for w, b in (f_o, f_h))
        p = alpha * p_o + (1 - alpha) * p_h
        return plain_ece(p.max(1), p.argmax(1) == y)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    for (split, role), (z, y) in real_splits().items():
        np.savez(folder / "logits.npz", logits=z, labels=y)
        done = invoke("import", folder / "logits.npz", "--model", "lite0", "--benchmark", "val",
                       "--split", split, "--role", role, "--store", folder / "store")  # fmt: skip
        assert done.code == 0, done.stderr
    (folder / "run.yaml").write_text(
        "models: [lite0]\nbenchmarks: [val]\n"
        f"sweep: {{calibrators: [temperature, spline, vector], difficulty: [{DIFFICULTY}], "
        f"seeds: {list(SEEDS)}}}\nstudies: [table1, ttest, welch]\n"
    )
    done = ace_ray("run", folder / "run.yaml", "--store", folder / "store", "--json")
    assert done.code == 0, done.stderr
    return Path(done.json["run_dir"])


def test_table1_is_what_straight_line_numpy_says(run_dir: Path) -> None:
    table = json.loads((run_dir / "tables/table1.json").read_text())
    assert table["columns"] == ["method", "val:far", "val:near"]
    straight = StraightLine(real_splits())
    found = {row[0][0]: row[1:] for row in table["rows"]}
    assert set(found) == {"uncalibrated", *(f"{f}{ace}" for f in ("temperature", "spline", "vector")
                                            for ace in ("", "+ACE"))}  # fmt: skip
    tests = {
        name: {row[0][0]: row[1:] for row in json.loads(text.read_text())["rows"]}
        for name in ("ttest", "welch")
        for text in [run_dir / f"tables/{name}.json"]
    }
    for i, split in enumerate(("far", "near")):
        expected = straight.cell(None, split, None)
        assert found["uncalibrated"][i][0] / 100 == pytest.approx(expected, abs=1e-9)
        for family in ("temperature", "spline", "vector"):
            alone = straight.cell(family, split, None)
            ace = [straight.cell(family, split, seed) for seed in SEEDS]
            assert found[family][i][0] / 100 == pytest.approx(alone, abs=1e-9)
            assert found[f"{family}+ACE"][i][0] / 100 == pytest.approx(np.mean(ace), abs=1e-9)
            assert abs(np.mean(ace) - alone) > 1e-3  # ACE did something
            for name, equal in (("ttest", True), ("welch", False)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # scipy's remark on a constant group
                    scipys = stats.ttest_ind(ace, [alone] * len(SEEDS), equal_var=equal)
                _, _, _, t, p, *_ = tests[name][f"{family}+ACE, val:{split}"]
                assert t[0] == pytest.approx(scipys.statistic, rel=1e-5)
                assert p[0] == pytest.approx(scipys.pvalue, rel=1e-5)
