"""ImageNet and its relatives as they unpack."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from ace_ray.benchmarks.classes import imagenet_classes, imagenet_subset
from ace_ray.benchmarks.halves import calibrates
from ace_ray.benchmarks.image_folder import Published, read_folder
from tests.test_layouts import SHARED, check_pixels, ids, paint, read, refused, splits

WNIDS = imagenet_classes()
LABELS = {i: (i * 37) % 1000 for i in range(1, 41)}  # image number: class


def name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


@pytest.fixture
def foldered(tmp_path: Path) -> Path:
    for number, label in LABELS.items():
        paint(tmp_path / "foldered/val" / WNIDS[label] / name(number), label)
    paint(tmp_path / "foldered/train" / WNIDS[0] / "n_1.JPEG", 0)
    return tmp_path / "foldered"


def test_classes_are_timms_and_sorted() -> None:
    assert len(WNIDS) == 1000
    assert list(WNIDS) == sorted(WNIDS)
    (package,) = find_spec("timm").submodule_search_locations
    info = Path(package) / "data/_info"
    for variant in ("r", "a"):
        subset = imagenet_subset(variant)
        assert len(subset) == 200
        synsets = (info / f"imagenet_{variant}_synsets.txt").read_text().split()
        assert [WNIDS[i] for i in subset] == sorted(synsets)


def test_imagenet_in_class_folders(foldered: Path) -> None:
    found = splits("imagenet", foldered, partial=True)
    assert {n: s.role for n, s in found.items()} == {"calibration": "calibration", "test": "id"}
    assert sum(split.rows for split in found.values()) == 40
    for part, split in found.items():
        assert split.classes == WNIDS
        chosen = calibrates([i.rpartition("/")[2] for i in ids(split)], 1)
        assert set(chosen) == {part == "calibration"}
        check_pixels(split)
    direct = splits("imagenet", foldered / "val", partial=True)  # the root is the folder itself
    assert direct["test"].digest == found["test"].digest
    other = splits("imagenet", foldered, partial=True, seed=2)
    assert set(ids(other["test"])) != set(ids(found["test"]))


def test_half_copied_imagenet_says_what_is_missing(foldered: Path, tmp_path: Path) -> None:
    message = refused("imagenet", foldered)
    assert f"40 of 50,000 images in {foldered}/val" in message
    assert f"class {WNIDS[0]} is missing; copy the rest from https://image-net.org" in message
    assert message.endswith("or set `partial: true`")
    paint(foldered / "val" / "n00000000" / "x.JPEG", 0)
    assert "'n00000000' is none of the 1,000 classes" in refused("imagenet", foldered, partial=True)
    (tmp_path / "empty/val").mkdir(parents=True)
    assert "no images" in refused("imagenet", tmp_path / "empty", partial=True)


def test_counts_name_the_first_class_that_is_short_or_long(tmp_path: Path) -> None:
    for label, count in enumerate((2, 1, 3)):
        for i in range(count):
            paint(tmp_path / str(label) / f"{i}.png", label)
    images = read_folder("x", str(tmp_path), ["0", "1", "2"])
    with pytest.raises(ValueError, match=r"6 of 9 images .* class 0 has 2 of 3; copy the rest"):
        Published(9, "here", each=3).check("x", images, ["0", "1", "2"], partial=False)
    with pytest.raises(ValueError, match=r"6 of 9 images .* class 1 has 1, the fewest"):
        Published(9, "here").check("x", images, ["0", "1", "2"], partial=False)
    with pytest.raises(ValueError, match=r"6 of 5 images .* remove the others"):
        Published(5, "here").check("x", images, ["0", "1", "2"], partial=False)
    Published(6, "here").check("x", images, ["0", "1", "2"], partial=False)


DEVKIT = np.random.default_rng(0).permutation(1000)  # class by the devkit's number - 1


def truth(kind: str) -> tuple[str, str]:
    """The name and text of a labels file."""
    lines = [LABELS.get(i, 0) for i in range(1, 50_001)]
    if kind == "index":
        return "val.txt", "".join(f"{name(i)} {y}\n" for i, y in LABELS.items())
    if kind == "wnid":
        return "val_labels.txt", "".join(f"{name(i)} {WNIDS[y]}\n" for i, y in LABELS.items())
    if kind == "kaggle":
        rows = [
            f"{name(i)[:-5]},{WNIDS[y]} 1 2 3 4 {WNIDS[y]} 5 6 7 8 \n" for i, y in LABELS.items()
        ]
        return "LOC_val_solution.csv", "ImageId,PredictionString\n" + "".join(rows)
    if kind == "lines":
        file = "imagenet_2012_validation_synset_labels.txt"
        return file, "".join(f"{WNIDS[y]}\n" for y in lines)
    numbers = np.argsort(DEVKIT) + 1
    file = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
    return file, "".join(f"{numbers[y]}\n" for y in lines)


@pytest.mark.parametrize("kind", ["index", "wnid", "kaggle", "lines", "devkit"])
@pytest.mark.parametrize("folder", ["val", "ILSVRC2012_img_val", "."])
def test_flat_imagenet_is_the_same_set(
    foldered: Path, tmp_path: Path, kind: str, folder: str
) -> None:
    flat = tmp_path / "flat"
    for number, label in LABELS.items():
        paint(flat / folder / name(number), label)
    file, text = truth(kind)
    (flat / file).parent.mkdir(parents=True, exist_ok=True)
    (flat / file).write_text(text)
    if kind == "devkit":
        assert "meta.mat is missing" in refused("imagenet", flat, partial=True)
        kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")]
        # Beyond the 1,000 come synsets that are no class of their own.
        rows = [(i + 1, WNIDS[y], 0) for i, y in enumerate(DEVKIT)] + [(1001, "n00001740", 9)]
        savemat((flat / file).with_name("meta.mat"), {"synsets": np.array(rows, dtype=kinds)})
    found, same = splits("imagenet", flat, partial=True), splits("imagenet", foldered, partial=True)
    for part in found:
        assert found[part].digest == same[part].digest
        assert ids(found[part]) == ids(same[part])
        check_pixels(found[part])
    assert "ILSVRC2012_val_00000041.JPEG is missing" in refused("imagenet", flat)


def test_labels_file_mistakes(tmp_path: Path) -> None:
    for number, label in LABELS.items():
        paint(tmp_path / "val" / name(number), label)
    assert "no labels file" in refused("imagenet", tmp_path, partial=True)
    for text, message in (
        ("", "is empty"),
        (f"{name(1)} 1\n", f"no label for {name(2)}"),
        (f"{name(1)} 1000\n", "line 1: '1000' is no class"),
        (f"{name(1)} 5\n{name(2)}\n", f"line 2: {name(2)!r} has no label"),
        (f"{WNIDS[3]}\n" * 39, "has 39 lines, but there is image 40"),
        (f"{WNIDS[3]}\nn00000000\n", "line 2: 'n00000000' is no class"),
    ):
        (tmp_path / "mine.txt").write_text(text)
        assert message in refused("imagenet", tmp_path, partial=True, labels="mine.txt")
    assert "cannot read" in refused("imagenet", tmp_path, partial=True, labels="/no/such.txt")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/ILSVRC2012_validation_ground_truth.txt").write_text("1\n" * 50_000)
    (tmp_path / "data/meta.mat").write_bytes(b"not a mat file" * 50)
    assert "meta.mat is not the devkit's" in refused("imagenet", tmp_path, partial=True)


def test_names_that_carry_their_class_need_no_labels_file(foldered: Path, tmp_path: Path) -> None:
    for number, label in LABELS.items():
        paint(tmp_path / "hf" / f"ILSVRC2012_val_{number:08d}_{WNIDS[label]}.JPEG", label)
    found, same = (
        splits("imagenet", tmp_path / "hf", partial=True),
        splits("imagenet", foldered, partial=True),
    )
    for part in found:
        check_pixels(found[part])
        assert sorted(found[part].samples.label) == sorted(same[part].samples.label)


def test_v2_folders_are_numbers_not_text(tmp_path: Path) -> None:
    for folder in ("matched-frequency", "threshold0.7", "top-images"):
        for label in (0, 2, 10, 999):
            paint(tmp_path / f"imagenetv2-{folder}-format-val" / str(label) / "x.jpeg", label)
    found = splits("imagenet-v2", tmp_path, partial=True)
    assert list(found) == ["matched-frequency", "threshold-0.7", "top-images"]
    for split in found.values():
        assert dict(zip(ids(split), split.samples.label.tolist(), strict=True)) == {
            "0/x.jpeg": 0, "2/x.jpeg": 2, "10/x.jpeg": 10, "999/x.jpeg": 999,
        }  # fmt: skip
        assert (split.role, split.classes, split.subset) == ("ood", WNIDS, None)
        check_pixels(split)
    assert list(splits("imagenet-v2", tmp_path, partial=True, variants=("top-images",))) == [
        "top-images"
    ]
    message = refused("imagenet-v2", tmp_path)
    assert "4 of 10,000 images" in message
    assert "class 1 is missing" in message
    assert "each once" in refused("imagenet-v2", tmp_path, variants=())
    (tmp_path / "imagenetv2-threshold0.7-format-val").rename(tmp_path / "other")
    assert "no folder imagenetv2-threshold0.7-format-val" in refused(
        "imagenet-v2", tmp_path, variants=("threshold-0.7",)
    )
    assert len(splits("imagenet-v2", tmp_path, partial=True)) == 2


@pytest.mark.parametrize(("letter", "images"), [("r", "30,000"), ("a", "7,500")])
def test_sets_of_200_classes(tmp_path: Path, letter: str, images: str) -> None:
    subset = imagenet_subset(letter)
    for label in subset[::20]:
        paint(tmp_path / WNIDS[label] / "x.jpg", label)
    found = splits(f"imagenet-{letter}", tmp_path, partial=True)["test"]
    assert (found.role, found.subset, found.classes) == ("ood", subset, WNIDS)
    assert found.samples.label.tolist() == list(subset[::20])
    check_pixels(found)
    message = refused(f"imagenet-{letter}", tmp_path)
    assert f"10 of {images} images" in message
    assert f"class {WNIDS[subset[1]]} is missing" in message
    outside = next(i for i in range(1000) if i not in subset)
    paint(tmp_path / WNIDS[outside] / "x.jpg", outside)
    assert "none of the 200 classes" in refused(f"imagenet-{letter}", tmp_path, partial=True)


def test_sketch(tmp_path: Path) -> None:
    for label in (3, 700):
        paint(tmp_path / "sketch" / WNIDS[label] / "sketch_0.JPEG", label)
    found = splits("imagenet-sketch", tmp_path, partial=True)["test"]
    assert (
        found.digest == splits("imagenet-sketch", tmp_path / "sketch", partial=True)["test"].digest
    )
    assert (found.role, found.subset) == ("ood", None)
    check_pixels(found)
    assert "2 of 50,889 images" in refused("imagenet-sketch", tmp_path)


def test_imagenet_c_never_shows_an_image_that_calibrated(foldered: Path, tmp_path: Path) -> None:
    root = tmp_path / "c"
    for path in ("fog/1", "fog/5", "blur/defocus_blur/5"):
        for number, label in LABELS.items():
            paint(root / path / WNIDS[label] / name(number), label)
    asked = {"corruptions": ("fog", "defocus_blur"), "severities": (1, 5), "partial": True}
    found = splits("imagenet-c", root, **asked)
    assert {n: s.shift for n, s in found.items()} == {
        "fog/1": ("fog", 1), "fog/5": ("fog", 5), "defocus_blur/5": ("defocus_blur", 5),
    }  # fmt: skip
    clean = splits("imagenet", foldered, partial=True)
    for split in found.values():
        assert (split.role, split.corruption, split.corrupted) == ("ood", split.shift[0], None)
        assert ids(split) == ids(clean["test"])
        assert split.samples is found["fog/1"].samples  # one manifest for all
        check_pixels(split)
    everything = splits("imagenet-c", root, half="all", **asked)["fog/5"]
    assert ids(everything) == sorted(ids(clean["test"]) + ids(clean["calibration"]))
    message = refused("imagenet-c", root, **{**asked, "partial": False})
    assert "no folder defocus_blur/1" in message
    whole = {**asked, "corruptions": ("fog",), "partial": False}
    assert "40 of 50,000 images" in refused("imagenet-c", root, **whole)
    assert "did you mean 'fog'?" in refused("imagenet-c", root, corruptions=("fogg",))
    assert "no corruption" in refused("imagenet-c", root, corruptions=("snow",), partial=True)


@pytest.mark.skipif(not (SHARED / "imagenet/val").is_dir(), reason="no shared ImageNet images")
def test_real_imagenet_images() -> None:
    found = splits("imagenet", SHARED / "imagenet", partial=True)
    assert sum(split.rows for split in found.values()) == 1000
    labels = np.concatenate([split.samples.label for split in found.values()])
    assert sorted(labels.tolist()) == list(range(1000))
    for item in read(found["test"])[::40]:
        image = Image.open(io.BytesIO(item))
        image.load()
        assert min(image.size) == 256
    assert "1,000 of 50,000 images" in refused("imagenet", SHARED / "imagenet")
