"""Which models there are and what identifies them. Loads no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from ace_ray.benchmarks.glyphs import CLASSES, SIDE
from ace_ray.errors import IntegrityError, UsageError, nearest
from ace_ray.identity import digest

GLYPHS_MEAN: Final = (0.5, 0.5, 0.5)
GLYPHS_STD: Final = (0.25, 0.25, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A timm architecture with weights and preprocessing."""

    name: str  # timm's convention: architecture.tag
    architecture: str
    classes: int
    about: str
    side: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def preprocessing(self) -> dict[str, Any]:
        """Return what happens to an image before the network sees it."""
        return {"side": self.side, "mean": list(self.mean), "std": list(self.std)}

    def weights(self) -> bytes:
        """Return the safetensors bytes."""
        return files("ace_ray.models").joinpath(f"weights/{self.name}.safetensors").read_bytes()


MODELS: Final[dict[str, Model]] = {
    "test_resnet.glyphs": Model(
        name="test_resnet.glyphs",
        architecture="test_resnet",
        classes=len(CLASSES),
        about="timm test_resnet, 0.4 M parameters, trained on the glyphs' training split; embedded",
        side=SIDE,
        mean=GLYPHS_MEAN,
        std=GLYPHS_STD,
    ),
}


def find_model(name: str) -> Model:
    """Return a model by name."""
    if name not in MODELS:
        raise UsageError(f"unknown model {name!r}; {nearest(name, MODELS)}")
    return MODELS[name]


@cache
def weights_digest(name: str) -> str:
    """Return the sha256 of a model's weights, checked against the one that it was shipped with."""
    found = digest(find_model(name).weights())
    card = files("ace_ray.models").joinpath(f"weights/{name}.json").read_text(encoding="utf-8")
    expected = json.loads(card)["sha256"]
    if found != expected:
        raise IntegrityError(
            f"weights of {name}: sha256 {found[:12]}..., expected {expected[:12]}...; "
            "the installation is damaged, install ace-ray again"
        )
    return found
