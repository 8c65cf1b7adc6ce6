"""Which models there are and what identifies them. Loads no torch until a model needs it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from ace_ray.benchmarks.glyphs import CLASSES, SIDE
from ace_ray.errors import IntegrityError, UsageError
from ace_ray.identity import digest, digest_lines
from ace_ray.models.config import ModelConfig

GLYPHS_MEAN: Final = (0.5, 0.5, 0.5)
GLYPHS_STD: Final = (0.25, 0.25, 0.25)
# How the numbers of stochastic passes are drawn. Raise it when the same seed gives other draws.
MC_CODE: Final = "mc-1"


class Preprocessing(NamedTuple):
    """What happens to an image before the network sees it, in the words of timm's data config."""

    input_size: tuple[int, int]  # height, width
    interpolation: str
    crop_pct: float
    crop_mode: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def as_plain(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self._asdict().items()}

    def geometry(self) -> tuple[Any, ...]:
        """Return what decides the pixels before normalising; borders have the mean's colour."""
        return (*self[:4], self.mean if self.crop_mode == "border" else None)


class Known(NamedTuple):
    """A model or architecture that comes with this package."""

    architecture: str
    about: str
    embedded: bool = False  # with its weights


GLYPHS: Final = "test_resnet.glyphs"
MODELS: Final[dict[str, Known]] = {
    GLYPHS: Known(
        "test_resnet",
        "timm test_resnet, 0.4 M parameters, trained on the glyphs' training split; embedded",
        embedded=True,
    ),
    **{
        f"cifar_resnet{depth}": Known(
            f"cifar_resnet{depth}", f"CIFAR ResNet-{depth}, 32x32; give a `checkpoint`"
        )
        for depth in (20, 32, 44, 56)
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with everything that a worker needs but the weights themselves."""

    config: ModelConfig
    architecture: str  # timm's name, without a tag; of an ensemble: "ensemble"
    arguments: dict[str, Any]  # of the architecture, beside the number of classes
    classes: int
    weights: str  # sha256
    preprocessing: Preprocessing  # of an ensemble: its first member's
    members: tuple[Model, ...] = ()

    @property
    def name(self) -> str:
        """The label."""
        return self.config.name

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a logit: no label, no path."""
        if self.members:
            return {"ensemble": [member.identity() for member in self.members]}
        found: dict[str, Any] = {
            "architecture": self.architecture,
            "arguments": self.arguments,
            "classes": self.classes,
            "weights": self.weights,
            "remap": self.config.remap,
            "preprocessing": self.preprocessing.as_plain(),
        }
        if self.config.mc:
            found["mc"] = {"passes": self.config.mc, "code": MC_CODE}
        return found


def describe_models() -> list[tuple[str, str]]:
    """Return name and description of the models that come with the package, then of all others."""
    own = [(name, known.about) for name, known in MODELS.items()]
    return [
        *own,
        ("<any timm name>", "timm's own weights, `hf-hub:` or `local-dir:`; see the docs"),
    ]


def resolve(config: ModelConfig) -> Model:
    """Return the model that an entry means, with the digest of its weights.

    Raises:
        UsageError: If there is no such model, or its weights cannot be had.
        DataError: If its checkpoint cannot be used.
    """
    return _resolve(config, _stamps(config))


def weights_of(model: Model) -> list[bytes]:
    """Return the weights as bytes, one entry per member of an ensemble, one for a single model.

    Raises:
        IntegrityError: If they changed since the model was resolved.
    """
    if model.members:
        return [data for member in model.members for data in weights_of(member)]
    if _is_embedded(model.config):
        data = _embedded_weights(model.config.source)
    else:
        from ace_ray.models.sources import read_weights

        data = read_weights(model.config)
    if digest(data) != model.weights:
        raise IntegrityError(
            f"{model.name}: the weights changed while the run was being prepared; run again"
        )
    return [data]


# Cached: planning and running ask several times. The stamps tell when a file has changed.
@cache
def _resolve(config: ModelConfig, stamps: tuple[Any, ...]) -> Model:  # noqa: ARG001
    if config.ensemble:
        return _ensemble(config)
    if _is_embedded(config):
        return _embedded(config)
    from ace_ray.models.sources import prepare

    found = prepare(config)
    return Model(
        config=config,
        architecture=found.architecture,
        arguments=found.arguments,
        classes=found.classes,
        weights=digest(found.data),
        preprocessing=found.preprocessing,
    )


def _stamps(config: ModelConfig) -> tuple[Any, ...]:
    """Return modification time and size of the local files that an entry names."""
    if config.ensemble:
        return tuple(_stamps(member) for member in config.ensemble)
    paths = [Path(config.checkpoint).expanduser()] if config.checkpoint else []
    if config.source.startswith("local-dir:"):
        folder = Path(config.source.removeprefix("local-dir:"))
        paths += sorted(folder.iterdir()) if folder.is_dir() else []
    stats = [path.stat() for path in paths if path.exists()]
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


def _is_embedded(config: ModelConfig) -> bool:
    known = MODELS.get(config.source)
    return known is not None and known.embedded and config.checkpoint is None


def _embedded(config: ModelConfig) -> Model:
    if config.num_classes not in (None, len(CLASSES)):
        raise UsageError(
            f"{config.name}: num_classes {config.num_classes}, but the weights have "
            f"{len(CLASSES)}; leave it out"
        )
    side = config.input_size or SIDE
    return Model(
        config=config,
        architecture=MODELS[config.source].architecture,
        arguments={"drop_rate": config.drop_rate} if config.drop_rate else {},
        classes=len(CLASSES),
        weights=digest(_embedded_weights(config.source)),
        preprocessing=Preprocessing(
            input_size=(side, side),
            interpolation=config.interpolation or "bilinear",
            crop_pct=config.crop_pct or 1.0,
            crop_mode=config.crop_mode or "center",
            mean=config.mean or GLYPHS_MEAN,
            std=config.std or GLYPHS_STD,
        ),
    )


def _embedded_weights(name: str) -> bytes:
    """Return the weights, checked against the digest that they were shipped with."""
    folder = files("ace_ray.models").joinpath("weights")
    data = folder.joinpath(f"{name}.safetensors").read_bytes()
    expected = json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))["sha256"]
    if digest(data) != expected:
        raise IntegrityError(
            f"weights of {name}: sha256 {digest(data)[:12]}..., expected {expected[:12]}...; "
            "the installation is damaged, install ace-ray again"
        )
    return data


def _ensemble(config: ModelConfig) -> Model:
    members = tuple(resolve(member) for member in config.ensemble)
    first = members[0]
    for i, member in enumerate(members):
        pair = f"{config.name}: {first.name} and {member.name}"
        if member.classes != first.classes:
            raise UsageError(
                f"{pair} have {first.classes} and {member.classes} classes; members need the same"
            )
        if member.preprocessing.geometry() != first.preprocessing.geometry():
            raise UsageError(
                f"{pair} want images of other size or crop ({first.preprocessing.geometry()[:4]}, "
                f"{member.preprocessing.geometry()[:4]}); set them alike on the members"
            )
        for other in members[:i]:
            if member.identity() == other.identity():
                raise UsageError(
                    f"{config.name}: {other.name} and {member.name} are the same network; keep one"
                )
    return Model(
        config=config,
        architecture="ensemble",
        arguments={},
        classes=first.classes,
        weights=digest_lines(member.weights for member in members),
        preprocessing=first.preprocessing,
        members=members,
    )
