"""Stores that fail: full, read-only, or gone half-way. One line, nothing half-committed, and on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ace_ray.store import Store
from tests.conftest import SMALL, ace_ray, command
from tests.test_object_store import committed, outputs


def mount(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes; skipped where one may not mount."""
    folder.mkdir()
    done = mount(folder, f"size={size}")
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def store_size(store: Path) -> int:
    return sum(p.stat().st_size for p in store.rglob("*") if p.is_file())


def check_whole(store: Path) -> int:
    """Every committed split has exactly the parts and bytes that its marker names."""
    opened = Store.open(str(store))
    found = committed(opened)
    for folder in found:
        marker = opened.read_json(f"{folder}/_COMMITTED.json")
        for part in marker["parts"]:
            assert opened.size(f"{folder}/{part['name']}") == part["bytes"]
    return len(found)


def check_one_line(stderr: str, store: Path, reason: str) -> None:
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("error: cannot "), stderr
    assert str(store) in last
    assert reason in last
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_full_disk(tmp_path: Path, small_run: dict[str, Any], share: float) -> None:
    """Full in the logits stage, and at the very end; with more room the run finishes."""
    needed = store_size(small_run["store"])
    with small_disk(tmp_path / "disk", int(share * needed)) as disk:
        store = disk / "store"
        done = ace_ray("run", SMALL, "--store", store)
        assert done.code == 2, done.stderr
        check_one_line(done.stderr, store, "No space left on device")
        check_whole(store)
        assert not list(store.glob("runs/*/_COMMITTED.json"))
        assert mount(disk, "remount", f"size={20 * needed}").returncode == 0
        again = ace_ray("run", SMALL, "--store", store, "--json")
        assert again.code == 0, again.stderr
        assert outputs(Store.open(str(store))) == outputs(Store.open(str(small_run["store"])))
        assert ace_ray("validate", "--store", store).code == 0


@pytest.mark.slow
def test_a_disk_that_becomes_read_only(tmp_path: Path, small_run: dict[str, Any]) -> None:
    with small_disk(tmp_path / "disk", 200 << 20) as disk:
        store = disk / "store"
        with subprocess.Popen(
            command("run", SMALL, "--store", store),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as driver:
            deadline = time.monotonic() + 120
            while not list(store.glob("logits/*/*/*/_COMMITTED.json")):
                assert driver.poll() is None
                assert time.monotonic() < deadline
            # Refused while a file is open for writing: a moment later it is not.
            while mount(disk, "remount", "ro").returncode:
                assert driver.poll() is None, "the run ended before the disk could be locked"
            said = driver.communicate(timeout=200)[1]
            assert driver.returncode == 2, said
        check_one_line(said, store, "Read-only file system")
        kept = check_whole(store)
        assert kept > 0

        # Nothing can be started on it, and nothing changes.
        before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
        refused = ace_ray("run", SMALL, "--store", store)
        assert refused.code == 2
        check_one_line(refused.stderr, store, "Read-only file system")
        assert {p: p.stat().st_mtime_ns for p in store.rglob("*")} == before

        assert mount(disk, "remount", "rw").returncode == 0
        again = ace_ray("run", SMALL, "--store", store, "--json")
        assert again.code == 0, again.stderr
        assert again.json["splits_cached"] == kept
        assert outputs(Store.open(str(store))) == outputs(Store.open(str(small_run["store"])))
