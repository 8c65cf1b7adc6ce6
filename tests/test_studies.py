"""Every study: pinned as a whole, checked cell by cell with numpy and scipy, honest about gaps."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from ace_ray.aggregate.arrange import Series
from ace_ray.aggregate.cells import holm_adjusted, ranked
from ace_ray.aggregate.diagrams import diagrams
from ace_ray.aggregate.figure import Figure
from ace_ray.aggregate.results import SCHEMA, encode_results, results_rows
from ace_ray.aggregate.studies import STUDIES
from ace_ray.aggregate.study import output_path
from ace_ray.aggregate.summary import summary
from ace_ray.aggregate.table import Cell, Table
from ace_ray.calibration import Bootstrap, Significance
from ace_ray.calibration.density import EDGES, nll_histograms
from ace_ray.calibration.resample import ece_resamples
from ace_ray.config import FREE_STUDIES, load, load_plain
from ace_ray.config import STUDIES as NAMES
from ace_ray.identity import canonical_json
from ace_ray.report.text import notes_of
from ace_ray.sweep.specs import grid, specs_of
from ace_ray.sweep.trial import ADDED, EVERY_DOMAIN
from tests.conftest import ROOT
from tests.synthetic import GOLDEN, PLACES, arranged, config_of, record_of, records
from tests.test_pipeline import plain_ece

CONFIG = config_of()
RECORDS = records(CONFIG)
RESULTS = arranged(CONFIG, RECORDS)


def show(name: str, results: Any = RESULTS) -> Any:
    return STUDIES[name].show(results)


def cells(table: Table) -> dict[str, list[Cell]]:
    return {row[0].text: row[1:] for row in table.rows}


def as_text(made: Table | Figure) -> str:
    lines = [f"== {made.name}: {made.title}"]
    if isinstance(made, Table):
        lines.append(" | ".join(made.columns))
        for row in made.rows:
            shown = [f"{c.text}{f' {c.mark}' if c.mark else ''}{f' #{c.rank}' if c.rank else ''}"
                     for c in row]  # fmt: skip
            lines.append(" | ".join(shown))
    else:
        lines.append(f"{made.x_label} | {made.y_label}")
        for panel in made.panels:
            lines.append(f"-- {panel.title} | ticks {panel.ticks} | marks {panel.marks}")
            for c in panel.curves:
                points = " ".join(
                    f"{x:g}:{y:.4f}" for x, y in list(zip(c.x, c.y, strict=True))[:21]
                )
                band = "" if c.low is None or c.high is None else f" ±{c.high[0] - c.y[0]:.4f}"
                lines.append(f"{c.name} ({c.drawn}){band} {points}")
    return "\n".join([*lines, *(f"* {note}" for note in made.notes)])


def test_every_table_and_figure_is_pinned() -> None:
    """To change it on purpose: ACE_RAY_WRITE_GOLDEN=1 and read the difference."""
    import os

    text = "\n\n".join(as_text(show(name)) for name in NAMES)
    text += "\n\n== summary\n" + "\n".join(summary(RESULTS)) + "\n"
    if os.environ.get("ACE_RAY_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


PAPER = [
    "table1", "table2", "table3", "quartiles", "metrics", "ttest", "welch", "severity", "alpha",
    "estimation", "same_size", "weak_models", "wilds", "combination", "domains", "fig_nll",
    "fig_difficulty", "fig_id", "fig_size", "fig_d", "fig_weighting", "fig_alpha", "fig_batch",
]  # fmt: skip


def test_names_are_the_papers() -> None:
    assert set(STUDIES) == set(NAMES)
    assert sorted(NAMES) == sorted(PAPER)
    for name in NAMES:
        made = show(name)
        assert made.name == name
        assert isinstance(made, Figure) == name.startswith("fig_")
        assert output_path(name).endswith(
            f"{'figures' if 'fig_' in name else 'tables'}/{name}.json"
        )
        # Plain data, without NaN, that reads back as itself.
        plain = json.loads(canonical_json(made.as_plain()))
        assert canonical_json(type(made).from_plain(plain).as_plain()) == canonical_json(plain)


def test_trials_are_the_grid_first_and_each_once() -> None:
    specs = specs_of(CONFIG)
    assert specs[: len(grid(CONFIG))] == grid(CONFIG)
    assert len(set(specs)) == len(specs)
    free = config_of(studies=list(FREE_STUDIES))
    assert specs_of(free) == grid(free)
    tried = {name for name in ADDED for s in specs if getattr(s, name) not in (None, False)}
    assert tried == set(ADDED) - {"domain"}


def test_plain_tables_do_not_show_what_a_study_added() -> None:
    few = config_of(studies=["table1"])
    assert as_text(show("table1")) == as_text(show("table1", arranged(few)))
    assert len(diagrams(RESULTS, RECORDS)) == 5 * 4


def ece(method: str, calibrator: str, splits: list[str], **added: Any) -> list[float]:
    """Straight from the records: per seed, the mean over splits."""
    wanted = dict.fromkeys(ADDED) | {"same_size": False, "method": method,
                                     "calibrator": calibrator} | added  # fmt: skip
    if method == "ace":
        wanted.setdefault("difficulty", 10.0)
    out = []
    for record in RECORDS:
        if all(record["spec"][name] == value for name, value in wanted.items()):
            rows = {r["split"]: r["ece"] for r in record["measurements"]}
            out.append(float(np.mean([rows[s] for s in splits])))
    assert len(out) == 3
    return out


SEVERE = ["fog/5", "snow/5", "blur/5"]


@pytest.mark.parametrize(("study", "equal"), [("ttest", True), ("welch", False)])
def test_t_and_p_are_scipys(study: str, equal: bool) -> None:
    table = cells(show(study))
    family = {}
    columns = {"in-distribution": ["test"], "shop:street": ["street"], "severity 5": SEVERE,
               "severity 1": ["fog/1", "snow/1", "blur/1"]}  # fmt: skip
    for calibrator, (column, splits) in itertools.product(["temperature", "spline"],
                                                          columns.items()):  # fmt: skip
        ace, alone = ece("ace", calibrator, splits), ece("alone", calibrator, splits)
        expected = stats.ttest_ind_from_stats(
            np.mean(ace), np.std(ace, ddof=1), 3, alone[0], 0.0, 3, equal_var=equal
        )
        row = table[f"{calibrator}+ACE, {column}"]
        assert row[0].value == pytest.approx(100 * alone[0], abs=1e-9)
        assert row[1].value == pytest.approx(100 * np.mean(ace), abs=1e-9)
        assert row[3].value == pytest.approx(expected.statistic, rel=1e-9)
        assert row[4].value == pytest.approx(expected.pvalue, rel=1e-9)
        family[f"{calibrator}+ACE, {column}"] = float(expected.pvalue)
    assert len(table) == len(family) == 8
    # Holm by hand: the i-th smallest times what is left, never below its predecessor.
    least = 0.0
    for i, (key, p) in enumerate(sorted(family.items(), key=lambda pair: pair[1])):
        least = min(max(least, p * (8 - i)), 1.0)
        assert table[key][5].value == pytest.approx(least, rel=1e-9)


def test_holm_leaves_out_what_has_no_p_value() -> None:
    exact = Significance(None, None, deterministic=True)
    tests = {"a": Significance(3.0, 0.01), "b": exact, "c": None, "d": Significance(2.0, 0.04)}
    assert holm_adjusted(tests) == {"a": 0.02, "d": 0.04}


def test_quartiles_are_numpys() -> None:
    table = cells(show("quartiles"))
    for method, calibrator, name in [
        ("alone", "spline", "spline"),
        ("ace", "spline", "spline+ACE"),
    ]:
        per_split = np.array([ece(method, calibrator, [s]) for s in SEVERE])  # (splits, seeds)
        for cell, expected in zip(
            table[name],
            [np.quantile(per_split, 0.25, axis=0), np.median(per_split, axis=0),
             per_split.mean(axis=0), np.quantile(per_split, 0.75, axis=0)],
            strict=True,
        ):  # fmt: skip
            assert cell.value == pytest.approx(100 * expected.mean(), abs=1e-9)


def test_ranks_are_best_and_second_best_of_a_column() -> None:
    rows = [[Cell(name, name), Cell(value, "")] for name, value in
            [("a", 3.0), ("b", 1.0), ("c", None), ("d", 2.0), ("e", 1.0)]]  # fmt: skip
    assert [row[1].rank for row in ranked(rows)] == [None, 1, None, 2, 1]
    assert Cell(*[1.0, "1", ""]).rank is None  # as older tables have it
    table1 = show("table1")
    for column in range(1, len(table1.columns)):
        values = sorted((row[column].value, row[column].rank) for row in table1.rows)
        assert [rank for _, rank in values] == [1, 2, None, None, None]


def test_marks_say_better_and_worse() -> None:
    harmed = [dict(r) for r in RECORDS]
    for record in harmed:
        if record["spec"]["method"] == "ace" and record["spec"]["calibrator"] == "spline":
            rows = [dict(row) for row in record["measurements"]]
            for row in rows:
                row["ece"] += 0.3
            record["measurements"] = rows
    table = cells(show("table1", arranged(CONFIG, harmed)))
    assert {c.mark for c in table["spline+ACE"]} == {"worse"}
    assert table["temperature+ACE"][-1].mark == "better"
    assert {c.mark for c in table["spline"]} == {""}


def test_a_missing_measurement_marks_the_cell_and_is_never_a_mean_over_fewer() -> None:
    def lost(record: dict[str, Any]) -> bool:
        spec = record["spec"]
        return (spec["method"], spec["calibrator"], spec["seed"]) == ("ace", "spline", 2)

    results = arranged(CONFIG, [r for r in RECORDS if not lost(r)])
    for name in ("table1", "severity", "quartiles"):
        table = cells(show(name, results))
        assert {c.mark for c in table["spline+ACE"]} == {"missing"}
        assert {c.value for c in table["spline+ACE"]} == {None}
        assert cells(show(name))["temperature+ACE"][0].value == table["temperature+ACE"][0].value
    assert {c.mark for c in cells(show("ttest", results))["spline+ACE, severity 5"][1:]} == {
        "missing"
    }
    figure = show("fig_d", results)
    assert [p.title for p in figure.panels] == ["temperature"]
    assert any(note.startswith("missing: 48 points") for note in figure.notes)
    assert "spline+ACE" in summary(results)[0].split("measurements are missing:")[1]
    # One split of one seed: its column alone.
    holed = [dict(r) for r in RECORDS]
    for record in holed:
        if lost(record) and record["spec"]["difficulty"] == 10:
            rows = [dict(row) for row in record["measurements"]]
            rows[3]["ece"] = None
            record["measurements"] = rows
    table = cells(show("table1", arranged(CONFIG, holed)))
    assert [c.mark == "missing" for c in table["spline+ACE"]] == [False, False, True]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kept",
    [
        (),
        ("calibration",),
        ("calibration", "id"),
        ("calibration", "ood"),
    ],
)
def test_a_study_that_cannot_be_fed_says_what_is_missing(name: str, kept: tuple[str, ...]) -> None:
    places = tuple(p for p in PLACES if p.role in kept)
    made = show(name, arranged(CONFIG, records(CONFIG, places) if kept else []))
    canonical_json(made.as_plain())
    notes = " ".join(made.notes)
    shifted = {"table1", "table2", "metrics", "combination", "fig_d", "fig_alpha"}
    if name in shifted and "ood" not in kept:
        assert "role `ood`" in notes
    if name in ("fig_id", "fig_difficulty") and "id" not in kept:
        assert "role `id`" in notes
    if name in ("table3", "quartiles") and "ood" not in kept:
        assert "no corrupted split" in notes


def test_comparators_without_results_are_named_and_appear_once_they_have_some() -> None:
    for table, name in (("table2", "spline+Perturbation"), ("table3", "SVI-AvUC")):
        assert {tuple(c) for c in cells(show(table))[name]} == {(None, "–", "", None)}
        assert any("not asked of this run" in note for note in notes_of(show(table)))
    assert "no results of Perturbation" in show("table2").notes
    assert "no results of Perturbation" in show("fig_id").notes
    known = [dict(r) for r in RECORDS]
    specs = [r["spec"] for r in known]
    for record in RECORDS:
        spec = record["spec"]
        if (spec["method"], spec["calibrator"], spec["same_size"]) == ("alone", "spline", False):
            known.append({**record, "spec": {**spec, "method": "perturbation"}})
            specs.append(known[-1]["spec"])
    results = type(RESULTS).arrange(known, specs, (10.0,))
    for name in ("table1", "table2", "severity"):
        row = cells(show(name, results))["spline+Perturbation"]
        assert [c.value for c in row] == [c.value for c in cells(show(name, results))["spline"]]
    assert not any("Perturbation" in note for note in show("fig_id", results).notes)


def test_several_models_difficulties_and_benchmarks_are_told_apart() -> None:
    config = config_of(models=["mine", "other"], sweep={"difficulty": [10, 5]})
    places = PLACES + tuple(p._replace(benchmark="yard") for p in PLACES if p.severity)
    results = arranged(config, records(config, places))
    table = show("table1", results)
    assert table.columns[1:] == ["shop:street", "shop severity 1", "yard severity 1",
                                 "shop severity 5", "yard severity 5"]  # fmt: skip
    names = [row[0].text for row in table.rows]
    assert names[:4] == ["mine: uncalibrated", "mine: temperature", "mine: temperature+ACE d=10",
                         "mine: temperature+ACE d=5"]  # fmt: skip
    assert len(set(names)) == len(names) == 14
    assert show("table3", results).columns == ["method", "shop", "yard"]
    assert [s.split(":")[0] for s in summary(results)[:2]] == ["mine", "other"]


def test_a_model_is_judged_by_its_own_splits() -> None:
    """Another model with other splits changes nothing but the columns of the tables."""
    other = tuple(p._replace(split=f"{p.split}-b") for p in PLACES if p.severity is None)
    config = config_of(models=["mine", "other"])
    both = [
        r if r["spec"]["model"] == "mine" else record_of(r["key"], r["spec"], other)
        for r in records(config)
    ]
    results = arranged(config, both)
    assert summary(results)[0] == f"mine: {summary(RESULTS)[0]}"
    assert summary(results)[1].startswith("other: Ship ")
    for name in NAMES:
        made = show(name, results)
        assert not any("missing" in note for note in made.notes), name
        if isinstance(made, Table):
            assert not [c for row in made.rows for c in row if c.mark == "missing"], name
    severity = cells(show("severity", results))
    alone = cells(show("severity"))["spline+ACE"]
    shown = dict(
        zip(show("severity", results).columns[1:], severity["mine: spline+ACE"], strict=True)
    )
    assert [shown[c] for c in show("severity").columns[1:]] == alone
    assert shown["shop:street-b"].text == "–"
    assert severity["mine: spline+ACE"][0].value != severity["other: spline+ACE"][0].value
    # What failed is missing still, and only where the model has a split.
    lost = [r for r in both if r["spec"]["model"] != "other" or r["spec"]["method"] != "ace"]
    row = cells(show("severity", arranged(config, lost)))["other: spline+ACE"]
    assert {c.text for c in row} == {"missing", "–"}


def test_a_table_explains_only_what_it_shows() -> None:
    assert any("clipped" in note for note in show("alpha").notes)
    inner = [dict(r) for r in RECORDS]
    for record in inner:
        rows = record["measurements"]
        record["measurements"] = [{**row, "alpha_raw": row["alpha"]} for row in rows]
    assert show("alpha", arranged(CONFIG, inner)).notes == []
    for name in ("table1", "table3", "severity", "quartiles"):
        assert any("Holm's correction" in note for note in show(name).notes), name


def test_source_domains_have_their_own_trials(tmp_path: Path) -> None:
    names = ["Product/calibration", "Real World/calibration"]
    plain = load(str(ROOT / "configs/studies/domains.yaml")).as_plain()
    config = load_plain({**plain, "models": ["mine", "other"]}, "test")
    # The other model has one calibration split, and so nothing to ensemble.
    sources = {"mine": names, "other": ["calibration"]}
    found = {(s.model, s.domain) for s in specs_of(config, sources) if s.domain is not None}
    assert found == {("mine", domain) for domain in [*names, EVERY_DOMAIN]}
    table = cells(show("domains", arranged(config, records(config, sources=sources), sources)))
    for how in ("Product/calibration alone", "one per domain, ensembled"):
        assert table[f"mine: spline+ACE, {how}"][0].value is not None
        assert f"other: spline+ACE, {how}" not in table
    assert "one source domain" in " ".join(show("domains").notes)


def changed_by(change: Any) -> Any:
    changed = []
    for record in RECORDS:
        rows = [{**row, "ece": change(record["spec"], row)} for row in record["measurements"]]
        changed.append({**record, "measurements": rows})
    return arranged(CONFIG, changed)


def recommended(change: Any) -> str:
    return summary(changed_by(change))[0]


def test_the_recommendation_follows_its_rule() -> None:
    assert summary(RESULTS)[0].startswith("Ship spline+ACE: mean OOD ECE 22.50 % -> ")
    assert "no significant change in-distribution" in summary(RESULTS)[0]

    def harmful(spec: Any, row: Any) -> float:
        worse = spec["method"] == "ace" and spec["calibrator"] == "spline" and row["role"] == "id"
        return row["ece"] + 0.1 * worse

    text = recommended(harmful)
    assert text.startswith("Ship temperature+ACE: ")
    assert "spline+ACE is lower under shift" in text
    assert "significantly worse in-distribution" in text

    def faintly(spec: Any, row: Any) -> float:
        """More than the seeds' noise, less than that of the test samples."""
        worse = spec["method"] == "ace" and spec["calibrator"] == "spline" and row["role"] == "id"
        return 0.0160 if worse and spec["seed"] == 1 else 0.0159 if worse else row["ece"]

    text = recommended(faintly)
    assert text.startswith("Ship spline+ACE: ")
    assert "over test samples (1.50 % -> 1.59 % against spline alone, 95 % interval" in text
    # What follows says the same of it, and what its p is about.
    (line,) = [s for s in summary(changed_by(faintly)) if s.startswith("spline+ACE: ")]
    assert re.search(
        r"1\.50 % -> 1\.59 %, higher \(p \S+ over seeds, not clear over test samples\)\.$", line
    )

    def slightly(spec: Any, row: Any) -> float:
        """Worse than spline alone, yet better than anything else in both places."""
        if row["role"] != "id":
            return row["ece"]
        worse = spec["method"] == "ace" and spec["calibrator"] == "spline"
        return row["ece"] + (0.003 if worse else 0.1 * (spec["calibrator"] != "spline"))

    text = recommended(slightly)
    assert text.startswith("Ship spline+ACE: ")
    assert "in-distribution HIGHER" in text
    assert "yet lower than temperature+ACE" in text

    def dear(spec: Any, row: Any) -> float:
        """Calibrators that help under shift and wreck what was right."""
        worse = spec["method"] != "uncalibrated" and row["role"] == "id"
        return row["ece"] + 0.4 * worse

    text = recommended(dear)
    assert text.startswith("Ship the network as it is")
    assert "but is worse in-distribution (41." in text

    def hardly(spec: Any, row: Any) -> float:
        """ACE that gains less under shift than it costs in-distribution, where seeds disagree."""
        alone = {"temperature": 0.1, "spline": 0.08}.get(spec["calibrator"], 0.3)
        if spec["method"] != "ace":
            return alone
        return alone + (0.005 + 0.03 * (spec["seed"] - 2) if row["role"] == "id" else -0.0003)

    text = recommended(hardly)
    assert text.startswith("Ship spline: ")
    assert "spline+ACE is lower under shift (7.97 %) but costs more in-distribution" in text
    # Equal seed by seed is no test's matter.
    same = summary(changed_by(lambda spec, row: 0.25))
    assert same[-1].endswith("in-distribution ECE unchanged at 25.00 %.")

    text = recommended(lambda spec, row: row["ece"] + 0.5 * (spec["method"] == "ace"))
    assert text.startswith("Ship spline: ")
    assert "ACE does not help it" in text
    text = recommended(lambda spec, row: row["ece"] + 0.5 * (spec["method"] != "uncalibrated"))
    assert text.startswith("Ship the network as it is")
    inside = tuple(p for p in PLACES if p.role != "ood")
    assert "no split under shift" in summary(arranged(CONFIG, records(CONFIG, inside)))[0]


def test_results_have_the_columns_of_the_contract_and_one_encoding() -> None:
    rows = results_rows("run", RECORDS)
    names = SCHEMA.names
    assert names[: names.index("seed") + 1] == [
        "run_id", "model", "benchmark", "split", "corruption", "severity", "role", "calibrator",
        "method", "difficulty", "seed",
    ]  # fmt: skip
    assert tuple(names[11:18]) == ADDED
    assert names[18:20] == ["alpha", "alpha_raw"]
    batch = [r for r in rows if r["batch"] == 64]
    assert len(batch) == 2 * 3 * len(PLACES)
    assert encode_results(rows) == encode_results([dict(r) for r in rows])


def test_aggregation_does_not_depend_on_the_order_of_records() -> None:
    mixed = list(RECORDS)
    random.Random(0).shuffle(mixed)
    assert [
        as_text(show(n, arranged(CONFIG, mixed))) for n in ("table1", "quartiles", "alpha")
    ] == [as_text(show(n)) for n in ("table1", "quartiles", "alpha")]


def test_nll_histograms_count_every_sample() -> None:
    p = np.array([1.0, np.nextafter(1, 2), 0.5, 0.0, 1e-30, 0.5])
    correct = np.array([True, True, True, False, False, False])
    found = nll_histograms(p, correct)
    assert (sum(found["nll_right"]), sum(found["nll_wrong"])) == (3, 3)
    assert found["nll_right"][0] == 2
    assert found["nll_wrong"][-1] == 2
    expected, _ = np.histogram([np.log(2)], EDGES)
    assert found["nll_right"][1:] == expected.tolist()[1:]


def test_resampled_ece_is_that_of_the_resamples() -> None:
    rng = np.random.default_rng(5)
    p = rng.uniform(0.2, 1, 700)
    correct = rng.uniform(size=700) < p**2
    found = ece_resamples(p, correct, bins=10, resamples=30)
    draws = np.random.default_rng([700, 30])
    for value in found:
        rows = draws.integers(0, 700, 700)
        assert value == pytest.approx(plain_ece(p[rows], correct[rows], 10), abs=1e-12)
    # The spread of a paired difference is that of the package's own bootstrap, to its noise.
    other = p**2
    paired = ece_resamples(other, correct, 10, 2000) - ece_resamples(p, correct, 10, 2000)
    known = Bootstrap({"a": other, "b": p}, correct, 10, 2000).difference("a", "b")
    assert np.std(paired, ddof=1) == pytest.approx((known.high - known.low) / 2 / 1.96, rel=0.1)


def test_intervals_are_of_paired_resamples_and_only_where_they_were_kept() -> None:
    specs = [s for s in specs_of(CONFIG) if s.bootstrap is not None]
    assert [(s.method, s.calibrator, s.seed) for s in specs] == [
        (method, family, 1) for family in ("temperature", "spline") for method in ("alone", "ace")
    ]
    kept = {
        r["spec"]["method"]: {m["split"]: (m["ece"], d["ece_resampled"])
                              for m, d in zip(r["measurements"], r["diagrams"], strict=True)}
        for r in RECORDS
        if r["spec"]["bootstrap"] and r["spec"]["calibrator"] == "spline"
    }  # fmt: skip
    drawn = {m: np.mean([kept[m][s][1] for s in SEVERE], axis=0) for m in kept}
    change = np.mean([kept["ace"][s][0] - kept["alone"][s][0] for s in SEVERE])
    reach = 1.959964 * np.std(drawn["ace"] - drawn["alone"], ddof=1)
    row = cells(show("ttest"))["spline+ACE, severity 5"]
    assert row[-2].value == pytest.approx(100 * (change - reach), abs=1e-9)
    assert row[-1].value == pytest.approx(100 * (change + reach), abs=1e-9)
    without = config_of(sweep={"bootstrap": None})
    table = show("ttest", arranged(without))
    assert {row[-1].value for row in table.rows} == {None}
    assert not any("bootstrap" in note for note in table.notes)


def test_densities_integrate_to_one() -> None:
    (panel,) = show("fig_nll").panels
    for curve in panel.curves:
        assert sum(curve.y) * (curve.x[1] - curve.x[0]) == pytest.approx(1)


# A watchlist is no configuration; tests/test_rebenchmark.py reads it.
CONFIGS = sorted({*(ROOT / "configs").rglob("*.yaml")} - {ROOT / "configs/watchlist.yaml"})


@pytest.mark.parametrize("file", CONFIGS, ids=lambda p: p.stem)
def test_every_configuration_loads(file: Path) -> None:
    config = load(str(file))
    assert specs_of(config)
    if file.parent.name == "studies":
        assert config.studies == (file.stem,)


def test_every_study_has_a_configuration_and_a_page() -> None:
    files = {p.stem for p in (ROOT / "configs/studies").glob("*.yaml")}
    assert files == set(NAMES)
    page = (ROOT / "docs/studies.md").read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", page, re.M | re.S))
    assert set(sections) == set(NAMES)
    for name, text in sections.items():
        (command,) = re.findall(r"^- Command: `ace-ray run (\S+) --data-root /data`$", text, re.M)
        assert load(str(ROOT / command)).studies == (name,)
        assert re.search(r"^- The paper's numbers \((Tab|Fig)\. \w+(, \w+)?\) need: \S", text, re.M)
        (picture,) = re.findall(r"!\[[^]]+\]\((\S+)\)", text)
        assert picture == f"pictures/{name}.svg"
        assert ElementTree.parse(ROOT / "docs" / picture).getroot().tag.endswith("svg")
    assert sum(p.stat().st_size for p in (ROOT / "docs/pictures").iterdir()) < 1_500_000


def test_series_of_a_trial_keeps_all_but_seed_and_run_wide_options() -> None:
    (spec, *_) = specs_of(CONFIG)
    assert set(spec.as_plain()) - set(Series._fields) == {"seed", "bins", "clip_alpha", "bootstrap"}
