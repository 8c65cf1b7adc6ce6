"""CIFAR-10 and CIFAR-10-C as published; a pickle is never trusted."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.benchmarks.cifar_batches import CLASSES, as_image
from ace_ray.benchmarks.records import spans
from ace_ray.benchmarks.split import Unreadable
from tests.test_layouts import SHARED, check_pixels, colour, ids, read, refused, splits

N = 10_000
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


def batch(seed: int, rows: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Planes and labels; each image has the colour of its class."""
    labels = np.random.default_rng(seed).integers(0, 10, rows)
    palette = np.array([colour(label) for label in range(10)], np.uint8)
    return np.repeat(palette[labels], 1024, axis=1), labels


def write_bin(path: Path, planes: np.ndarray, labels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.column_stack([labels.astype(np.uint8), planes]).tobytes())


def write_py(path: Path, planes: np.ndarray, labels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {b"batch_label": b"x", b"labels": labels.tolist(), b"data": planes,
               b"filenames": [b"a.png"] * 3}  # fmt: skip
    data = pickle.dumps(content, protocol=2)
    # As in the published files, which older numpy wrote.
    path.write_bytes(data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cifar")
    for seed, name in enumerate(("test_batch", *TRAIN)):
        write_bin(root / "bin/cifar-10-batches-bin" / f"{name}.bin", *batch(seed))
        write_py(root / "py/cifar-10-batches-py" / name, *batch(seed))
    return root


def test_planes_become_pixels() -> None:
    planes = np.arange(3072).astype(np.uint8)
    image = as_image(planes)
    assert image.shape == (32, 32, 3)
    assert image[2, 5].tolist() == [planes[c * 1024 + 2 * 32 + 5] for c in range(3)]
    assert [(s.first, s.at) for s in spans([4, 5, 9, 5, 6])] == [(4, [0, 1]), (9, [2]), (5, [3, 4])]


@pytest.mark.parametrize("layout", ["bin", "py"])
def test_clean_protocol(both: Path, layout: str) -> None:
    found = splits("cifar10", both / layout)
    assert {n: (s.role, s.rows) for n, s in found.items()} == {
        "calibration": ("calibration", 5000), "test": ("id", 5000),
    }  # fmt: skip
    assert ids(found["test"])[42] == "test/00042"
    assert ids(found["calibration"])[0] == "test/05000"
    _, labels = batch(0)
    assert found["calibration"].samples.label.tolist() == labels[5000:].tolist()
    assert (found["test"].side, found["test"].classes) == (32, CLASSES)
    check_pixels(found["test"])
    direct = splits("cifar10", both / layout / f"cifar-10-batches-{layout}")
    assert direct["test"].digest == found["test"].digest
    check_pixels(direct["calibration"])


def test_both_layouts_are_the_same_data(both: Path) -> None:
    for protocol in ("clean", "paper"):
        a, b = (splits("cifar10", both / x, protocol=protocol) for x in ("bin", "py"))
        assert {n: s.digest for n, s in a.items()} == {n: s.digest for n, s in b.items()}


@pytest.mark.parametrize("layout", ["bin", "py"])
def test_paper_protocol(both: Path, layout: str) -> None:
    found = splits("cifar10", both / layout, protocol="paper")
    assert (found["calibration"].rows, found["test"].rows) == (5000, N)
    names = ids(found["calibration"])
    assert all(name.startswith("train/") for name in names)
    train = np.concatenate([batch(seed)[1] for seed in range(1, 6)])
    numbers = [int(name[6:]) for name in names]
    assert found["calibration"].samples.label.tolist() == train[numbers].tolist()
    check_pixels(found["calibration"])
    other = splits("cifar10", both / layout, protocol="paper", seed=2)
    assert ids(other["calibration"]) != names


def test_damaged_batches(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    planes, labels = batch(0)
    write_bin(path, planes, labels)
    before = splits("cifar10", tmp_path)
    assert "data_batch_1.bin" in refused("cifar10", tmp_path, protocol="paper")
    changed = planes.copy()
    changed[7, 7] ^= 1
    write_bin(path, changed, labels)
    after = splits("cifar10", tmp_path)
    assert after["test"].digest != before["test"].digest
    assert after["calibration"].digest == before["calibration"].digest
    whole = path.read_bytes()
    path.write_bytes(whole[: 100 * 3073 + 5])
    assert "307,305 bytes, expected 30,730,000" in refused("cifar10", tmp_path)
    items = read(before["test"])  # planned when it was whole
    assert [isinstance(item, Unreadable) for item in items] == [i >= 100 for i in range(5000)]
    path.write_bytes(b"\x63" + whole[1:])
    assert "outside 0 to 9" in refused("cifar10", tmp_path)


class Hostile:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call = call, arguments

    def __reduce__(self) -> Any:
        return self.call


def test_a_hostile_pickle_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-batches-py/test_batch"
    path.parent.mkdir()
    proof = tmp_path / "it ran"
    command = f"touch '{proof}'"
    for payload in (
        Hostile(os.system, command),
        Hostile(eval, f"open({str(proof)!r}, 'w')"),
        Hostile(getattr, "text", "format"),
        Hostile(np.load, str(proof), None, True),
    ):
        path.write_bytes(pickle.dumps({b"labels": [], b"data": payload}))
        message = refused("cifar10", tmp_path)
        assert "it asks for " in message
        assert "which was not run" in message
        assert not proof.exists()
    path.write_bytes(pickle.dumps({b"labels": [], b"data": Hostile(os.system, command)}))
    assert "asks for posix.system" in refused("cifar10", tmp_path)


def test_odd_pickles_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-batches-py/test_batch"
    path.parent.mkdir()
    planes, labels = batch(0, 20)
    for content, message in (
        (b"", "not a CIFAR-10 batch"),
        (b"\x80\x02garbage", "not a CIFAR-10 batch"),
        (pickle.dumps([1, 2]), "not a CIFAR-10 batch"),
        (pickle.dumps({b"data": planes}, 2), "not a CIFAR-10 batch: 'labels'"),
        (pickle.dumps({b"data": "x", b"labels": [1]}, 2), "no table of uint8"),
        (pickle.dumps({b"data": planes, b"labels": [1]}, 2), "labels (1,)"),
        (pickle.dumps({b"data": planes, b"labels": [11] * 20}, 2), "outside 0 to 9"),
        (pickle.dumps({b"data": planes, b"labels": labels.tolist()}, 2), "20 images, expected"),
    ):
        path.write_bytes(content)
        assert message in refused("cifar10", tmp_path)


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sparse files of the published size: only the rows that tests look at are written."""
    root = tmp_path_factory.mktemp("cifar-c") / "CIFAR-10-C"
    root.mkdir()
    _, labels = batch(0)
    np.save(root / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    for name in ("fog", "snow"):
        pixels = np.lib.format.open_memmap(root / f"{name}.npy", "w+", np.uint8, (5 * N, 32, 32, 3))
        for severity in range(5):
            for row in (0, 1, 2, 77, 4999):
                pixels[severity * N + row] = colour(labels[row])
            pixels[severity * N + 3] = severity + 1
        pixels.flush()
    return root


def test_cifar_c(shifted: Path) -> None:
    found = splits("cifar10-c", shifted, corruptions=("snow", "fog"))
    assert list(found)[:6] == [*(f"snow/{s}" for s in range(1, 6)), "fog/1"]
    _, labels = batch(0)
    for name, split in found.items():
        kind, severity = name.split("/")
        assert (split.role, split.shift, split.side) == ("ood", (kind, int(severity)), 32)
        assert split.samples.label.tolist() == labels[:5000].tolist()
        rows = [0, 1, 2, 77, 4999, 3]
        items = split.reader(split.root, [split.samples.source[i].as_py() for i in rows])
        for row, item in zip(rows[:-1], items, strict=False):
            assert item[5, 5].tolist() == list(colour(labels[row]))
        assert item.shape == (32, 32, 3)
        assert set(items[-1].ravel().tolist()) == {int(severity)}
    paper = splits(
        "cifar10-c", shifted.parent, corruptions=("fog",), severities=(3,), protocol="paper"
    )
    assert paper["fog/3"].rows == N
    assert ids(paper["fog/3"])[:5000] == ids(found["fog/1"])


def test_cifar_c_incomplete_or_of_another_shape(shifted: Path, tmp_path: Path) -> None:
    message = refused("cifar10-c", shifted, corruptions=("fog", "frost", "snow"))
    assert "2 of 3 corruptions" in message
    assert "frost.npy is missing" in message
    asked = {"corruptions": ("fog", "frost"), "partial": True, "severities": (5,)}
    assert list(splits("cifar10-c", shifted, **asked)) == ["fog/5"]
    (tmp_path / "labels.npy").symlink_to(shifted / "labels.npy")
    fog = tmp_path / "fog.npy"
    for array, message in (
        (np.zeros((10, 32, 32, 3), np.uint8), "uint8 (10, 32, 32, 3), expected uint8 (50000,"),
        (np.zeros((10, 3), np.float32), "float32 (10, 3)"),
        (np.zeros((4, 5), np.uint8, order="F"), "C order"),
    ):
        np.save(fog, array)
        assert message in refused("cifar10-c", tmp_path, corruptions=("fog",))
    np.save(fog, np.array([{}], object), allow_pickle=True)
    assert "plain values" in refused("cifar10-c", tmp_path, corruptions=("fog",))
    fog.write_bytes(b"no array")
    assert "not a .npy file" in refused("cifar10-c", tmp_path, corruptions=("fog",))
    fog.write_bytes((shifted / "fog.npy").open("rb").read(50_000))
    assert "50,000 bytes, expected 153,600,128" in refused(
        "cifar10-c", tmp_path, corruptions=("fog",)
    )
    (tmp_path / "labels.npy").unlink()
    np.save(tmp_path / "labels.npy", np.zeros(10, np.uint8))
    assert "labels.npy: uint8 (10,)" in refused("cifar10-c", tmp_path, corruptions=("fog",))


REAL = SHARED / "cifar10"


@pytest.mark.skipif(not REAL.is_dir(), reason="no shared CIFAR-10")
def test_real_cifar() -> None:
    raw = np.fromfile(REAL / "cifar-10-batches-bin/test_batch.bin", np.uint8).reshape(N, 3073)
    test = splits("cifar10", REAL, protocol="paper")["test"]
    assert test.samples.label.tolist() == raw[:, 0].tolist()
    assert np.bincount(test.samples.label).tolist() == [1000] * 10
    pixels = np.stack(read(test))
    np.testing.assert_array_equal(pixels.transpose(0, 3, 1, 2).reshape(N, 3072), raw[:, 1:])
    calibration = splits("cifar10", REAL, protocol="paper")["calibration"]
    drawn = np.fromfile(REAL / "train_5k.bin", np.uint8).reshape(5000, 3073)
    assert calibration.samples.label.tolist() == drawn[:, 0].tolist()
    numbers = np.load(REAL / "train_5k_indices.npy")
    assert ids(calibration) == [f"train/{number:05d}" for number in numbers]
    assert not any(isinstance(item, Unreadable) for item in read(calibration))
