"""What the large runs cost: measured rates of this machine, and figures derived from them.

    python -m bench.scale [--gpu-tflops 35] [--gpu-share 0.3] [--gpu-hour 1.2]

Measured: the networks' images per second and operations per image on one core, decoding and
resizing on one core, bytes per row of a logit table. Assumed, for want of a GPU: its peak, the
share of it that a network reaches, its price. docs/scale.md has the formulas.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import timm
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from ace_ray.logits.images import load_images
from ace_ray.logits.imported import checked, import_split
from ace_ray.models.registry import Preprocessing
from ace_ray.store import Store
from bench.calibration import realistic_logits

MODELS = ("resnet152", "vit_small_patch32_224", "deit_small_patch16_224")
# Rows of the splits: two halves, V2 three times, Sketch, R, A, and 16 x 5 of ImageNet-C.
NATURAL = (25_000, 25_000, 10_000, 10_000, 10_000, 50_889, 30_000, 7_500)
CORRUPTED = (25_000,) * 80
CLASSES = 1000
PREPROCESSING = Preprocessing(
    input_size=(224, 224),
    interpolation="bicubic",
    crop_pct=0.875,
    crop_mode="center",
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)


class Rate(NamedTuple):
    """A network on one core."""

    images: float  # a second
    gflop: float  # an image


def network(name: str, batch: int = 8) -> Rate:
    """Measure a network; what its weights are makes no difference to that."""
    model = timm.create_model(name, pretrained=False).eval().to(memory_format=torch.channels_last)
    x = torch.rand(batch, 3, 224, 224).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        with FlopCounterMode(display=False) as counter:
            model(x)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            model(x)
            best = min(best, time.perf_counter() - start)
    return Rate(batch / best, counter.get_total_flops() / batch / 1e9)


def decoding(width: int, height: int, count: int = 64) -> tuple[float, float]:
    """Return images per second on one core, from JPEG to 224 pixels, and KB per image."""
    rng = np.random.default_rng(0)
    # Smooth at large, rough at small: about the bytes per pixel of a photograph.
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height))
    pixels = np.asarray(coarse, np.int16) + rng.normal(0, 9, (height, width, 3)).astype(np.int16)
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    items = [buffer.getvalue()] * count
    start = time.perf_counter()
    load_images(items, PREPROCESSING, None)
    return count / (time.perf_counter() - start), len(items[0]) / 1000


def bytes_per_row(rows: int = 5000) -> float:
    """Return what a row of a logit table takes in the store."""
    logits, labels = realistic_logits(rows, CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        table = checked("x", logits, labels, None, probabilities=False)
        import_split(
            Store.open(folder).create(), table, model="m", benchmark="b", split="s", role="id"
        )
        return sum(p.stat().st_size for p in Path(folder).rglob("part-*")) / rows


def main() -> None:
    """Print measured rates, then the derived figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu-tflops", type=float, default=35.0, help="peak; A10G: 35 at fp32")
    parser.add_argument("--gpu-share", type=float, default=0.3, help="of the peak that is reached")
    parser.add_argument("--gpu-hour", type=float, default=1.2, help="price of a GPU machine")
    parser.add_argument("--gpu-cores", type=int, default=8, help="cores beside each GPU")
    parser.add_argument("--models", type=int, default=1000, help="of the weekly run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rates = {name: network(name) for name in MODELS}
    full, small = decoding(500, 375), decoding(224, 224)
    row = bytes_per_row()
    print("measured, one core")
    for name, rate in rates.items():
        print(f"  {name:24} {rate.images:6.1f} images/s, {rate.gflop:5.1f} GFLOP an image, "
              f"{rate.images * rate.gflop:5.0f} GFLOP/s")  # fmt: skip
    for size, (speed, kilobytes) in (("500 x 375", full), ("224 x 224", small)):
        print(f"  JPEG {size} to 224       {speed:6.0f} images/s, {kilobytes:.0f} KB each")
    print(f"  a row of {CLASSES} logits       {row:6.0f} bytes in the store")

    natural, corrupted = sum(NATURAL), sum(CORRUPTED)
    images = natural + corrupted
    speed = given.gpu_tflops * 1000 * given.gpu_share
    gpu = {name: images * rate.gflop / speed / 3600 for name, rate in rates.items()}
    cores = (natural / full[0] + corrupted / small[0]) / 3600
    pixels = (natural * full[1] + corrupted * small[1]) / 1e6
    print(f"derived: {len(NATURAL) + len(CORRUPTED)} splits, {images:,} images a model")
    print(f"  GPU at {given.gpu_share:.0%} of {given.gpu_tflops:g} TFLOP/s (assumed)")
    hours = []
    for name, own in gpu.items():
        decode = cores / given.gpu_cores
        hours.append(max(own, decode))
        bound = "GPU" if own > decode else "decoding"
        print(f"  {name:24} {own:6.2f} GPU hours, {cores:5.2f} core hours of decoding, "
              f"{hours[-1]:5.2f} h on a machine with {given.gpu_cores} cores: {bound}")  # fmt: skip
    stored = images * row / 1e9
    total, mean = sum(hours), float(np.mean(hours))
    print(f"  {len(MODELS)} models: {total:.1f} h of GPU machines, {total * given.gpu_hour:.0f} $, "
          f"{pixels:.0f} GB of images read a model, {stored:.1f} GB of logits a model")  # fmt: skip
    fleet = given.models * mean / (7 * 24)
    print(f"  {given.models:,} models a week: {given.models * mean:,.0f} h, "
          f"{given.models * mean * given.gpu_hour:,.0f} $, {fleet:.1f} machines day and night, "
          f"{given.models * stored / 1000:.1f} TB of logits, "
          f"{given.models * pixels * 1e9 / (7 * 86400) / 1e6:.0f} MB/s of images")  # fmt: skip


if __name__ == "__main__":
    main()
