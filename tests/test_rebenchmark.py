"""Scheduled re-benchmarking: only what is new runs, what became worse is said, one at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load, save_file

from ace_ray.watch.history import INSIDE, SHIFTED, Entry, Measure
from ace_ray.watch.leaderboard import page
from ace_ray.watch.lease import PATH as LEASE
from tests.conftest import ROOT, Done, ace_ray, command
from tests.test_page import BROKEN_WORDS, browser, opened, overflow  # noqa: F401 - fixtures

WATCHLIST = """
models:
  - {{folder: {folder}, architecture: test_resnet, input_size: 32, crop_pct: 1.0,
     interpolation: bilinear, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}
benchmarks: [{{name: glyphs, calibration: 400, test: 300, corrupted: 100,
              corruptions: [gaussian_noise], severities: [5]}}]
sweep: {{seeds: [1, 2, 3]}}
studies: [table1]
"""
TORCHLESS = """
import sys
from ace_ray.cli import main
try:
    main(sys.argv[1:])
finally:
    print(sorted({'ray', 'torch'} & sys.modules.keys()), file=sys.stderr)
"""


def entry(model: str, settings: str, *regressions: str) -> Entry:
    measures = [
        Measure(
            benchmark="glyphs", group=group, calibrator=calibrator, method=method, difficulty=None,
            ece=[0.1, 0.11], accuracy=0.9, alpha=None,
        )
        for group in (INSIDE, SHIFTED)
        for calibrator, method in ((None, "uncalibrated"), ("spline", "alone"), ("spline", "ace"))
    ]  # fmt: skip
    return Entry(
        model=model, date=datetime(2026, 1, 2, tzinfo=UTC), run_id="a" * 12, key="a" * 64,
        weights="b" * 64, settings=settings, fingerprint="", regressions=list(regressions),
        measures=measures,
    )  # fmt: skip


def test_boards_are_told_apart_by_their_settings() -> None:
    one, other = "0123456789" * 6, "9876543210" * 6
    alone = page([entry("m", one), entry("n", one)])
    assert "settings <code>" not in alone
    both = page([entry("m", one), entry("m", other)])
    assert re.findall(r"settings <code>(\w+)</code>", both) == ["01234567", "98765432"]
    # A file that is not there is not named.
    assert "history.parquet" in alone
    assert "history.parquet" not in page([])


def test_names_on_the_leaderboard_break_between_words(
    opened: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    file = tmp_path / "leaderboard.html"
    rows = [entry(name, "s", "worse") for name in ("test_resnet.glyphs", "vit_small.augreg_in1k")]
    file.write_text(page(rows))
    for width in (1280, 390):
        shown = opened(file, width)
        assert shown.evaluate(BROKEN_WORDS) == []
        assert overflow(shown) <= 0
        last = shown.locator(".notice.failed").last.bounding_box()
        assert shown.locator(".card").first.bounding_box()["y"] - last["y"] - last["height"] > 12


def checkpoint(path: Path, noise: float, seed: int, gain: float = 1.0) -> None:
    """Write the embedded network's weights, a little noisy; `gain` makes it overconfident."""
    data = files("ace_ray.models").joinpath("weights/test_resnet.glyphs.safetensors").read_bytes()
    rng = np.random.default_rng(seed)
    state = {}
    for name, value in load(data).items():
        noisy = value
        if value.dtype == np.float32 and value.ndim > 1:
            noisy = value + noise * value.std() * rng.standard_normal(value.shape)
        changed = noisy * gain if name.startswith("fc.") else noisy
        state[name] = np.asarray(changed, value.dtype)
    save_file(state, path)


def watch(folder: Path) -> Path:
    (folder / "models").mkdir(parents=True)
    for i, name in enumerate("abc"):
        checkpoint(folder / "models" / f"{name}.safetensors", 0.01, i)
    (folder / "watch.yaml").write_text(WATCHLIST.format(folder=folder / "models"))
    return folder


def again(folder: Path, *more: object) -> Done:
    return ace_ray(
        "rebenchmark", folder / "watch.yaml", "--store", folder / "store", "--json", *more
    )


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {"bodies": [], "secret": "s3cr3t-path-41"}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            found["bodies"].append(json.loads(self.rfile.read(size)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/{found['secret']}"
    monkeypatch.setenv("ACE_RAY_WEBHOOK", url)
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_only_what_changed_runs_and_a_worse_model_is_reported(
    tmp_path: Path,
    hook: dict[str, Any],
    opened: Any,  # noqa: F811
) -> None:
    folder = watch(tmp_path)
    first = again(folder)
    assert first.code == 0, first.stderr
    assert first.json["ran"] == ["a", "b", "c"]
    history = pq.read_table(folder / "store/history.parquet")
    assert history.num_rows == 3

    # Nothing new: neither Ray nor torch, and not a byte of the history changes.
    stamp = (folder / "store/history.parquet").stat().st_mtime_ns
    started = time.monotonic()
    words = ["rebenchmark", str(folder / "watch.yaml"), "--store", str(folder / "store"), "--json"]
    idle = subprocess.run(
        [sys.executable, "-c", TORCHLESS, *words], capture_output=True, text=True, check=False
    )
    assert idle.returncode == 0, idle.stderr
    assert time.monotonic() - started < 15  # the promise to the user
    assert idle.stderr.strip() == "[]"
    found = json.loads(idle.stdout)
    assert (found["status"], found["unchanged"]) == ("nothing new", ["a", "b", "c"])
    assert (folder / "store/history.parquet").stat().st_mtime_ns == stamp
    # A file that is merely touched has the same content: still nothing new.
    os.utime(folder / "models/a.safetensors")
    assert again(folder).json["status"] == "nothing new"

    checkpoint(folder / "models/b.safetensors", 0.01, 7, gain=4.0)
    worse = again(folder)
    assert worse.code == 3, worse.stderr
    assert (worse.json["ran"], sorted(worse.json["unchanged"])) == (["b"], ["a", "c"])
    assert {r["model"] for r in worse.json["regressions"]} == {"b"}
    assert "last" in {r["against"] for r in worse.json["regressions"]}
    assert pq.read_table(folder / "store/history.parquet").num_rows == 4
    assert again(folder).code == 0

    (body,) = hook["bodies"]
    assert body["regressions"] == worse.json["regressions"]
    assert worse.json["webhook"] == "sent"
    secret = hook["secret"].encode()
    assert hook["secret"] not in first.stderr + worse.stderr + worse.stdout
    assert not [
        p for p in (folder / "store").rglob("*") if p.is_file() and secret in p.read_bytes()
    ]

    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        page = opened(folder / "store/leaderboard.html", width, scheme)
        assert overflow(page) <= 0
        assert page.locator("tbody tr").count() == 3
        row = page.locator("tr.regressed")
        assert "b" in row.locator("td").first.inner_text()
        assert row.locator("svg.spark circle").count() == 2
        assert row.locator("svg.spark path.l").count() == 1
        if shots := os.environ.get("ACE_RAY_SHOTS"):
            page.screenshot(path=f"{shots}/{width}-{scheme}.png", full_page=True)

    # A broken checkpoint does not stop the others.
    (folder / "models/c.safetensors").write_bytes(b"not weights")
    checkpoint(folder / "models/d.safetensors", 0.01, 9)
    broken = again(folder)
    assert broken.code == 1, broken.stderr
    assert broken.json["ran"] == ["d"]
    assert [f["model"] for f in broken.json["failed"]] == ["c"]


@pytest.mark.slow
def test_two_schedulers_and_a_lease_left_by_sigkill(tmp_path: Path) -> None:
    folder = watch(tmp_path)
    words = command("rebenchmark", folder / "watch.yaml", "--store", folder / "store", "--lease", 8)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, **quiet) as driver:
        lease = folder / "store" / LEASE
        deadline = time.monotonic() + 60
        while not lease.exists():
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        other = again(folder, "--lease", 8)
        assert (other.code, other.json["status"]) == (0, "busy"), other.stderr
        assert driver.poll() is None, "the first scheduler must still have been running"
        driver.send_signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
    assert lease.exists()
    time.sleep(9)
    after = again(folder, "--lease", 8)
    assert after.code == 0, after.stderr
    assert "taking over" in after.stderr
    assert after.json["ran"] == ["a", "b", "c"]
    assert not lease.exists()


def test_mistakes_in_a_watchlist_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "watch.yaml"
    for text, hint in (
        ("modles: [a]", "did you mean 'models'"),
        ("models: [resnet18]\nregression: {ecee: 0.1}", "did you mean 'ece'"),
        ("models: [resnet18]\nregression: {ece: 2}", "an ECE of 1 % is 0.01"),
        ("models: [./nowhere/]", "no such folder"),
        ("models: []", "got an empty list"),
    ):
        file.write_text(text)
        done = ace_ray("rebenchmark", file, "--store", tmp_path / "store")
        assert done.code == 2
        assert hint in done.error


def test_an_empty_folder_and_an_empty_history_are_said(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "watch.yaml").write_text(f"models: [{tmp_path / 'models'}/]")
    done = again(tmp_path)
    assert done.code == 0
    assert f"{tmp_path / 'models'}/ holds no checkpoint" in done.stderr
    shown = ace_ray("leaderboard", "--store", tmp_path / "store")
    assert "no model has been benchmarked yet" in shown.stdout
    (tmp_path / "store/history.parquet").write_bytes(b"PAR1 not")
    broken = ace_ray("leaderboard", "--store", tmp_path / "store")
    assert broken.code == 2
    assert "history.parquet is damaged" in broken.error


def test_the_example_is_valid() -> None:
    from ace_ray.watch.watchlist import read_watchlist

    assert read_watchlist(str(ROOT / "configs/watchlist.yaml"), {}).models
