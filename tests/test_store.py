"""The store: whole files or none, on local disks and on a filesystem without rename semantics."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs as pafs

from ace_ray.errors import IntegrityError, StoreError
from ace_ray.store import MARKER, Store, encode


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store.open(str(tmp_path / "store")).create()
    filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(MemoryFileSystem(skip_instance_cache=True)))
    return Store(filesystem, f"/{tmp_path.name}", "memory://").create()


def test_files_round_trip_and_are_replaced_whole(store: Store) -> None:
    store.write("a/b/c", b"one")
    store.write("a/b/c", b"two")
    assert store.read("a/b/c") == b"two"
    assert store.size("a/b/c") == 3
    assert store.size("a/b/none") is None
    assert store.names("a/b") == ["c"]
    store.delete("a")
    assert not store.has("a/b/c")
    store.delete("a")


def test_json_refuses_nan_and_reports_damage(store: Store) -> None:
    store.write_json("x.json", {"a": 1})
    assert store.read_json("x.json") == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        store.write_json("x.json", {"a": float("inf")})
    assert store.read_json("x.json") == {"a": 1}
    for damage in (b'{"a": ', b"[1]"):
        store.write("x.json", damage)
        with pytest.raises(IntegrityError, match=r"x\.json"):
            store.read_json("x.json")


def test_a_unit_exists_only_with_its_marker(store: Store) -> None:
    store.write("staging/k/part-0", b"data")
    assert not store.has(f"unit/{MARKER}")
    store.publish("staging/k", "unit", ["part-0"], {"key": "k"})
    assert store.read_json(f"unit/{MARKER}") == {"key": "k"}
    assert store.names("unit") == [MARKER, "part-0"]
    assert store.names("staging") == []


def test_publishing_again_replaces_the_old_parts(store: Store) -> None:
    for key in ("k1", "k2"):
        store.write(f"staging/{key}/part-{key}", key.encode())
        store.publish(f"staging/{key}", "unit", [f"part-{key}"], {"key": key})
    assert store.names("unit") == [MARKER, "part-k2"]


@pytest.mark.parametrize("step", ["move", "write_json", "delete"])
def test_a_crash_while_publishing_leaves_the_old_state_or_the_new(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store.write("staging/k1/part-k1", b"1")
    store.publish("staging/k1", "unit", ["part-k1"], {"key": "k1"})
    store.write("staging/k2/part-k2", b"2")

    def crash(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, step, crash)
    with pytest.raises(KeyboardInterrupt):
        store.publish("staging/k2", "unit", ["part-k2"], {"key": "k2"})
    monkeypatch.undo()
    marker = store.read_json(f"unit/{MARKER}")
    expected = "k2" if step == "delete" else "k1"
    assert marker == {"key": expected}
    assert store.has(f"unit/part-{expected}")


def test_opening_writes_nothing_and_reopening_finds_the_store(tmp_path: Path) -> None:
    path = tmp_path / "new"
    store = Store.open(str(path))
    assert not store.exists
    assert not path.exists()
    store.create()
    assert Store.open(str(path)).exists


def test_a_folder_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match=r"not an ace-ray store.*thesis\.tex"):
        Store.open(str(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_a_newer_format_and_an_unknown_scheme_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="is a file"):
        Store.open(str(file))
    store = Store.open(str(tmp_path / "store")).create()
    store.write_json("ace-store.json", {"format": 99})
    with pytest.raises(StoreError, match="format 99"):
        Store.open(str(tmp_path / "store"))
    with pytest.raises(StoreError, match="cannot open store"):
        Store.open("gopher://x/y")


def test_a_write_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store")).create()

    class Full:
        """A filesystem whose disk is full after the temporary file was written."""

        type_name = "local"

        def __init__(self, inner: pafs.FileSystem) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def move(self, source: str, target: str) -> None:
            raise OSError(28, "No space left on device")

    store.write("a/file", b"old")
    full = Store(Full(store.filesystem), store.root, store.uri)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="No space left on device"):
        full.write("a/file", b"new")
    assert store.read("a/file") == b"old"
    assert os.listdir(f"{store.root}/a") == ["file"]


def test_names_become_one_path_segment() -> None:
    assert encode("gaussian_noise/5") == "gaussian_noise%2F5"
    assert encode("hf-hub:timm/x") == "hf-hub%3Atimm%2Fx"
