"""Small image folders and checkpoints for tests of the whole extraction."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy import ndimage

import ace_ray.models.cifar_resnet  # noqa: F401  (registers the architecture)

CLASSES = ("ash", "beech", "cedar")


def picture(seed: int, side: int = 40) -> Image.Image:
    """Coloured clouds: no two alike, and compression keeps them."""
    clouds = np.random.default_rng(seed).normal(size=(side, side + 4, 3))
    clouds = ndimage.gaussian_filter(clouds, (3, 3, 0)) * 400 + 128
    return Image.fromarray(np.clip(clouds, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def grow(root: Path, **splits: int) -> Path:
    """Write `<root>/<split>/<class>/<number>.jpg`, so many images a split."""
    seed = 0
    for split, count in splits.items():
        for i in range(count):
            seed += 1
            path = root / split / CLASSES[i % len(CLASSES)] / f"{i:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(picture(seed)))
    return root


def checkpoint(path: Path, seed: int, classes: int = len(CLASSES)) -> Path:
    """Save a CIFAR ResNet-20 with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = timm.create_model("cifar_resnet20", num_classes=classes)
    save_file(network.state_dict(), path)
    return path
