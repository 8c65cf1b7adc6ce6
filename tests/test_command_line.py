"""Bad input: one clear line, exit code 2, nothing half-written. And the helpful commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ace_ray.cli import main
from tests.conftest import SMALL, VARIANT, Done, ace_ray

SPLIT = f"logits/model=test_resnet.glyphs/benchmark={VARIANT}/split=fog%2F1"
COMMANDS = [
    "import",
    "compare",
    "demo",
    "run",
    "plan",
    "logits",
    "sweep",
    "report",
    "validate",
    "ls",
    "doctor",
]


def invoke(*arguments: object) -> Done:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_worked_example(command: str) -> None:
    done = invoke(command, "--help")
    assert done.code == 0
    assert f"ace-ray {command}" in done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modles: [x]", ["unknown key 'modles'", "did you mean 'models'"]),
        ("sweep: {calibrators: [temprature]}", ["'temprature'", "did you mean 'temperature'"]),
        ("models: !!python/object/apply:os.system ['touch pwned']", ["not valid YAML"]),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "logits", "sweep"])
def test_bad_configuration_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, text: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(text)
    done = invoke(command, "bad.yaml")
    assert done.code == 2
    assert all(word in done.error for word in [*words, "bad.yaml"])
    assert os.listdir() == ["bad.yaml"]


@pytest.mark.parametrize("command", [["demo"], ["run", SMALL], ["plan"], ["logits"], ["doctor"]])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, command: list[object]) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = invoke(*command, "--store", tmp_path)
    if command == ["doctor"]:
        assert done.code == 1
        assert "not an ace-ray store" in done.stdout
    else:
        assert done.code == 2
        assert "not an ace-ray store" in done.error
    assert os.listdir(tmp_path) == ["thesis.tex"]


def without_privileges() -> Sequence[str]:
    """Return a prefix under which file modes bind: root ignores them."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root ignores file modes and setpriv (util-linux) is not installed")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.parametrize("inside", [True, False])
def test_a_store_without_write_permission(tmp_path: Path, inside: bool) -> None:
    tmp_path.chmod(0o555)
    store = tmp_path / "store" if inside else tmp_path
    try:
        done = ace_ray("run", SMALL, "--store", store, prefix=without_privileges())
    finally:
        tmp_path.chmod(0o755)
    assert done.code == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("error: cannot write")
    assert "Permission denied" in line
    assert "choose another --store" in line
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_truncated_part_is_named_with_its_remedy(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    part = next((store / SPLIT).glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:1000])
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    for command in ("run", "plan", "logits", "sweep"):
        done = invoke(command, SMALL, "--store", store)
        assert done.code == 2
        assert part.name in done.error
        assert "1,000 bytes, expected" in done.error
        assert f"`ace-ray logits {SMALL} --store {store} --repair`" in done.error
    assert invoke("validate", "--store", store).code == 2
    assert before == {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}


def test_damage_that_keeps_the_size_is_noticed_when_read(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    part = next((store / SPLIT).glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 3] ^= 0xFF
    part.write_bytes(data)
    config = tmp_path / "new.yaml"
    config.write_text(SMALL.read_text().replace("seeds: [1, 2, 3]", "seeds: [4, 5]"))
    done = invoke("sweep", config, "--store", store)
    assert done.code == 2
    assert "damaged Parquet" in done.stderr
    assert "--repair" in done.stderr


def test_sweep_before_logits_says_what_to_do(tmp_path: Path) -> None:
    done = invoke("sweep", SMALL, "--store", tmp_path / "store")
    assert done.code == 2
    assert f"run `ace-ray logits {SMALL} --store {tmp_path / 'store'}` first" in done.error
    assert not (tmp_path / "store").exists()


def test_unknown_run_and_missing_store(small_run: dict[str, Any], tmp_path: Path) -> None:
    for command in ("report", "validate"):
        done = invoke(command, "nonsense", "--store", small_run["store"])
        assert done.code == 2
        assert small_run["run_id"] in done.error
        gone = invoke(command, "--store", tmp_path / "none")
        assert gone.code == 2
        assert "does not exist" in gone.error
    assert not (tmp_path / "none").exists()


def test_a_run_is_found_by_the_start_of_its_name(small_run: dict[str, Any]) -> None:
    done = invoke("validate", small_run["run_id"][:5], "--store", small_run["store"], "--json")
    assert done.code == 0
    assert json.loads(done.stdout)["run_id"] == small_run["run_id"]


def test_lists(small_run: dict[str, Any]) -> None:
    assert "test_resnet.glyphs" in invoke("ls", "models").stdout
    assert "glyphs" in invoke("ls", "benchmarks").stdout
    assert "temperature" in invoke("ls", "calibrators").stdout
    runs = invoke("ls", "runs", "--store", small_run["store"], "--json").json["runs"]
    assert [r["name"] for r in runs] == [small_run["run_id"]]
    assert runs[0]["about"].startswith("complete")


def test_doctor_finds_this_machine_fit(tmp_path: Path) -> None:
    done = invoke("doctor", "--store", tmp_path / "store")
    assert done.code == 0, done.stdout
    assert "torch" in done.stdout
    assert not (tmp_path / "store").exists()
    findings = invoke("doctor", "--json", "--store", tmp_path / "store").json["findings"]
    assert all(f["ok"] for f in findings)


def test_report_can_be_made_again(small_run: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    run = store / "runs" / small_run["run_id"]
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    for name in ("results.parquet", "report.html"):
        (run / name).unlink()
    shutil.rmtree(run / "tables")
    done = ace_ray("report", "--store", store, "--json")
    assert done.code == 0, done.stderr
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "arguments",
    [["bogus"], ["plan", "--cpus", "0"], ["plan", "a", "b"], ["run", "--cpus", "0"], ["ls"]],
)
def test_usage_errors_are_one_line_too(arguments: list[str]) -> None:
    done = invoke(*arguments)
    assert done.code == 2
    assert "--help`" in done.error


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("runs/{run}/manifest.json", "{}"),
        ("runs/{run}/_COMMITTED.json", "{}"),
        ("runs/{run}/_COMMITTED.json", '{"key": "k", "report": "r", "files": {"a": 1}}'),
        (SPLIT + "/_COMMITTED.json", "{}"),
        (SPLIT + "/_COMMITTED.json", '{"key": "k", "identity": {}, "rows": 1, "parts": [{}]}'),
        ("runs/{run}/trials/{trial}", '{"key": "{stem}"}'),
        ("ace-store.json", "{"),
    ],
)
def test_damaged_documents_never_make_a_traceback(
    small_run: dict[str, Any], tmp_path: Path, path: str, content: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_run["store"], store)
    trial = next((store / "runs" / small_run["run_id"] / "trials").iterdir())
    path = path.replace("{run}", small_run["run_id"]).replace("{trial}", trial.name)
    (store / path).write_text(content.replace("{stem}", trial.stem))
    done = invoke("validate", small_run["run_id"], "--store", store)
    assert done.code == 2
    assert "error: " in done.stderr
    for command in (["plan", SMALL], ["ls", "runs"]):
        assert invoke(*command, "--store", store).code in (0, 2)


def test_a_store_below_a_file_and_narrow_encodings(
    small_run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert ace_ray("run", SMALL, "--store", tmp_path / "file" / "store").code == 2
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = ace_ray("run", SMALL, "--store", small_run["store"])
    assert done.code == 0
    assert "Traceback" not in done.stderr
