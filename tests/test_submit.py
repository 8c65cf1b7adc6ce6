"""Jobs on a real head: submitted twice they run once, and their end is the command's end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import yaml

from ace_ray.config import load
from ace_ray.errors import UsageError
from ace_ray.submit import EXCLUDES, Cluster, Surroundings, base_id, chosen_env
from tests.conftest import ROOT, SMALL, Done, ace_ray, command

TINY = """
benchmarks:
  - {name: glyphs, calibration: 300, test: 100, corrupted: 50, corruptions: [fog], severities: [5]}
sweep: {seeds: [1, 2]}
studies: [table1]
"""
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "kept-back-aws-5b0e4f",
    "HF_TOKEN": "hf_kept-back-3ac91d",
    "WEBHOOK": "https://hooks.example/kept-back-77e2",
}


class Head(NamedTuple):
    address: str
    logs: Path
    metrics: str


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a head by its process id, and see that its children went with it."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.wait(60)
    # Ray leaves its agents of jobs to notice by themselves, which may take them a minute.
    _, alive = psutil.wait_procs(children, 5)
    for child in alive:
        child.kill()


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """`ray start --head --block` on loopback, with secrets in its environment."""
    # Short: the sockets of a session lie in it, and a socket's path has 107 characters at most.
    folder = Path("/tmp") / f"ace-head-{os.getpid()}"
    folder.mkdir()
    port, metrics = free_port(), free_port()
    options = {
        "port": free_port(),
        "dashboard-port": port,
        "dashboard-host": "127.0.0.1",
        "node-ip-address": "127.0.0.1",
        "num-cpus": 2,
        "object-store-memory": 200_000_000,
        "metrics-export-port": metrics,
        "temp-dir": folder,
    }
    log = (folder / "head.log").open("wb")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        # A job's `python` is the first on the path of the head.
        env={
            **os.environ,
            **SECRETS,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not answers(f"{address}/api/version"):
            assert process.poll() is None, (folder / "head.log").read_text()
            assert time.monotonic() < deadline, "the head did not come up"
            time.sleep(0.3)
        yield Head(address, folder, f"http://127.0.0.1:{metrics}/metrics")
    finally:
        ended(process)
        log.close()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as found:
            return bool(found.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("folder")
    (made / "tiny.yaml").write_text(TINY)
    return made


def submit(
    head: Head, folder: Path, store: Path, *options: object, config: str = "tiny.yaml"
) -> Done:
    place = ("--address", head.address, "--working-dir", folder, "--store", store)
    return ace_ray("submit", folder / config, *place, *options)


def jobs(head: Head) -> dict[str, str]:
    with urllib.request.urlopen(f"{head.address}/api/jobs/", timeout=20) as found:
        return {job["submission_id"]: job["status"] for job in json.load(found)}


def secrets_in(*texts: str, under: tuple[Path, ...] = ()) -> list[str]:
    files = [p for place in under for p in place.rglob("*") if p.is_file() and not p.is_symlink()]
    found = [str(p) for p in files for s in SECRETS.values() if s.encode() in p.read_bytes()]
    return found + [s for s in SECRETS.values() if any(s in text for text in texts)]


def test_twice_at_once_runs_once_then_again_for_free(
    head: Head, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    store, before = tmp_path / "store", jobs(head)
    first = submit(head, folder, store, "--no-wait", "--json")
    assert first.code == 0, first.stderr
    name = first.json["submission_id"]
    assert not first.json["attached"]
    second = submit(head, folder, store)
    assert second.code == 0, second.stderr
    assert f"attached to job {name}" in second.stderr
    assert "report: " in second.stderr
    assert list(store.glob("runs/*/report.html"))
    assert jobs(head).items() - before.items() == {(name, "SUCCEEDED")}

    third = submit(head, folder, store, "--json")
    assert third.code == 0, third.stderr
    assert third.json["submission_id"] == f"{name}-2"
    assert "Nothing was computed" in third.stderr
    # Nowhere in the store, in what was printed, or in Ray's logs of the session.
    outputs = [text for done in (first, second, third) for text in (done.stdout, done.stderr)]
    assert not secrets_in(*outputs, under=(store, head.logs))
    assert len(list((head.logs).rglob("*.log"))) > 5


def test_a_failed_job_is_one_line_and_its_exit_code(
    head: Head, folder: Path, tmp_path: Path
) -> None:
    (folder / "bad.yaml").write_text("models: [{name: m, architecture: resnet18, checkpoint: /x}]")
    done = submit(head, folder, tmp_path / "store", config="bad.yaml")
    assert done.code == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: job ace-ray-")
    assert "failed (exit code 2): " in last
    assert "/x" in last


def test_no_head(folder: Path) -> None:
    nowhere = Head(f"http://127.0.0.1:{free_port()}", folder, "")
    done = submit(nowhere, folder, folder / "store")
    assert done.code == 2
    assert "no job server there" in done.error


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "http://user:hunter2@127.0.0.1:9"])
def test_an_address_that_is_no_dashboard(folder: Path, address: str) -> None:
    done = submit(Head(address, folder, ""), folder, folder / "store")
    assert done.code == 2
    assert "expected the dashboard's" in done.error
    assert "hunter2" not in done.error


def test_the_config_must_be_uploaded(head: Head, folder: Path, tmp_path: Path) -> None:
    done = ace_ray(
        *("submit", SMALL, "--address", head.address, "--working-dir", folder),
        *("--store", tmp_path / "store"),
    )
    assert done.code == 2
    assert "lies outside the folder that is uploaded" in done.error


@pytest.mark.parametrize("given", [[], ["--store", "runs"]])
def test_a_store_that_goes_with_the_job_is_refused(folder: Path, given: list[str]) -> None:
    place = ("--address", "http://127.0.0.1:9", "--working-dir", folder)
    done = ace_ray("submit", folder / "tiny.yaml", *place, *given)
    assert done.code == 2
    assert "thrown away; give --store a URI or an absolute path" in done.error


def test_the_id_is_what_was_asked_for() -> None:
    config = load(str(SMALL))
    assert base_id(config) == base_id(load(str(SMALL)))
    more = replace(config, resources=replace(config.resources, predictors=8))
    assert base_id(more) == base_id(config)
    for other in (
        replace(config, store="s3://elsewhere/store"),
        replace(config, data_root="/other"),
        replace(config, sweep=replace(config.sweep, seeds=(1,))),
    ):
        assert base_id(other) != base_id(config)


def test_the_runtime_environment(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").touch()
    plain = Surroundings(working_dir=tmp_path).as_plain()
    assert plain == {"working_dir": str(tmp_path), "excludes": list(EXCLUDES)}
    assert {".git", ".venv", "ace-store", ".env"} <= set(EXCLUDES)
    limits = str(tmp_path / "constraints.txt")
    pip = Surroundings(working_dir=tmp_path, pip=["ace-ray[frost]"], constraints=limits).as_plain()
    assert pip["pip"][0] == "-c ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/constraints.txt"
    assert Surroundings(working_dir=tmp_path, image="r/i:1").as_plain()["image_uri"] == "r/i:1"
    with pytest.raises(UsageError, match="exclude each other"):
        Surroundings(working_dir=tmp_path, image="r/i:1", pip=["x"]).as_plain()


def test_a_head_that_has_just_come_up_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["No available agent to submit job, please try again later.", "", "no space"])

    class Server:
        def list_jobs(self) -> list[object]:
            return []

        def submit_job(self, **_: object) -> None:
            if text := next(said):
                raise RuntimeError(f"Request failed with status code 500: {text}")

    cluster = object.__new__(Cluster)
    cluster.address, cluster.client = "http://head:8265", Server()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    around = Surroundings(working_dir=tmp_path)
    assert cluster.submit("run", "true", around) == ("run", False)
    with pytest.raises(UsageError, match=r"refused the job: .*no space"):
        cluster.submit("run", "true", around)


def test_no_secret_is_handed_on() -> None:
    here = {**SECRETS, "ACE_RAY_LOG": "json"}
    assert chosen_env(["ACE_RAY_LOG"], here) == [("ACE_RAY_LOG", "json")]
    for name in SECRETS:
        with pytest.raises(UsageError, match="can be read by everyone"):
            chosen_env([name], here)
    with pytest.raises(UsageError, match="is not set here"):
        chosen_env(["NOT_THERE"], here)


@pytest.mark.slow
def test_ray_job_submit_with_the_jobs(head: Head, folder: Path, tmp_path: Path) -> None:
    """The stages one by one through Ray's own command; then the whole, with nothing left."""
    store = tmp_path / "store"
    (folder / "jobs").mkdir()
    for job in (ROOT / "jobs").glob("*.py"):
        (folder / "jobs" / job.name).write_text(job.read_text())
    for job in ("logits", "sweep", "aggregate", "benchmark"):
        config = [] if job == "aggregate" else ["--config", "tiny.yaml"]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit"),
                *("--address", head.address, "--working-dir", str(folder), "--"),
                *("python", f"jobs/{job}.py", *config, "--store", str(store)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was computed" in done.stdout
    assert list(store.glob("runs/*/report.html"))


@pytest.mark.slow
def test_the_demo_and_its_metrics(head: Head, folder: Path, tmp_path: Path) -> None:
    (folder / "demo.yaml").write_text("{}")
    done = submit(head, folder, tmp_path / "store", config="demo.yaml")
    assert done.code == 0, done.stderr
    assert list((tmp_path / "store").glob("runs/*/report.html"))
    with urllib.request.urlopen(head.metrics, timeout=20) as found:
        text = found.read().decode()
    for name in ("images", "rows_committed"):
        assert f"ray_ace_ray_{name}_total" in text


@pytest.mark.slow
def test_an_interrupt_detaches(head: Head, folder: Path, tmp_path: Path) -> None:
    plain = yaml.safe_load(TINY)
    plain["benchmarks"][0].update(corrupted=100, corruptions=["fog", "snow"], severities=[1, 3, 5])
    (folder / "longer.yaml").write_text(yaml.safe_dump(plain))
    store = tmp_path / "store"
    place = ("--address", head.address, "--working-dir", folder, "--store", store)
    with subprocess.Popen(
        command("submit", folder / "longer.yaml", *place), stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stderr is not None
        for line in watcher.stderr:
            if line.startswith("logits: "):
                break
        watcher.send_signal(signal.SIGINT)
        last = watcher.stderr.read().strip().splitlines()[-1]
        assert watcher.wait() == 130
    assert last.startswith("detached, job ace-ray-")
    again = submit(head, folder, store, config="longer.yaml")
    assert again.code == 0, again.stderr
    assert "attached to job" in again.stderr
    assert list(store.glob("runs/*/report.html"))
