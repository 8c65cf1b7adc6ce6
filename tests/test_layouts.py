"""Data sets on disk: one's own folders, domains and WILDS; and what every layout must do."""

from __future__ import annotations

import io
import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from ace_ray.benchmarks import registry
from ace_ray.benchmarks.halves import calibrates
from ace_ray.benchmarks.locate import Located
from ace_ray.benchmarks.registry import BENCHMARKS, Request, find_benchmark, load_benchmarks
from ace_ray.benchmarks.split import Split, Unreadable
from ace_ray.config import load_plain
from ace_ray.errors import AceRayError
from ace_ray.logits.units import plan_units
from ace_ray.store import Store

SHARED = Path(os.environ.get("ACE_RAY_SHARED", Path(__file__).parents[2] / "shared")) / "data"


def colour(label: int) -> tuple[int, int, int]:
    return 40 + label * 37 % 180, 40 + label * 91 % 180, 40 + label * 53 % 180


def encoded(label: int, kind: str = "PNG", side: int = 8) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (side, side), colour(label)).save(data, kind)
    return data.getvalue()


def paint(path: Path, label: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(label, "PNG" if path.suffix == ".png" else "JPEG"))
    return path


def splits(benchmark: str, root: Path | str | None, **options: Any) -> dict[str, Split]:
    """The splits of a benchmark, after checks that hold for every one."""
    known = find_benchmark(benchmark)
    request = Request(
        "label", known.options(**options), str(root) if root else None, lambda _: None
    )
    found = known.splits(request)
    for split in found:
        ids = split.samples.sample_id.to_pylist()
        assert split.benchmark == "label"
        assert len(set(ids)) == len(ids) == split.rows > 0
        assert split.samples.label.min() >= 0
        assert split.samples.label.max() < len(split.classes)
        assert len(split.samples.source) == split.rows
    assert len({split.name for split in found}) == len(found)
    return {split.name: split for split in found}


def ids(split: Split) -> list[str]:
    return split.samples.sample_id.to_pylist()


def read(split: Split) -> list[Any]:
    return list(split.reader(split.root, split.samples.source.to_pylist()))


def check_pixels(split: Split) -> None:
    """Every image can be decoded and has the colour of its label."""
    for item, label in zip(read(split), split.samples.label.tolist(), strict=True):
        assert not isinstance(item, Unreadable), item
        pixels = np.asarray(Image.open(io.BytesIO(item)) if isinstance(item, bytes) else item)
        assert pixels.dtype == np.uint8
        np.testing.assert_allclose(pixels.mean((0, 1)), colour(label), atol=4)


def refused(benchmark: str, root: Path | str | None, **options: Any) -> str:
    """The one line with which a benchmark is refused."""
    with pytest.raises(AceRayError) as caught:
        splits(benchmark, root, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(("label: ", "benchmarks.label: ")) or str(root) in message
    return message


NAMES = ("50% off", "chat élégant", "plain")


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    root = tmp_path / "birds"
    for part in ("calibration", "test", "snow", "night"):
        for label, name in enumerate(NAMES):
            for i in range(2):
                paint(root / part / name / f"{i}.{('png', 'jpg')[i]}", label)
    paint(root / "test" / "plain" / "deep" / "er" / "x.jpeg", 2)
    (root / "test" / "plain" / "notes.txt").write_text("no image")
    (root / ".cache").mkdir()
    return root


@pytest.mark.parametrize("benchmark", ["folder", "imagenet", "imagenet-v2", "imagenet-sketch",
    "imagenet-r", "imagenet-a", "imagenet-c", "cifar10", "cifar10-c", "iwildcam", "domains",
    "webdataset", "table"])  # fmt: skip
def test_a_missing_root_says_where_to_get_the_data(tmp_path: Path, benchmark: str) -> None:
    options = {"calibration": ("art",)} if benchmark == "domains" else {}
    message = refused(benchmark, None, **options)
    assert "where is it? set `data_root` or `path`; get it from" in message
    message = refused(benchmark, tmp_path / "nowhere", **options)
    assert str(tmp_path / "nowhere") in message
    assert BENCHMARKS[benchmark].origin in message
    assert BENCHMARKS[benchmark].folder
    with pytest.raises(ValidationError):
        TypeAdapter(BENCHMARKS[benchmark].options).validate_python({**options, "pth": "x"})
    refused(benchmark, tmp_path, **options)  # an empty folder


def test_folder(birds: Path) -> None:
    found = splits("folder", birds)
    assert {n: s.role for n, s in found.items()} == {
        "calibration": "calibration", "test": "id", "night": "ood", "snow": "ood",
    }  # fmt: skip
    test = found["test"]
    assert test.classes == NAMES
    assert ids(test) == sorted(ids(test))
    assert "plain/deep/er/x.jpeg" in ids(test)
    assert test.rows == 7
    assert test.samples.label.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert (test.subset, test.side, test.shift) == (None, None, None)
    for split in found.values():
        check_pixels(split)


def test_folder_roles_are_options(birds: Path) -> None:
    found = splits("folder", birds, calibration="snow", test=None, ood=("night",))
    assert {n: s.role for n, s in found.items()} == {"snow": "calibration", "night": "ood"}
    message = refused("folder", birds, calibration="calibraton")
    assert "did you mean 'calibration'?" in message
    assert "one role" in refused("folder", birds, ood=("test",))
    assert "one role" in refused("folder", birds, calibration="test")


def test_folder_through_a_uri_and_a_relative_path(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    birds = birds.rename(birds.with_name("my birds %"))
    by_uri = splits("folder", birds.as_uri())["night"]
    check_pixels(by_uri)
    monkeypatch.chdir(birds.parent)
    relative = splits("folder", birds.name)["night"]
    monkeypatch.chdir("/")
    check_pixels(relative)
    assert relative.digest == by_uri.digest


def test_digest_follows_the_content_not_the_place(birds: Path, tmp_path: Path) -> None:
    before = {n: s.digest for n, s in splits("folder", birds).items()}
    moved = tmp_path / "elsewhere"
    shutil.copytree(birds, moved)
    assert {n: s.digest for n, s in splits("folder", moved).items()} == before
    changed = set(before.values())
    (moved / "test/plain/0.png").rename(moved / "test/plain/2.png")
    changed.add(splits("folder", moved)["test"].digest)
    (moved / "test/plain/2.png").write_bytes(b"longer" * 100)
    changed.add(splits("folder", moved)["test"].digest)
    order = ("plain", "50% off", "chat élégant")
    changed.add(splits("folder", moved, classes=order)["test"].digest)
    assert len(changed) == len(set(before.values())) + 3
    # `calibration`, `snow` and `night` hold the same images under the same names
    assert len(set(before.values())) == 2


def test_folder_classes_in_the_order_of_the_network(birds: Path, tmp_path: Path) -> None:
    order = ("unseen", "plain", "50% off", "chat élégant")
    inline = splits("folder", birds, classes=order)["night"]
    assert inline.classes == order
    assert inline.samples.label.tolist() == [2, 2, 3, 3, 1, 1]
    # decomposed accents, as some systems write them, mean the same class
    text = "\ufeffunseen\nplain\n\n50% off\nchat e\u0301le\u0301gant\n"
    (birds / "classes.txt").write_text(text, encoding="utf-8")
    assert splits("folder", birds, classes="classes.txt")["night"].digest == inline.digest
    restricted = splits("folder", birds, classes=order, restrict_classes=True)
    assert restricted["night"].subset == (1, 2, 3)
    assert restricted["calibration"].subset is None
    message = refused("folder", birds, classes=("50% of", "plain", "chat élégant"))
    assert "'50% off' is none of the 3 classes; did you mean '50% of'?" in message
    assert "cannot read" in refused("folder", birds, classes="no-file.txt")
    assert "twice" in refused("folder", birds, classes=("a", "b", "a"))


def test_folder_of_imagenet_classes_has_all_thousand(tmp_path: Path) -> None:
    for wnid, label in (("n01443537", 1), ("n15075141", 999)):
        for part in ("calibration", "test"):
            paint(tmp_path / part / wnid / "0.jpg", label)
    found = splits("folder", tmp_path)["test"]
    assert len(found.classes) == 1000
    assert found.samples.label.tolist() == [1, 999]
    check_pixels(found)


def test_folder_symlinks_and_empty_folders(birds: Path, tmp_path: Path) -> None:
    target = birds / "night"
    (birds / "night").rename(tmp_path / "far")
    target.symlink_to(tmp_path / "far")
    (birds / "test" / "a new class").mkdir()  # empty: it counts as a class, and has no image
    night = splits("folder", birds)["night"]
    assert night.classes == ("50% off", "a new class", "chat élégant", "plain")
    assert night.rows == 6
    (birds / "fog").mkdir()
    assert "no image for fog" in refused("folder", birds)


def test_folder_mistakes_in_the_layout(birds: Path, tmp_path: Path) -> None:
    paint(birds / "test" / "stray.png", 0)
    assert "stray.png lies in no class folder" in refused("folder", birds)
    assert "has no folders" in refused("folder", birds / "night" / "plain")
    one = tmp_path / "one"
    for part in ("calibration", "test"):
        paint(one / part / "only" / "0.png", 0)
    assert "1 class folders" in refused("folder", one)
    (birds / "test" / "stray.png").unlink()
    bad = bytes(birds / "night" / "plain") + b"/\xff.jpg"
    Path(bad.decode(errors="surrogateescape")).write_bytes(b"")
    assert "not UTF-8" in refused("folder", birds)


def test_folder_in_halves(birds: Path) -> None:
    for i in range(60):
        paint(birds / "snow" / "plain" / f"more-{i}.png", 2)
    found = splits("folder", birds / "snow", halves=True)
    assert {n: s.role for n, s in found.items()} == {"calibration": "calibration", "test": "id"}
    halves = set(ids(found["calibration"])), set(ids(found["test"]))
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == 66
    assert min(map(len, halves)) > 15
    for split in found.values():
        check_pixels(split)
    # What is there besides does not move an image to the other half.
    (birds / "snow/plain/more-7.png").unlink()
    again = splits("folder", birds / "snow", halves=True)
    assert set(ids(again["test"])) <= halves[1]
    other = splits("folder", birds / "snow", halves=True, seed=2)
    assert set(ids(other["test"])) != set(ids(again["test"]))
    assert "leave one out" in refused("folder", birds / "snow", halves=True, ood=("x",))


def test_halves_of_official_names_are_exact_and_pinned() -> None:
    names = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 50_001)]
    first = calibrates(names, 1)
    assert sum(first) == 25_000
    assert first == calibrates([f"n01440764/{name}" for name in names], 1)
    assert first != calibrates(names, 2)
    # Pinned: a release that moves an image to the other half changes every result.
    assert first[:20] == [c == "c" for c in PINNED]
    assert calibrates(["a.png", "b.png", "c.png", "d.png"], 1) == [c == "c" for c in PINNED_OTHER]


PINNED = "cctccctttttctctctccc"  # c: calibration, t: test
PINNED_OTHER = "tttc"


def test_unreadable_files_are_named_and_all_others_kept(birds: Path) -> None:
    split = splits("folder", birds)["night"]
    (birds / "night/plain/0.png").unlink()
    items = read(split)
    bad = [i for i, item in enumerate(items) if isinstance(item, Unreadable)]
    assert [ids(split)[i] for i in bad] == ["plain/0.png"]
    assert "No such file" in items[bad[0]].reason


def test_domains(tmp_path: Path) -> None:
    for domain in ("Art", "Clipart", "Real World", "Sketch"):
        for label, name in enumerate(("dog", "elephant")):
            for i in range(12):
                paint(tmp_path / domain / name / f"{i}.png", label)
    found = splits("domains", tmp_path, calibration=("Art", "Real World"))
    assert {n: s.role for n, s in found.items()} == {
        "Art/calibration": "calibration", "Art/test": "id",
        "Real World/calibration": "calibration", "Real World/test": "id",
        "Clipart": "ood", "Sketch": "ood",
    }  # fmt: skip
    assert found["Sketch"].rows == 24
    assert found["Art/calibration"].rows + found["Art/test"].rows == 24
    for split in found.values():
        check_pixels(split)
    assert list(splits("domains", tmp_path, calibration=("Art",), ood=("Sketch",))) == [
        "Art/calibration", "Art/test", "Sketch",
    ]  # fmt: skip
    assert "did you mean 'Clipart'?" in refused("domains", tmp_path, calibration=("clipart",))
    assert "one role" in refused("domains", tmp_path, calibration=("Art",), ood=("Art",))
    assert "is empty" in refused("domains", tmp_path, calibration=())


@pytest.fixture
def wildcam(tmp_path: Path) -> Path:
    root = tmp_path / "iwildcam_v2.0"
    rows = ["split,location,y,filename"]
    for i, part in enumerate(["train", "val", "id_val", "id_test", "test"] * 4):
        rows.append(f"{part},7,{i * 9},{i:03d}.jpg")
        if part not in ("train", "val"):
            paint(root / "train" / f"{i:03d}.jpg", i * 9)
    (root / "metadata.csv").write_text("\n".join(rows) + "\n")
    return root


def test_iwildcam(wildcam: Path) -> None:
    found = splits("iwildcam", wildcam)
    assert {n: s.role for n, s in found.items()} == {
        "calibration": "calibration", "test": "id", "ood": "ood",
    }  # fmt: skip
    assert ids(found["calibration"]) == ["002.jpg", "007.jpg", "012.jpg", "017.jpg"]
    assert len(found["ood"].classes) == 182
    for split in found.values():
        check_pixels(split)
    assert splits("iwildcam", wildcam.parent)["ood"].digest == found["ood"].digest
    (wildcam / "train/004.jpg").unlink()
    message = refused("iwildcam", wildcam)
    assert "11 of 12 images" in message
    assert "004.jpg is missing" in message
    assert "`partial: true`" in message
    assert splits("iwildcam", wildcam, partial=True)["ood"].rows == 3


def test_iwildcam_in_the_order_of_another_network(wildcam: Path) -> None:
    rows = "".join(f"{i},{i},animal {i}\n" for i in range(182))
    (wildcam / "categories.csv").write_text("category_id,y,name\n" + rows + "372,99999,left out\n")
    order = tuple(f"animal {i}" for i in reversed(range(182)))
    plain, turned = splits("iwildcam", wildcam), splits("iwildcam", wildcam, classes=order)
    assert plain["test"].classes == order[::-1]
    assert (181 - turned["test"].samples.label).tolist() == plain["test"].samples.label.tolist()
    assert "'animal 18'" in refused("iwildcam", wildcam, classes=order[:-19])
    (wildcam / "metadata.csv").write_text("split,y\ntest,1\n")
    assert "filename" in refused("iwildcam", wildcam)


def test_every_benchmark_can_be_listed() -> None:
    load_benchmarks()
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert benchmark.about
        assert "\n" not in benchmark.about + benchmark.origin


def test_third_party_benchmarks_are_found_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that calls `register_benchmark`, as docs/benchmarks.md says; usable in a config."""
    (tmp_path / "stripes.py").write_text(
        """
from dataclasses import dataclass
import numpy as np
from ace_ray.benchmarks.registry import Benchmark, register_benchmark
from ace_ray.benchmarks.split import Samples, Split

@dataclass(frozen=True)
class Options:
    images: int = 6

def read(root, sources):
    return [np.full((8, 8, 3), int(s), np.uint8) for s in sources]

def splits(request):
    names = [str(i) for i in range(request.options.images)]
    samples = Samples.of(names, [i % 2 for i in range(len(names))], names)
    return [Split(benchmark=request.name, name="test", role="id", samples=samples,
                  classes=("a", "b"), digest=samples.digest("stripes-1"), reader=read)]

register_benchmark(Benchmark(name="stripes", about="-", options=Options, splits=splits))
"""
    )
    point = metadata.EntryPoint("stripes", "stripes", "ace_ray.benchmarks")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    load_benchmarks.cache_clear()
    try:
        config = load_plain({"benchmarks": [{"name": "stripes", "images": 4}]}, "test")
        (split,) = Located(config.benchmark_configs(), None).splits("stripes")
        assert split.rows == 4
        assert [int(item.mean()) for item in read(split)] == [0, 1, 2, 3]
    finally:
        BENCHMARKS.pop("stripes", None)
        load_benchmarks.cache_clear()


def test_links_in_a_circle(birds: Path) -> None:
    (birds / "test/plain/loop").symlink_to(birds / "test")
    assert "link to a folder above it" in refused("folder", birds)
    assert "is a file" in refused("folder", birds / "test/plain/0.png")


def test_halves_of_splits_are_refused(birds: Path) -> None:
    assert "looks like a split" in refused("folder", birds, halves=True)


@pytest.mark.parametrize(
    ("clean", "shifted"),
    [
        ({"name": "cifar10"}, {"name": "cifar10-c", "protocol": "paper"}),
        ({"name": "imagenet"}, {"name": "imagenet-c", "seed": 2}),
    ],
)
def test_sets_that_are_cut_differently_are_refused(
    clean: dict[str, Any], shifted: dict[str, Any]
) -> None:
    config = load_plain({"benchmarks": [clean, shifted]}, "test")
    with pytest.raises(AceRayError, match="images that calibrate would be tested on"):
        plan_units(config, Store.open("/nowhere/at/all"))
