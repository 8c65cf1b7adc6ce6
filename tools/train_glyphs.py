"""Train the network that ships with the embedded benchmark, and write its weights.

    python tools/train_glyphs.py --out ace_ray/models/weights/test_resnet.glyphs.safetensors

A plain recipe: cross-entropy, no augmentation, a fixed training split seen many times. The
network ends up overconfident for the reason real ones do (it fits its training set far better
than it generalises), not because of anything done to its logits.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np
import safetensors.torch
import timm
import torch

from ace_ray.benchmarks import glyphs
from ace_ray.models.registry import GLYPHS_MEAN, GLYPHS_STD


def split(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a split, normalised as the model registry states."""
    parts = [glyphs.draw(seed, np.arange(a, min(a + 500, size))) for a in range(0, size, 500)]
    images = torch.from_numpy(np.concatenate(parts)).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in (GLYPHS_MEAN, GLYPHS_STD))
    return (images - mean) / std, torch.from_numpy(glyphs.labels(seed, np.arange(size))).long()


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="test_resnet")
    parser.add_argument("--images", type=int, default=30_000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    x, y = split(glyphs.SEEDS["train"], args.images)
    held_x, held_y = split(glyphs.SEEDS["validation"], 4_000)
    model = timm.create_model(args.arch, num_classes=len(glyphs.CLASSES))
    optimiser = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    steps = args.epochs * (len(x) // args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.lr, total_steps=steps)
    order = torch.Generator().manual_seed(args.seed)
    start = time.monotonic()
    for epoch in range(args.epochs):
        model.train()
        for batch in torch.randperm(len(x), generator=order).split(args.batch):
            if len(batch) < args.batch:
                continue
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        model.eval()
        with torch.inference_mode():
            proba = torch.cat([model(b) for b in held_x.split(500)]).softmax(1)
        confidence, predicted = proba.max(1)
        accuracy = (predicted == held_y).float().mean()
        print(
            f"epoch {epoch + 1:2d}  train loss {loss:.3f}  held-out accuracy {accuracy:.3f}  "
            f"confidence {confidence.mean():.3f}  {time.monotonic() - start:.0f} s",
            flush=True,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(model.state_dict(), args.out)
    print(f"{args.out}  sha256 {hashlib.sha256(args.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
