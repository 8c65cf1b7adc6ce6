"""All studies on the embedded benchmark, by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config import STUDIES
from tests.conftest import ROOT, ace_ray

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every study's data by name."""
    store = tmp_path_factory.mktemp("studies") / "store"
    done = ace_ray("run", ROOT / "configs/glyphs-studies.yaml", "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert done.json["failures"] == []
    run = Path(done.json["run_dir"])
    paths = [*run.glob("tables/*.json"), *run.glob("figures/*.json")]
    return {path.stem: json.loads(path.read_text()) for path in paths}


def rows(table: dict[str, Any]) -> dict[str, list[float | None]]:
    return {row[0][1]: [cell[0] for cell in row[1:]] for row in table["rows"]}


def test_each_table_and_figure_is_there_and_nothing_is_missing(
    made: dict[str, dict[str, Any]],
) -> None:
    assert set(STUDIES) <= set(made)
    rivals = {"spline+Perturbation", "Ensemble", "SVI", "LL-SVI", "SVI-AvUTS", "SVI-AvUC"}
    for name in STUDIES:
        data = made[name]
        assert data["rows"] if "rows" in data else data["panels"], name
        missing = {row[0][1] for row in data.get("rows", []) if "missing" in [c[2] for c in row]}
        assert missing <= rivals, name
        assert not [note for note in data["notes"] if note.startswith("missing")], name


def test_studies_agree_where_they_say_the_same(made: dict[str, dict[str, Any]]) -> None:
    table1 = rows(made["table1"])
    for name in ("severity", "estimation"):
        assert rows(made[name])["spline+ACE"][1:] == table1["spline+ACE"]
    assert rows(made["table2"])["spline"] == table1["spline"]
    assert [row[2] for row in rows(made["ttest"]).values()]
    # Temperatures mix to a temperature: geometric and linear are one (Eq. 8).
    mixed = rows(made["combination"])
    assert mixed["temperature+ACE, geometric"] == pytest.approx(
        mixed["temperature+ACE, linear"], abs=1e-6
    )
    assert rows(made["table3"])["vector+ACE"] == pytest.approx([table1["vector+ACE"][-1]])
    panels = {panel["title"]: panel for panel in made["fig_d"]["panels"]}
    for calibrator, panel in panels.items():
        at_ten = [curve["y"][curve["x"].index(10.0)] for curve in panel["curves"]]
        assert at_ten == pytest.approx(table1[f"{calibrator}+ACE"])
    # A weight of 1 is the calibrator alone.
    for panel in made["fig_alpha"]["panels"]:
        ends = [curve["y"][-1] for curve in panel["curves"]]
        assert ends == pytest.approx(table1[panel["title"]], abs=1e-6)
    for panel in made["fig_batch"]["panels"]:
        for curve in panel["curves"]:
            row = rows(made["wilds"])[curve["name"]]
            names = made["wilds"]["columns"][1:]
            assert curve["y"][0] == pytest.approx(row[names.index(panel["title"])])
            assert curve["y"][-1] == pytest.approx(row[names.index(f"{panel['title']}+ACE")])


def test_a_calibration_set_of_its_own_difficulty_is_the_best(
    made: dict[str, dict[str, Any]],
) -> None:
    """Fig. 2: far from the mark, every calibrator is worse."""
    (panel,) = made["fig_difficulty"]["panels"]
    ((mark, _),) = panel["marks"]
    for curve in panel["curves"]:
        best = curve["x"][curve["y"].index(min(curve["y"]))]
        assert abs(best - mark) <= 1
        assert curve["y"][-1] > 3 * min(curve["y"])
