"""Two runs side by side: what changed, with intervals that scipy computes too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

from ace_ray.cli import main
from ace_ray.compare import Run, compare_runs, difference, flat
from ace_ray.report.differences import comparison_text
from tests.conftest import SMALL, Done, ace_ray


def invoke(*arguments: object) -> Done:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def row(**changed: Any) -> dict[str, Any]:
    plain = {
        "run_id": "r", "model": "m", "benchmark": "b", "split": "test", "corruption": None,
        "severity": None, "role": "id", "calibrator": "spline", "method": "ace",
        "difficulty": 10.0, "seed": 1, "ece": 0.1,
    }  # fmt: skip
    return {**plain, **changed}


def made(run_id: str, rows: list[dict[str, Any]], **config: Any) -> Run:
    manifest = {"run_id": run_id, "config": config, "logits": {}, "versions": {}}
    return Run(run_id, manifest, rows, complete=True)


def seeds(values: list[float], **changed: Any) -> list[dict[str, Any]]:
    return [row(seed=i, ece=v, **changed) for i, v in enumerate(values)]


@pytest.mark.parametrize("after", [[0.31, 0.33, 0.29, 0.35], [0.2, 0.2], [0.11, 0.10, 0.13]])
def test_the_interval_is_scipys(after: list[float]) -> None:
    before = [0.10, 0.12, 0.11]
    found = difference(before, after, repeated=True)
    expected = stats.ttest_ind_from_stats(
        np.mean(after), np.std(after, ddof=1), len(after), np.mean(before),
        np.std(before, ddof=1), 3, equal_var=False,
    ).pvalue  # fmt: skip
    assert found.p == pytest.approx(expected, rel=1e-9)
    if len(set(after)) > 1:
        interval = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    # An interval without 0 and a p-value below 0.05 say the same.
    assert found.low is not None
    assert found.high is not None
    assert (found.low > 0 or found.high < 0) == (found.p < 0.05)
    assert (found.verdict == "higher") == (found.p < 0.05)


def test_without_variance_there_is_no_p_value() -> None:
    exact = difference([0.2, 0.2], [0.1, 0.1], repeated=True)
    assert (exact.deterministic, exact.p, exact.low, exact.verdict) == (True, None, None, "lower")
    assert difference([0.2], [0.2], repeated=False).verdict == "same"
    assert difference([0.2], [0.3], repeated=False).verdict == "higher"


def test_one_seed_is_not_tested() -> None:
    found = difference([0.2], [0.3, 0.31], repeated=True)
    assert (found.verdict, found.p, found.deterministic) == ("not tested", None, False)


def test_a_changed_difficulty_is_one_series_and_several_are_not() -> None:
    one = made("a", seeds([0.2, 0.21]))
    other = made("b", seeds([0.1, 0.11], difficulty=4.0))
    (found,) = compare_runs(one, other).differences
    assert found.setting == "d=10 -> 4"
    assert found.interval.change == pytest.approx(-0.1)
    two = made("b", [*other.rows, *seeds([0.1, 0.11], difficulty=5.0)])
    result = compare_runs(one, two)
    assert result.differences == []
    assert (len(result.added), len(result.removed)) == (2, 1)
    assert result.removed == ["m spline+ACE d=10, in-distribution"]


def test_trials_of_a_study_are_not_compared() -> None:
    """Neither with each other nor, where a difficulty happens to match, with the grid."""
    listed = {"sweep": {"difficulty": [10.0]}}
    extra = [
        *seeds([0.4, 0.41], difficulty=4.0),
        *seeds([0.5, 0.51], difficulty=7.0),
        *seeds([0.6, 0.61], fixed_alpha=0.0),
        *seeds([0.7, 0.71], method="hard"),
    ]
    one = made("a", [*seeds([0.2, 0.21]), *extra], **listed)
    other = made("b", seeds([0.1, 0.11], difficulty=4.0), sweep={"difficulty": [4.0]})
    result = compare_runs(one, other)
    (found,) = result.differences
    assert (found.setting, found.before) == ("d=10 -> 4", pytest.approx(0.205))
    assert (result.added, result.removed) == ([], [])
    assert result.notes == ["trials that a study added are not compared"]
    # A run from before these columns existed has the plain method.
    old = [{k: v for k, v in r.items() if k != "fixed_alpha"} for r in seeds([0.3, 0.31])]
    assert [d.setting for d in compare_runs(made("a", old), one).differences] == ["d=10"]


def test_equal_values_are_the_same_however_they_vary() -> None:
    found = difference([0.1, 0.3, 0.2], [0.1, 0.3, 0.2], repeated=True)
    assert (found.verdict, found.change, found.p, found.low) == ("same", 0, None, None)
    assert difference([0.1, 0.3], [0.3, 0.1], repeated=True).verdict == "not significant"


def test_groups_are_averaged_over_the_splits_of_both_runs() -> None:
    def at(corruption: str, values: list[float]) -> list[dict[str, Any]]:
        split = {"split": f"{corruption}/5", "corruption": corruption, "severity": 5}
        return seeds(values, role="ood", **split)

    a = made("a", at("fog", [0.1, 0.2]) + at("snow", [0.3, 0.6]))
    b = made("b", at("fog", [0.2, 0.2]) + at("snow", [0.4, 0.6]) + at("blur", [0.9, 0.9]))
    result = compare_runs(a, b)
    (found,) = result.differences
    assert (found.group, found.splits) == ("severity 5", 2)
    assert (found.before, found.after) == pytest.approx((0.3, 0.35))
    expected = stats.ttest_ind([0.3, 0.4], [0.2, 0.4], equal_var=False).pvalue
    assert found.interval.p == pytest.approx(expected)
    assert "2 splits of both" in result.notes[0]


def test_a_seed_without_all_splits_does_not_count() -> None:
    a = made("a", [*seeds([0.1, 0.2, 0.3]), row(split="other", seed=0), row(split="other", seed=1)])
    b = made("b", [*seeds([0.1, 0.2, 0.4]), *seeds([0.1, 0.2, 0.3], split="other")])
    (found,) = compare_runs(a, b).differences
    assert found.seeds == (2, 3)


def test_settings_that_differ_are_named() -> None:
    before = {"sweep": {"bins": 25, "seeds": [1, 2]}, "benchmarks": [{"name": "g", "test": 1}]}
    after = {"sweep": {"bins": 10, "seeds": [1, 2]}, "benchmarks": [{"name": "g", "test": 2}, "h"]}
    result = compare_runs(made("a", seeds([0.1, 0.2]), **before), made("b", [row()], **after))
    assert [tuple(c) for c in result.config] == [
        ("sweep.bins", 25, 10),
        ("benchmarks", ["g"], ["g", "h"]),
        ("benchmarks.g.test", 1, 2),
    ]
    assert any("other bins" in note for note in result.notes)
    assert flat({"a": {"b": 1}}) == {"a.b": 1}


def test_hostile_names_stay_on_their_line() -> None:
    name = "m\x1b[31m\nerror: \u202e"
    result = compare_runs(made("a", seeds([0.1, 0.2], model=name)), made("b", seeds([0.3, 0.2])))
    text = comparison_text(result)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.startswith("error")]


@pytest.fixture(scope="module")
def two_runs(small_run: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The small run, and one that differs in its difficulty, in one store."""
    folder = tmp_path_factory.mktemp("compare")
    store = folder / "store"
    shutil.copytree(small_run["store"], store)
    config = folder / "other.yaml"
    config.write_text(SMALL.read_text().replace("difficulty: [10]", "difficulty: [4]"))
    done = ace_ray("run", config, "--store", store, "--json")
    assert done.code == 0, done.stderr
    return {"store": store, "first": small_run["run_id"], "second": done.json["run_id"]}


def per_seed(two: dict[str, Any], run: str, method: str, level: int) -> list[float]:
    path = two["store"] / "runs" / two[run] / "results.parquet"
    rows = pq.read_table(path, partitioning=None).to_pylist()
    mine = [r for r in rows if (r["method"], r["severity"]) == (method, level)]
    return [float(np.mean([r["ece"] for r in mine if r["seed"] == s])) for s in (1, 2, 3)]


def test_runs_with_a_changed_difficulty(two_runs: dict[str, Any]) -> None:
    files = {p: p.stat().st_mtime_ns for p in two_runs["store"].rglob("*")}
    names = (two_runs["first"], two_runs["second"])
    done = invoke("compare", *names, "--store", two_runs["store"])
    assert done.code == 0
    assert "configuration  sweep.difficulty: [10.0] -> [4.0]" in done.stdout
    assert "logits         the same tables" in done.stdout
    assert "temperature+ACE d=10 -> 4, severity 5" in done.stdout
    found = json.loads(invoke("compare", *names, "--store", two_runs["store"], "--json").stdout)
    assert not found["identical"]
    assert (found["added"], found["removed"], found["logits"]) == ([], [], [])
    rows = {(d["calibrator"], d["method"], d["group"]): d for d in found["differences"]}
    assert len(rows) == 9
    for level in (1, 5):
        before, after = (per_seed(two_runs, run, "ace", level) for run in ("first", "second"))
        ours = rows["temperature", "ace", f"severity {level}"]
        expected = stats.ttest_ind(after, before, equal_var=False)
        interval = expected.confidence_interval(0.95)
        assert ours["change"] == pytest.approx(np.mean(after) - np.mean(before))
        assert (ours["low"], ours["high"]) == pytest.approx((interval.low, interval.high))
        assert ours["p"] == pytest.approx(expected.pvalue, rel=1e-6)
        assert (ours["verdict"] in ("lower", "higher")) == (expected.pvalue < 0.05)
        # What does not depend on d is the same to the last digit.
        for series in ((None, "uncalibrated"), ("temperature", "alone")):
            same = rows[*series, f"severity {level}"]
            assert (same["deterministic"], same["verdict"], same["change"]) == (True, "same", 0)
    assert files == {p: p.stat().st_mtime_ns for p in two_runs["store"].rglob("*")}


def test_identical_runs_say_so_in_one_line(two_runs: dict[str, Any], tmp_path: Path) -> None:
    first = two_runs["first"]
    done = invoke("compare", first, first[:6], "--store", two_runs["store"])
    assert (done.code, done.stdout) == (0, f"{first} is compared with itself: identical\n")
    store = tmp_path / "store"
    shutil.copytree(two_runs["store"], store)
    shutil.copytree(store / "runs" / first, store / "runs" / "copy")
    done = invoke("compare", first, "copy", "--store", store)
    assert (done.code, done.stdout) == (0, f"{first} and copy are identical in every measurement\n")
    assert invoke("compare", first, "copy", "--store", store, "--json").json["identical"]


def test_runs_that_cannot_be_compared(two_runs: dict[str, Any], tmp_path: Path) -> None:
    first = two_runs["first"]
    typo = first[:-2] + "zz"
    done = invoke("compare", first, typo, "--store", two_runs["store"])
    assert done.code == 2
    assert f"no run {typo!r}" in done.error
    assert f"did you mean {first!r}" in done.error
    assert invoke("compare", first, "--store", two_runs["store"]).code == 2
    store = tmp_path / "store"
    shutil.copytree(two_runs["store"], store)
    results = store / "runs" / first / "results.parquet"
    results.write_bytes(results.read_bytes()[:500])
    damaged = invoke("compare", first, two_runs["second"], "--store", store)
    assert damaged.code == 2
    assert "results.parquet" in damaged.error
    results.unlink()
    gone = invoke("compare", first, two_runs["second"], "--store", store)
    assert gone.code == 2
    assert "has no results yet" in gone.error
