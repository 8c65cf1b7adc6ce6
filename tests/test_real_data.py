"""Real logits: an ImageNet network on 5,000 validation images, a CIFAR-10 ResNet-20."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from sklearn.calibration import _TemperatureScaling as SklearnTemperature

import ace_ray
from tests.conftest import ROOT

SHARED = Path(os.environ.get("ACE_RAY_SHARED", ROOT.parent / "shared")) / "data"
pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="real data is not part of the project; set ACE_RAY_SHARED"
)


def halves(logits: np.ndarray, labels: np.ndarray):
    return (logits[::2], labels[::2]), (logits[1::2], labels[1::2])


@pytest.fixture(scope="module")
def imagenet() -> tuple[np.ndarray, np.ndarray]:
    table = pq.read_table(SHARED / "imagenet/tf_efficientnet_lite0_val5k_logits.parquet")
    logits = table["logits"].combine_chunks().flatten().to_numpy().reshape(-1, 1000)
    return logits, table["label"].to_numpy()


def residual_network() -> torch.nn.Module:
    """CIFAR ResNet-20 with option-A shortcuts, under the names of the published weights."""

    class Block(torch.nn.Module):
        def __init__(self, inside: int, width: int) -> None:
            super().__init__()
            self.stride = 1 if inside == width else 2
            self.pad = (width - inside) // 2
            self.conv1 = torch.nn.Conv2d(inside, width, 3, self.stride, 1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(width)
            self.conv2 = torch.nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = torch.nn.BatchNorm2d(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            short = x[:, :, :: self.stride, :: self.stride]
            return torch.relu(y + torch.nn.functional.pad(short, (0, 0, 0, 0, self.pad, self.pad)))

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(16)
            widths = [(16, 16), (16, 32), (32, 64)]
            stages = [torch.nn.Sequential(Block(a, b), Block(b, b), Block(b, b)) for a, b in widths]
            self.layer1, self.layer2, self.layer3 = stages
            self.linear = torch.nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.bn1(self.conv1(x)))
            return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))

    return Network()


@pytest.fixture(scope="module")
def cifar() -> tuple[np.ndarray, np.ndarray]:
    raw = np.fromfile(SHARED / "cifar10/cifar-10-batches-bin/test_batch.bin", np.uint8)
    records = raw.reshape(-1, 3073)
    network = residual_network()
    network.load_state_dict(load_file(SHARED / "cifar10/resnet20.safetensors"))
    network.eval()
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    with torch.inference_mode():
        out = torch.cat([network((batch / 255 - mean) / std) for batch in images.split(500)])
    return out.numpy(), records[:, 0].astype(np.int64)


def test_imagenet_figures(imagenet) -> None:
    logits, labels = imagenet
    assert (logits.argmax(1) == labels).mean() == pytest.approx(0.7506, abs=1e-4)
    plain = ace_ray.Identity().fit(logits, labels)
    assert plain.predict_confidence(logits).mean() == pytest.approx(0.678, abs=1e-3)
    assert ace_ray.nll(logits, labels) == pytest.approx(1.055, abs=1e-3)


def test_cifar_figures(cifar) -> None:
    logits, labels = cifar
    assert (logits.argmax(1) == labels).mean() == pytest.approx(0.9014, abs=1e-4)


@pytest.mark.parametrize("data", ["imagenet", "cifar"])
def test_temperature_agrees_with_scikit_learn(data: str, request: pytest.FixtureRequest) -> None:
    logits, labels = request.getfixturevalue(data)
    ours = ace_ray.TemperatureScaling().fit(logits, labels)
    theirs = SklearnTemperature().fit(logits.astype(np.float64), labels)
    assert 1 / ours.temperature_ == pytest.approx(theirs.beta_, rel=1e-4)
    # One network is underconfident, the other overconfident.
    assert (ours.temperature_ < 1) == (data == "imagenet")


@pytest.mark.parametrize("data", ["imagenet", "cifar"])
@pytest.mark.parametrize(
    "calibrator", [ace_ray.TemperatureScaling, ace_ray.Spline, ace_ray.Isotonic]
)
def test_calibration_lowers_held_out_ece(
    data: str, calibrator: type, request: pytest.FixtureRequest
) -> None:
    (z, y), (z_test, y_test) = halves(*request.getfixturevalue(data))
    correct = z_test.argmax(1) == y_test
    before = ace_ray.ece(ace_ray.Identity().fit(z, y).predict_confidence(z_test), correct)
    after = ace_ray.ece(calibrator().fit(z, y).predict_confidence(z_test), correct)
    assert after < before


def test_ace_on_real_natural_shift_lowers_ece(cifar) -> None:
    """Photographs of CIFAR classes from another source: ACE, without labels, helps."""
    logits, labels = cifar
    shifted = np.load(SHARED / "cifar10/natural_shift.npz")
    network = residual_network()
    network.load_state_dict(load_file(SHARED / "cifar10/resnet20.safetensors"))
    network.eval()
    x = torch.from_numpy(shifted["x"]).permute(0, 3, 1, 2) / 255
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    with torch.inference_mode():
        z = torch.cat([network((b - mean) / std) for b in x.split(500)]).numpy()
    correct = z.argmax(1) == shifted["y"]
    assert correct.mean() == pytest.approx(0.61, abs=0.02)
    alone = ace_ray.TemperatureScaling().fit(logits[5000:], labels[5000:])
    ace = ace_ray.ACE(ace_ray.TemperatureScaling(), 9).fit(logits[5000:], labels[5000:])
    assert ace.alpha(z) < 1
    before = ace_ray.ece(alone.predict_confidence(z), correct, 10)
    assert ace_ray.ece(ace.predict_confidence(z), correct, 10) < before
