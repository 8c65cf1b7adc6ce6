"""One YAML file, validated at the boundary."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ace_ray.config import Config, field_paths, load
from ace_ray.errors import ConfigError
from ace_ray.identity import RESULT, RUNTIME
from ace_ray.plan import make_plan
from ace_ray.store import Store


def write(path: Path, text: str) -> str:
    file = path / "run.yaml"
    file.write_text(text)
    return str(file)


def test_no_file_is_the_embedded_benchmark() -> None:
    config = load(None)
    assert config == Config()
    assert config.benchmark_configs()[0].options.calibration == 5_000


def test_command_line_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path, "store: from-file\nsweep: {seeds: [7]}")
    assert load(None).store == "./ace-store"
    assert load(file).store == "from-file"
    config = load(file, {"store": "from-command-line"})
    assert config.store == "from-command-line"
    assert config.sweep.seeds == (7,)
    assert config.sweep.difficulty == (10.0,)


def test_the_written_configuration_reads_back_as_itself(tmp_path: Path) -> None:
    config = load(write(tmp_path, "benchmarks: [{name: glyphs, test: 50, corrupted: 20}]"))
    again = load(write(tmp_path, yaml.safe_dump(config.as_plain())))
    assert again.as_plain() == config.as_plain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modles: [x]", "unknown key 'modles'; did you mean 'models'"),
        ("sweep: {sedes: [1]}", "unknown key 'sweep.sedes'; did you mean 'seeds'"),
        ("sweep: {search: {difficulty: {low: 1, hihg: 2}}}", "did you mean 'high'"),
        ("sweep: {search: {difficulty: {low: 2, high: 2}}}", "low must be below high, got 2 and 2"),
        ("sweep: {search: {sample: 3}}", "did you mean 'samples'"),
        ("resources: {cpu: 1}", "unknown key 'resources.cpu'; did you mean 'cpus'"),
        ("sweep: {calibrators: [temprature]}", "'temprature'; did you mean 'temperature'"),
        ("benchmarks: [glyph]", "did you mean 'glyphs'"),
        ("benchmarks: [{name: glyphs, tset: 5}]", "unknown key 'tset'; did you mean 'test'"),
        ("benchmarks: [{test: 5}]", "benchmarks[0]: expected a name"),
        ("benchmarks: [5]", "benchmarks[0]: expected a name or a mapping with `name`, got int 5"),
        ("benchmarks: [{name: glyphs, 5: 1}]", "benchmarks[0]: expected a name"),
        ("benchmarks: [glyphs, {name: glyphs, test: 4000}]", "repeats a name"),
        ("sweep: null", "sweep: expected a mapping of keys (leave it out"),
        ("models: glyphs", "models: expected a list, as in [a, b], got str"),
        ("sweep: {difficulty: [1e3]}", "write 1000 or 1.0e+3"),
        ("? [1, 2]\n: x", "line 1: a key must be a plain word"),
        ("x: 2020-99-99", "not valid YAML: month must be in 1..12"),
        ("[" * 3000, "not valid YAML"),
        ("sweep: {seeds: [9223372036854775808]}", "less than 9223372036854775808"),
        ("benchmarks: [{name: glyphs, test: 10, corrupted: 11}]", "corrupted (11) is larger"),
        ("benchmarks: [{name: glyphs, corruptions: [fgo]}]", "did you mean 'fog'"),
        ("benchmarks: [{name: glyphs, severities: [6]}]", "less than or equal to 5, got int 6"),
        ("benchmarks: [{name: glyphs, severities: [1, 1]}]", "repeats"),
        ("studies: [severty]", "unknown 'severty'; did you mean 'severity'"),
        ("sweep: {difficulty: [0]}", "sweep.difficulty.0: expected greater than 0, got int 0"),
        ("sweep: {difficulty: [.nan]}", "finite number"),
        ("sweep: {difficulty: 10}", "sweep.difficulty: expected a list, as in [a, b], got int 10"),
        ("sweep: {seeds: ['1']}", "sweep.seeds.0: expected a valid integer, got str '1'"),
        ("sweep: {seeds: [true]}", "expected a valid integer, got bool True"),
        ("sweep: {seeds: []}", "sweep.seeds is empty"),
        ("sweep: {seeds: [1, 1]}", "repeats a value"),
        ("models: []", "models is empty"),
        ("sweep: {bins: 0}", "greater than or equal to 1"),
        ("- a\n- b", "expected a mapping"),
        ("models: [a\n", "not valid YAML"),
        ("store: a\nstore: b", "key 'store' is given twice (line 2)"),
        ("models: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("models: !!python/object:ace_ray.config.Config {}", "not valid YAML"),
    ],
)
def test_bad_configurations_name_the_field_and_the_remedy(
    tmp_path: Path, text: str, message: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        make_plan(load(file), Store.open(str(tmp_path / "store")))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(str(tmp_path / "none.yaml"))
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(str(tmp_path / "run.yaml"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load(str(tmp_path))


def test_every_field_is_classified_once() -> None:
    """A new field must be put into `RESULT` or `RUNTIME` on purpose."""
    assert not RESULT & RUNTIME
    assert field_paths() == RESULT | RUNTIME


def test_yaml_merge_keys_work(tmp_path: Path) -> None:
    text = "base: &b {bins: 10}\nsweep: {<<: *b, seeds: [4]}"
    with pytest.raises(ConfigError, match="unknown key 'base'"):
        load(write(tmp_path, text))
    config = load(write(tmp_path, "sweep: {<<: {bins: 10}, seeds: [4]}"))
    assert (config.sweep.bins, config.sweep.seeds) == (10, (4,))


def test_other_options_are_another_variant(tmp_path: Path) -> None:
    def variant(options: str) -> str:
        file = write(tmp_path, f"benchmarks: [{{name: glyphs{options}}}]")
        return load(file).benchmark_configs()[0].variant

    assert variant("") == variant(", test: 5000") == "glyphs"
    assert variant(", test: 4000").startswith("glyphs~")
    assert variant(", test: 4000") != variant(", test: 4001")
