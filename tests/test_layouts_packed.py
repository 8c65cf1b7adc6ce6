"""Many images in few files: tar shards and Parquet tables."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.benchmarks.split import Unreadable
from tests.test_layouts import check_pixels, encoded, ids, read, refused, splits


def shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    root = tmp_path / "shards"
    for name in ("calibration-000", "test-000", "test-001", "sketch-000", "sketch-001", "fog2"):
        members = {}
        for i in range(5):
            members[f"{i:04d}.jpg" if i % 2 else f"sub/{i:04d}.png"] = encoded(i)
            members[f"{i:04d}.cls" if i % 2 else f"sub/{i:04d}.json"] = (
                b"%d\n" % i if i % 2 else json.dumps({"label": i, "text": "x"}).encode()
            )
        shard(root / f"{name}.tar", members)
    return root


def test_webdataset(shards: Path) -> None:
    found = splits("webdataset", shards)
    assert {n: (s.role, s.rows) for n, s in found.items()} == {
        "calibration": ("calibration", 5), "test": ("id", 10), "fog": ("ood", 5),
        "sketch": ("ood", 10),
    }  # fmt: skip
    assert found["test"].classes == ("0", "1", "2", "3", "4")
    assert ids(found["test"])[:2] == ["test-000/0001", "test-000/0003"]
    for split in found.values():
        check_pixels(split)
    only = splits("webdataset", shards, calibration="fog*", test=None, ood=("sketch-001*",))
    assert {n: s.rows for n, s in only.items()} == {"calibration": 5, "sketch": 5}
    assert "no file 'x*'" in refused("webdataset", shards, test="x*")
    assert "matches both" in refused("webdataset", shards, test="*.tar")
    assert "expected 0 to 2" in refused("webdataset", shards, classes=("a", "b", "c"))


def test_damaged_shards(shards: Path) -> None:
    split = splits("webdataset", shards)["test"]
    path = shards / "test-001.tar"
    whole = path.read_bytes()
    for kept in (3 * 512 + 100, 4 * 512, 5 * 512 + 3):  # in data, between members, in a header
        path.write_bytes(whole[:kept])
        message = refused("webdataset", shards)
        assert "test-001.tar: damaged after" in message
        assert "copy it again, or set `partial: true`" in message
        assert 5 < splits("webdataset", shards, partial=True)["test"].rows < 10
        items = read(split)  # planned when it was whole
        assert sum(isinstance(item, Unreadable) for item in items) < 5
        assert not any(isinstance(item, Unreadable) for item in items[:5])
    path.unlink()
    assert sum(isinstance(item, Unreadable) for item in read(split)) == 5
    path.write_bytes(b"\x89not a tar" * 100)
    assert "damaged after 0 members" in refused("webdataset", shards)


@pytest.mark.parametrize(("members", "message"), [
    ({"a.jpg": b"x"}, "'a' has no label"),
    ({"a.cls": b"1"}, "'a' has no image"),
    ({"a.jpg": b"x", "a.cls": b"cat"}, "a.cls: no class number"),
    ({"a.jpg": b"x", "a.json": b'{"label": "cat"}'}, "got 'cat'"),
    ({"a.jpg": b"x", "a.JPG": b"x", "a.cls": b"1"}, "twice"),
])  # fmt: skip
def test_odd_members(shards: Path, members: dict[str, bytes], message: str) -> None:
    shard(shards / "test-001.tar", members)
    assert message in refused("webdataset", shards)


def table(path: Path, labels: list[int], struct: bool, names: list[str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [encoded(label) for label in labels]
    column = [{"bytes": i, "path": "x.png"} for i in images] if struct else images
    content = pa.table({"image": column, "label": labels})
    if names is not None:
        feature = {"label": {"names": names, "_type": "ClassLabel"}}
        info = json.dumps({"info": {"features": feature}})
        content = content.replace_schema_metadata({"huggingface": info})
    pq.write_table(content, path, row_group_size=3)
    return path


@pytest.mark.parametrize("struct", [True, False])
def test_table(tmp_path: Path, struct: bool) -> None:
    names = ["a", "b", "c", "d"]
    for file in ("calibration-00000-of-00001", "test-00000-of-00002", "test-00001-of-00002"):
        table(tmp_path / f"{file}.parquet", [0, 1, 2, 1, 0, 2, 1], struct, names)
    table(tmp_path / "snow" / "0000.parquet", [2, 1], struct)
    found = splits("table", tmp_path)
    assert {n: (s.role, s.rows) for n, s in found.items()} == {
        "calibration": ("calibration", 7), "test": ("id", 14), "snow": ("ood", 2),
    }  # fmt: skip
    assert found["test"].classes == tuple(names)
    assert ids(found["test"])[8] == "test-00001-of-00002/000001"
    for split in found.values():
        check_pixels(split)
    assert "did you mean 'image'?" in refused("table", tmp_path, image="img_image")
    assert "'image' is" in refused("table", tmp_path, label="image")
    assert splits("table", tmp_path, classes=("x", "y", "z"))["test"].classes == ("x", "y", "z")


def test_damaged_and_odd_tables(tmp_path: Path) -> None:
    path = table(tmp_path / "test.parquet", [0, 1, 2, 1], True)
    table(tmp_path / "calibration.parquet", [0, 1], True)
    split = splits("table", tmp_path)["test"]
    empty = pa.table({"image": [encoded(0), None, b"", encoded(1)], "label": [0, 1, 2, 1]})
    pq.write_table(empty, path)
    items = read(split)
    assert items[1] == Unreadable("the row has no image bytes")
    assert items[3] == encoded(1)
    pq.write_table(empty.slice(0, 1), path)
    assert read(split)[1:] == [Unreadable("the table ends before it")] * 3
    path.write_bytes(b"PAR1 nothing")
    assert all(isinstance(item, Unreadable) for item in read(split))
    assert "not a readable Parquet file" in refused("table", tmp_path)
    table(path, [0, -1], True)
    assert "test/000001 has the label -1" in refused("table", tmp_path)
