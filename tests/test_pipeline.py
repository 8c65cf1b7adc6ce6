"""The whole job on a real local Ray: what it writes, and that others can read it."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn.calibration import _TemperatureScaling as SklearnTemperature

from ace_ray.benchmarks import glyphs
from ace_ray.calibration import hard_set
from ace_ray.store import MARKER
from tests.conftest import SMALL, VARIANT, ace_ray

SPLITS = f"logits/model=test_resnet.glyphs/benchmark={VARIANT}"
SPLIT = f"{SPLITS}/split=gaussian_noise%2F5"


def table(run: dict[str, Any], split: str) -> pa.Table:
    folder = run["store"] / SPLITS / f"split={split}"
    return pa.concat_tables(
        [pq.read_table(p, partitioning=None) for p in sorted(folder.glob("*.parquet"))]
    )


def arrays(run: dict[str, Any], split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = table(run, split)
    logits = rows["logits"].combine_chunks().to_numpy_ndarray()
    return logits.astype(np.float64), rows["label"].to_numpy()


def test_run_reports_what_it_made(small_run: dict[str, Any]) -> None:
    assert small_run["splits_extracted"] == 8
    assert small_run["trials_run"] == 7
    assert small_run["failures"] == []
    for name in ("results", "report"):
        assert Path(small_run[name]).is_file()
    # Without a terminal: plain lines, no carriage returns, on standard error.
    assert "logits: 8 splits to extract, 0 cached" in small_run["stderr"]
    assert "\r" not in small_run["stderr"]


def test_layout_of_the_store(small_run: dict[str, Any]) -> None:
    run = Path(small_run["run_dir"])
    assert {p.name for p in run.iterdir()} == {
        "config.yaml", "manifest.json", "trials", "results.parquet", "summary.json",
        "tables", "figures", "report.html", MARKER,
    }  # fmt: skip
    assert len(list((run / "trials").iterdir())) == 7
    for study in ("severity", "table1", "metrics", "ttest", "welch", "quartiles", "alpha"):
        for suffix in ("md", "csv", "json"):
            assert (run / "tables" / f"{study}.{suffix}").stat().st_size > 0
    assert not (small_run["store"] / "staging").exists() or not any(
        (small_run["store"] / "staging").iterdir()
    )


def test_logit_table_schema_and_metadata(small_run: dict[str, Any]) -> None:
    folder = small_run["store"] / SPLIT
    marker = json.loads((folder / MARKER).read_text())
    rows = table(small_run, "gaussian_noise%2F5")
    assert rows.schema.names == ["sample_id", "label", "logits"]
    assert rows.schema.field("label").type == pa.int32()
    assert rows.schema.field("logits").type == pa.fixed_shape_tensor(pa.float32(), [36])
    assert len(rows) == len(set(rows["sample_id"].to_pylist())) == marker["rows"] == 200
    info = json.loads(rows.schema.metadata[b"ace_ray"])
    assert info["key"] == marker["key"]
    assert info["schema"] == 1
    assert len(info["classes"]) == 36


def test_logits_equal_a_plain_torch_loop(small_run: dict[str, Any]) -> None:
    import safetensors.torch
    import timm
    import torch

    from ace_ray.models.config import ModelConfig
    from ace_ray.models.registry import GLYPHS, resolve, weights_of

    network = timm.create_model("test_resnet", num_classes=36).eval()
    (weights,) = weights_of(resolve(ModelConfig(name=GLYPHS)))
    network.load_state_dict(safetensors.torch.load(weights))
    index = np.arange(600)
    x = torch.from_numpy(glyphs.draw(glyphs.SEEDS["test"], index)).permute(0, 3, 1, 2) / 255
    with torch.inference_mode():
        expected = network((x - 0.5) / 0.25).numpy()
    logits, labels = arrays(small_run, "test")
    ids = table(small_run, "test")["sample_id"].to_pylist()
    order = [int(i.split("/")[1]) for i in ids]
    np.testing.assert_allclose(logits, expected[order], atol=1e-4)
    assert (labels == glyphs.labels(glyphs.SEEDS["test"], np.array(order))).all()


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars", "duckdb"])
def test_other_libraries_read_the_table_without_this_package(
    small_run: dict[str, Any], library: str
) -> None:
    folder = small_run["store"] / SPLIT
    read = {
        "pyarrow": "import pyarrow.parquet as p; t = p.read_table(files[0], partitioning=None)\n"
        "ids, z = t['sample_id'].to_pylist(), t['logits'].combine_chunks().to_numpy_ndarray()",
        "pandas": "import pandas as p; t = p.read_parquet(files[0], partitioning=None)\n"
        "ids, z = list(t.sample_id), np.stack(list(t.logits))",
        "polars": "import polars as p; t = p.read_parquet(files[0], hive_partitioning=False)\n"
        "ids, z = t['sample_id'].to_list(), np.array([list(r) for r in t['logits'].to_list()])",
        "duckdb": "import duckdb as p; t = p.sql(f\"select * from read_parquet('{files[0]}')\")\n"
        "rows = t.fetchall(); ids, z = [r[0] for r in rows], np.array([r[2] for r in rows])",
    }[library]
    code = (
        "import glob, json, sys, numpy as np\n"
        f"files = sorted(glob.glob({str(folder)!r} + '/part-*.parquet'))\n{read}\n"
        "assert 'ace_ray' not in sys.modules\n"
        "print(json.dumps([ids[:3], np.asarray(z, float)[:3].tolist(), list(np.shape(z))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ids, values, shape = json.loads(done.stdout)
    rows = table(small_run, "gaussian_noise%2F5")
    assert shape == [200, 36]
    assert ids == rows["sample_id"].to_pylist()[:3]
    np.testing.assert_allclose(values, arrays(small_run, "gaussian_noise%2F5")[0][:3], rtol=1e-6)


def plain_ece(confidence: np.ndarray, correct: np.ndarray, bins: int = 25) -> float:
    edges, total = np.linspace(0, 1, bins + 1), 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += abs((correct[inside] - confidence[inside]).sum()) / len(confidence)
    return total


def top1(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p.max(1) / p.sum(1)


def test_results_equal_a_straight_line_computation(small_run: dict[str, Any]) -> None:
    """ECE of every row, from the logit tables alone, with scikit-learn's temperature."""
    results = pq.read_table(small_run["results"]).to_pylist()
    assert len(results) == 7 * 8
    z_o, y_o = arrays(small_run, "calibration")
    correct_o = z_o.argmax(1) == y_o
    beta_o = SklearnTemperature().fit(z_o, y_o).beta_
    for row in results:
        z, y = arrays(small_run, row["split"].replace("/", "%2F"))
        beta = 1.0
        if row["method"] == "alone":
            beta = beta_o
        if row["method"] == "ace":
            hard = hard_set(correct_o, row["difficulty"], np.random.default_rng(row["seed"]))
            beta_h = SklearnTemperature().fit(z_o[hard], y_o[hard]).beta_
            raw = top1(z).mean() / top1(z_o).mean()
            assert row["alpha_raw"] == pytest.approx(raw, abs=1e-12)
            assert row["alpha"] == min(row["alpha_raw"], 1)
            beta = row["alpha"] * beta_o + (1 - row["alpha"]) * beta_h
        correct = z.argmax(1) == y
        assert row["n"] == len(y)
        assert row["accuracy"] == pytest.approx(correct.mean(), abs=1e-12)
        # scikit-learn stops its own fit earlier than ours: its temperature is good to 1e-4.
        assert row["confidence"] == pytest.approx(top1(beta * z).mean(), abs=1e-4)
        assert row["ece"] == pytest.approx(plain_ece(top1(beta * z), correct), abs=2e-3)
        if row["method"] == "uncalibrated":
            assert row["ece"] == pytest.approx(plain_ece(top1(z), correct), abs=1e-12)
            assert (row["calibrator"], row["seed"], row["alpha"]) == (None, None, None)


def test_severity_table_is_the_mean_over_corruptions_and_seeds(small_run: dict[str, Any]) -> None:
    results = pq.read_table(small_run["results"]).to_pylist()
    severity = json.loads((Path(small_run["run_dir"]) / "tables/severity.json").read_text())
    cells = {row[0][0]: row[1:] for row in severity["rows"]}
    assert severity["columns"] == ["method", "in-distribution", "severity 1", "severity 5"]

    def per_seed(method: str, level: int) -> list[float]:
        rows = [r for r in results if r["method"] == method and r["severity"] == level]
        seeds = sorted({r["seed"] for r in rows if r["seed"] is not None})
        return [float(np.mean([r["ece"] for r in rows if r["seed"] == s])) for s in seeds]

    ace, alone = per_seed("ace", 5), per_seed("alone", 5)
    assert len(ace) == len(alone) == 3
    assert cells["temperature+ACE"][2][0] == pytest.approx(100 * np.mean(ace))
    assert cells["temperature"][2][0] == pytest.approx(100 * np.mean(alone))
    expected = stats.ttest_ind_from_stats(
        np.mean(ace), np.std(ace, ddof=1), 3, alone[0], 0.0, 3
    ).pvalue
    assert cells["  p against temperature"][2][0] == pytest.approx(expected, rel=1e-9)
    alphas = [r["alpha"] for r in results if r["method"] == "ace" and r["severity"] == 5]
    assert cells["alpha"][2][0] == pytest.approx(np.mean(alphas))


def test_a_second_run_computes_nothing_and_says_so(small_run: dict[str, Any]) -> None:
    before = {p: p.stat().st_mtime_ns for p in small_run["store"].rglob("*") if p.is_file()}
    done = ace_ray("run", SMALL, "--store", small_run["store"])
    assert done.code == 0
    assert "logits: all 8 splits cached" in done.stderr
    assert "sweep: all 7 trials recorded" in done.stderr
    assert "Nothing was computed" in done.stdout
    assert "temperature+ACE" in done.stdout
    assert before == {p: p.stat().st_mtime_ns for p in small_run["store"].rglob("*") if p.is_file()}


def test_plan_says_what_would_run_and_writes_nothing(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    fresh = ace_ray("plan", SMALL, "--store", tmp_path / "none", "--json")
    assert fresh.code == 0
    assert not (tmp_path / "none").exists()
    assert (fresh.json["splits_cached"], fresh.json["trials_recorded"]) == (0, 0)
    assert (fresh.json["images_to_do"], fresh.json["finished"]) == (1000 + 600 + 6 * 200, False)
    cached = ace_ray("plan", SMALL, "--store", small_run["store"])
    assert "0 of 8 splits to extract" in cached.stdout
    assert "0 of 7 trials to run" in cached.stdout
    assert "up to date" in cached.stdout


def test_a_changed_sweep_reuses_the_logits(small_run: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "other.yaml"
    config.write_text(SMALL.read_text().replace("difficulty: [10]", "difficulty: [4]"))
    found = ace_ray("plan", config, "--store", small_run["store"], "--json").json
    assert found["run_id"] != small_run["run_id"]
    assert found["splits_cached"] == found["splits"]
    assert found["trials_recorded"] == 0


def test_validate_accepts_the_run_and_notices_every_damage(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    good = ace_ray("validate", small_run["run_id"], "--store", store, "--json")
    assert good.code == 0
    assert good.json["problems"] == []
    assert (good.json["rows"], good.json["measurements"]) == (2800, 56)

    part = next((store / SPLIT).glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    run = store / "runs" / small_run["run_id"]
    next((run / "trials").iterdir()).unlink()
    (run / "report.html").write_text("edited")
    bad = ace_ray("validate", "--store", store, "--json")
    assert bad.code == 2
    problems = "\n".join(bad.json["problems"])
    assert "digest differs" in problems
    assert "has no record" in problems
    assert "report.html: changed" in problems
    assert len(bad.json["problems"]) == 3


def test_repair_extracts_only_what_is_damaged(small_run: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    part = next((store / SPLIT).glob("*.parquet"))
    original = part.read_bytes()
    part.write_bytes(original[: len(original) // 2])
    refused = ace_ray("run", SMALL, "--store", store)
    assert refused.code == 2
    assert f"ace-ray logits {SMALL} --store {store} --repair" in refused.error
    done = ace_ray("logits", SMALL, "--store", store, "--repair", "--json")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 1
    assert part.read_bytes() == original


def test_a_trial_that_cannot_be_fitted_is_one_line_and_exit_code_1(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    """Difficulty 1e6 leaves no right sample; the other trials are kept."""
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    config = tmp_path / "hard.yaml"
    config.write_text(SMALL.read_text().replace("difficulty: [10]", "difficulty: [1000000]"))
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 1
    assert len(done.json["failures"]) == 3
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: 3 of 7 trials failed")
    assert "wrong sample" in last
    assert "Traceback" not in done.stderr
    page = Path(done.json["report"]).read_text()
    # Once, with the reason and every trial that it failed.
    (notice,) = re.findall(r'<div class="notice failed">.*?</div>', page)
    assert "failed: hard set: difficulty 1e+06 needs" in notice
    assert notice.count("<li>test_resnet.glyphs temperature+ace d=1e+06 seed") == 3
    severity = (Path(done.json["run_dir"]) / "tables/severity.csv").read_text()
    assert "temperature+ACE,missing,missing,missing" in severity
    # Not finished: the next run tries the failed trials again.
    again = ace_ray("plan", config, "--store", store, "--json").json
    assert (again["finished"], again["trials_recorded"]) == (False, 4)


@pytest.mark.slow
def test_one_worker_or_two_give_the_same_bytes(small_run: dict[str, Any], tmp_path: Path) -> None:
    done = ace_ray("run", SMALL, "--store", tmp_path / "one", "--cpus", 1, "--json")
    assert done.code == 0, done.stderr
    assert done.json["run_id"] == small_run["run_id"]
    assert Path(done.json["results"]).read_bytes() == Path(small_run["results"]).read_bytes()
    for mine in (tmp_path / "one" / "logits").rglob("*.parquet"):
        theirs = small_run["store"] / mine.relative_to(tmp_path / "one")
        assert mine.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "results.parquet",
        "report.html",
        pytest.param("tables/severity.json", marks=pytest.mark.slow),
        pytest.param("summary.json", marks=pytest.mark.slow),
    ],
)
def test_outputs_that_are_gone_are_made_again(
    small_run: dict[str, Any], tmp_path: Path, name: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    output = store / "runs" / small_run["run_id"] / name
    original = output.read_bytes()
    output.write_bytes(original[:-1]) if name == "results.parquet" else output.unlink()
    assert not ace_ray("plan", SMALL, "--store", store, "--json").json["finished"]
    done = ace_ray("run", SMALL, "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert (done.json["splits_extracted"], done.json["trials_run"]) == (0, 0)
    assert output.read_bytes() == original


def test_repair_finds_a_flipped_bit(small_run: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    part = next((store / SPLIT).glob("*.parquet"))
    original = part.read_bytes()
    damaged = bytearray(original)
    damaged[len(damaged) // 2] ^= 1
    part.write_bytes(damaged)
    bad = ace_ray("validate", "--store", store)
    assert bad.code == 2
    # The remedy can be pasted: it names the run's own configuration and the store.
    remedy = (
        f"`ace-ray logits {store}/runs/{small_run['run_id']}/config.yaml --store {store} --repair`"
    )
    assert remedy in bad.stderr
    done = ace_ray(*remedy.strip("`").split()[1:], "--json")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 1
    assert part.read_bytes() == original
    assert ace_ray("validate", "--store", store).code == 0


def test_two_configurations_share_a_store_without_replacing_each_other(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    other = tmp_path / "other.yaml"
    other.write_text(SMALL.read_text().replace("test: 600", "test: 500"))
    found = ace_ray("plan", other, "--store", store, "--json").json
    assert (found["splits_cached"], found["splits_outdated"]) == (0, 0)
    assert ace_ray("logits", other, "--store", store).code == 0
    assert ace_ray("plan", SMALL, "--store", store, "--json").json["finished"]
    assert ace_ray("validate", small_run["run_id"], "--store", store).code == 0


@pytest.mark.slow
def test_every_calibrator_goes_through_the_sweep(small_run: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    names = [
        "temperature",
        "vector",
        "spline",
        "isotonic",
        "histogram",
        "matrix",
        "dirichlet",
        "avuts",
    ]
    config = tmp_path / "all.yaml"
    text = SMALL.read_text().replace("[temperature]", str(names)).replace("[1, 2, 3]", "[1, 2]")
    config.write_text(text)
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    rows = pq.read_table(done.json["results"]).to_pylist()
    assert len(rows) == 8 * (1 + 4 * len(names))
    assert {r["calibrator"] for r in rows} == {None, *names}
    for row in rows:
        assert 0 <= row["ece"] <= 1
        assert row["accuracy"] > 0.1
    severity = (Path(done.json["run_dir"]) / "tables/severity.md").read_text()
    assert all(f"| {name}+ACE |" in severity for name in names)
