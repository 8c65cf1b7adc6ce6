"""From images to logits: the network behind a registry entry. The only module that loads torch."""

from __future__ import annotations

from typing import Final

import numpy as np
import timm
import torch
from safetensors.torch import load as load_safetensors

from ace_ray.arrays import FloatArray, ImageArray
from ace_ray.models.registry import find_model

_BATCH: Final = 250


class Predictor:
    """A loaded network in evaluation mode on the best device of this worker."""

    def __init__(self, name: str) -> None:
        model = find_model(name)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        network = timm.create_model(model.architecture, num_classes=model.classes)
        network.load_state_dict(load_safetensors(model.weights()))
        self.network = network.eval().to(self.device)
        self.mean = torch.tensor(model.mean, device=self.device)[:, None, None]
        self.std = torch.tensor(model.std, device=self.device)[:, None, None]

    def __call__(self, images: ImageArray) -> FloatArray:
        """Return float32 logits (N, C) of (N, H, W, 3) uint8 images."""
        with torch.inference_mode():
            batches = [
                self._forward(torch.from_numpy(np.ascontiguousarray(images[at : at + _BATCH])))
                for at in range(0, len(images), _BATCH)
            ]
        return np.concatenate(batches)

    def _forward(self, batch: torch.Tensor) -> FloatArray:
        x = batch.to(self.device).permute(0, 3, 1, 2).float() / 255
        logits: torch.Tensor = self.network((x - self.mean) / self.std)
        return np.asarray(logits.float().cpu().numpy())
