"""Content keys: what changes the bytes changes the key, and nothing else does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import ace_ray.identity as identity
from ace_ray.benchmarks import glyphs
from ace_ray.config import Config, load
from ace_ray.identity import canonical_json, content_key, sample_seed
from ace_ray.logits.units import make_unit, plan_units
from ace_ray.models.registry import Model
from ace_ray.plan import make_plan
from ace_ray.store import Store

NOWHERE = Store.open("/nowhere/at/all")
TEXT = """
benchmarks: [{name: glyphs, calibration: 20, test: 10, corrupted: 5, corruptions: [fog]}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "run.yaml"
    file.write_text(TEXT)
    return load(str(file))


def test_canonical_json_has_one_text_per_value() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})


def test_key_is_pinned() -> None:
    """The same fields give the same key in every version: a change here orphans all stores."""
    assert content_key({"a": 1}) == (
        "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    )


def test_every_split_has_its_own_key(config: Config) -> None:
    units = plan_units(config, NOWHERE)
    assert len({u.key for u in units}) == len(units) == 7


@pytest.mark.parametrize(
    "change",
    [
        ("ace_ray.logits.units.EXTRACTION_CODE", "x"),
        ("ace_ray.logits.units.TABLE_SCHEMA", 99),
        ("ace_ray.benchmarks.glyphs.RENDERER", "x"),
        ("ace_ray.logits.units.DECODER", "x"),
    ],
)
def test_what_changes_the_bytes_changes_every_key(
    config: Config, monkeypatch: pytest.MonkeyPatch, change: tuple[str, object]
) -> None:
    before = {u.key for u in plan_units(config, NOWHERE)}
    monkeypatch.setattr(*change)
    assert not before & {u.key for u in plan_units(config, NOWHERE)}


def test_engine_and_constants_change_corrupted_splits_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {u.split.name: u.key for u in plan_units(config, NOWHERE)}
    monkeypatch.setattr("ace_ray.benchmarks.split.ENGINE", "x")
    after = {u.split.name: u.key for u in plan_units(config, NOWHERE)}
    same = {name for name in before if before[name] == after[name]}
    assert same == {"calibration", "test"}


def test_models_never_share_a_key(config: Config) -> None:
    unit = plan_units(config, NOWHERE)[0]
    model = unit.source
    assert isinstance(model, Model)
    crop = model.preprocessing._replace(crop_pct=0.9)
    mean = model.preprocessing._replace(mean=(0.0, 0.0, 0.0))
    for change in (
        {"weights": "0" * 64},
        {"architecture": "test_vit"},
        {"arguments": {"drop_rate": 0.5}},
        {"preprocessing": crop},
        {"preprocessing": mean},
    ):
        other = dataclasses.replace(model, **change)
        assert make_unit(other, unit.split, "glyphs", config.extraction).key != unit.key


def test_runtime_fields_do_not_change_the_run(config: Config, tmp_path: Path) -> None:
    def run_id(changed: Config) -> str:
        return make_plan(changed, Store.open(str(tmp_path / "store"))).run_id

    base = run_id(config)
    resources = dataclasses.replace(config.resources, cpus=1)
    assert run_id(dataclasses.replace(config, store="elsewhere", resources=resources)) == base
    for sweep in ({"seeds": (9,)}, {"bins": 10}, {"clip_alpha": False}, {"difficulty": (2.0,)}):
        changed = dataclasses.replace(config.sweep, **sweep)
        assert run_id(dataclasses.replace(config, sweep=changed)) != base
    assert run_id(dataclasses.replace(config, studies=("alpha",))) != base


def test_calibration_code_changes_trials(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    store = NOWHERE
    before = make_plan(config, store)
    monkeypatch.setattr("ace_ray.sweep.trial.CALIBRATION_CODE", "x")
    after = make_plan(config, store)
    assert not before.specs.keys() & after.specs.keys()
    assert identity.CALIBRATION_CODE != "x"


def test_sample_seed_is_a_function_of_sample_and_corruption() -> None:
    seeds = {sample_seed(i, c, s) for i in ("a", "b") for c in ("fog", "frost") for s in (1, 2)}
    assert len(seeds) == 8
    assert sample_seed("a", "fog", 1) == sample_seed("a", "fog", 1)
    assert glyphs.SEEDS["test"] != glyphs.SEEDS["calibration"]
