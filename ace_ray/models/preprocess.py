"""From an image of any size to the network's input: timm's own evaluation transform, as uint8.

Normalising comes later, on the device, so that a quarter of the bytes travel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from timm.data import create_transform

from ace_ray.models.registry import Preprocessing


class Preprocess:
    """Resize and crop as timm does for evaluation."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self._transform = create_transform(
            input_size=(3, *preprocessing.input_size),
            is_training=False,
            use_prefetcher=True,  # leaves out scaling to [0, 1] and normalising
            interpolation=preprocessing.interpolation,
            mean=preprocessing.mean,  # the colour of borders
            std=preprocessing.std,
            crop_pct=preprocessing.crop_pct,
            crop_mode=preprocessing.crop_mode,
        )

    def is_identity(self, height: int, width: int) -> bool:
        """Return whether images of this size pass unchanged."""
        return self.preprocessing.crop_pct == 1 and self.preprocessing.input_size == (height, width)

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return (H, W, 3) uint8 at the network's input size."""
        pixels = self._transform(image.convert("RGB"))
        return np.ascontiguousarray(pixels.numpy().transpose(1, 2, 0))
