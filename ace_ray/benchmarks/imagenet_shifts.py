"""Test sets that share ImageNet's 1,000 classes, or 200 of them: V2, Sketch, R and A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from pydantic import ConfigDict

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import imagenet_classes, imagenet_subset
from ace_ray.benchmarks.image_folder import Flag, Published, place_of, read_folder, root_of
from ace_ray.benchmarks.registry import Request
from ace_ray.benchmarks.split import Split
from ace_ray.errors import ConfigError, DataError

V2: Final = Published(10_000, "https://huggingface.co/datasets/vaishaal/ImageNetV2", each=10)
SKETCH: Final = Published(50_889, "https://github.com/HaohanWang/ImageNet-Sketch")
R: Final = Published(30_000, "https://github.com/hendrycks/imagenet-r (imagenet-r.tar)")
A: Final = Published(7_500, "https://github.com/hendrycks/natural-adv-examples (imagenet-a.tar)")

Variant: TypeAlias = Literal["matched-frequency", "threshold-0.7", "top-images"]
_FOLDERS: Final[dict[Variant, str]] = {
    "matched-frequency": "imagenetv2-matched-frequency-format-val",
    "threshold-0.7": "imagenetv2-threshold0.7-format-val",
    "top-images": "imagenetv2-top-images-format-val",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftOptions:
    """Where, and how much of it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    partial: Flag = False  # fewer images than published will do


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Options:
    """Which of the three sets."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    variants: tuple[Variant, ...] = get_args(Variant)
    partial: Flag = False  # fewer than 10,000 images each, or fewer sets, will do


def v2_splits(request: Request) -> list[Split]:
    """Return a split per variant; class folders are numbers, and read as such."""
    options: V2Options = request.options
    if not options.variants or len(set(options.variants)) < len(options.variants):
        raise ConfigError(
            f"{request.name}: variants: expected each once, got {list(options.variants)}"
        )
    root = root_of(request, V2.origin)
    numbers = [str(i) for i in range(len(imagenet_classes()))]
    splits = []
    for variant in options.variants:
        folder = roots.below(root, _FOLDERS[variant])
        if not roots.exists(folder):
            if options.partial:
                continue
            raise DataError(
                f"{request.name}: no folder {_FOLDERS[variant]} in {root}; get it from "
                f"{V2.origin}, or leave {variant!r} out of `variants`"
            )
        images = read_folder(request.name, folder, numbers)
        V2.check(request.name, images, numbers, partial=options.partial)
        splits.append(images.split(request, variant, "ood", imagenet_classes()))
    if not splits:
        raise DataError(f"{request.name}: no imagenetv2-* folder in {root}; get one: {V2.origin}")
    return splits


def _one(
    request: Request, published: Published, place: str, subset: tuple[int, ...] | None
) -> list[Split]:
    """Return the one split of a set whose folders are WordNet ids."""
    options: ShiftOptions = request.options
    folder = place_of(request, published.origin, [place])
    classes = imagenet_classes()
    kept = [wnid if subset is None or i in subset else "" for i, wnid in enumerate(classes)]
    images = read_folder(request.name, folder, kept)
    published.check(request.name, images, kept, partial=options.partial)
    return [images.split(request, "test", "ood", classes, subset=subset)]


def sketch_splits(request: Request) -> list[Split]:
    """Return ImageNet-Sketch."""
    return _one(request, SKETCH, "sketch", None)


def r_splits(request: Request) -> list[Split]:
    """Return ImageNet-R: labels among the 1,000 classes, of which it has 200."""
    return _one(request, R, "imagenet-r", imagenet_subset("r"))


def a_splits(request: Request) -> list[Split]:
    """Return ImageNet-A: labels among the 1,000 classes, of which it has 200."""
    return _one(request, A, "imagenet-a", imagenet_subset("a"))
