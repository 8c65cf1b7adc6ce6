"""CIFAR ResNet-20/32/44/56 (He et al. 2015, Sec. 4.2), registered with timm as `cifar_resnet20`...

Three stages of basic blocks, widths 16/32/64, option-A shortcuts: where the size changes, every
second pixel with zeros for the new channels, so that a shortcut has no weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, register_model
from torch import nn
from torch.nn import functional

DEPTHS: Final = (20, 32, 44, 56)
WIDTHS: Final = (16, 32, 64)

# The name is timm's: `register_model` looks the settings up here.
default_cfgs: Final = {
    f"cifar_resnet{depth}": {
        "num_classes": 10,
        "input_size": (3, 32, 32),
        "pool_size": (8, 8),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "conv1",
        "classifier": "linear",
    }
    for depth in DEPTHS
}


class BasicBlock(nn.Module):  # type: ignore[misc]
    """Two 3x3 convolutions around a shortcut without weights."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.padding = stride, (width - width_in) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's activations."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.padding:
            x = x[:, :, :: self.stride, :: self.stride]
            x = functional.pad(x, (0, 0, 0, 0, self.padding, self.padding))
        return functional.relu(y + x)


class CifarResNet(nn.Module):  # type: ignore[misc]
    """The network, with timm's interface."""

    def __init__(
        self, depth: int, num_classes: int = 10, in_chans: int = 3, drop_rate: float = 0.0
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = WIDTHS[-1]
        self.conv1 = nn.Conv2d(in_chans, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        blocks = (depth - 2) // 6
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], blocks, stride=1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], blocks, stride=2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], blocks, stride=2)
        self.dropout = nn.Dropout(drop_rate)
        self.linear = nn.Linear(self.num_features, num_classes)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last stage's activations (N, 64, H/4, W/4)."""
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(x)))

    def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        """Return logits (N, C), or with `pre_logits` the pooled features (N, 64)."""
        x = self.dropout(x.mean((2, 3)))
        return x if pre_logits else self.linear(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (N, C)."""
        return self.forward_head(self.forward_features(x))

    def get_classifier(self) -> nn.Module:
        """Return the last layer."""
        return self.linear

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer; 0 classes leave the features."""
        self.num_classes = num_classes
        self.linear = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()


def _stage(width_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(width_in, width, stride)
    return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))


def _entrypoint(depth: int) -> Callable[..., nn.Module]:
    """Return the function that timm calls to make the network of a depth."""

    def make(pretrained: bool = False, **settings: Any) -> nn.Module:
        return build_model_with_cfg(
            CifarResNet, f"cifar_resnet{depth}", pretrained, depth=depth, **settings
        )

    make.__name__ = make.__qualname__ = f"cifar_resnet{depth}"
    return make


for _depth in DEPTHS:
    register_model(_entrypoint(_depth))
