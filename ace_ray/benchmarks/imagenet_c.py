"""ImageNet-C as published: `<corruption>/<severity>/<wnid>/*.JPEG`, corrupted by its authors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from pydantic import ConfigDict

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import imagenet_classes
from ace_ray.benchmarks.corrupt import Severities, check_types
from ace_ray.benchmarks.corruptions import PROTOCOL, SEVERITIES
from ace_ray.benchmarks.halves import calibrates
from ace_ray.benchmarks.image_folder import Flag, Published, Seed, read_folder, root_of
from ace_ray.benchmarks.registry import Request
from ace_ray.benchmarks.split import Split
from ace_ray.errors import DataError

PUBLISHED: Final = Published(50_000, "https://zenodo.org/records/2235448", each=50)
# As the published archives unpack; "" for corruptions directly in the root.
_GROUPS: Final = ("", "blur", "digital", "extra", "noise", "weather")
_LISTINGS: Final = 8  # at a time: listing waits for the disk or the bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageNetCOptions:
    """Which corruptions, and of which images."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    corruptions: tuple[str, ...] = PROTOCOL
    severities: Severities = SEVERITIES
    half: Literal["test", "all"] = "test"  # never an image on which `imagenet` calibrates, or all
    seed: Seed = 1  # of the halves: that of `imagenet`
    partial: Flag = False  # fewer corruptions, or fewer than 50,000 images each, will do


class _Place(NamedTuple):
    corruption: str
    severity: int
    folder: str


def _places(request: Request, root: str) -> list[_Place]:
    """Return where each corruption and severity lies."""
    options: ImageNetCOptions = request.options
    wanted = [(name, severity) for name in options.corruptions for severity in options.severities]
    found = []
    for name, severity in wanted:
        path = f"{name}/{severity}"
        folders = (roots.below(root, group, path) for group in _GROUPS)
        folder = next((place for place in folders if roots.exists(place)), None)
        if folder is not None:
            found.append(_Place(name, severity, folder))
        elif not options.partial:
            raise DataError(
                f"{request.name}: no folder {path} in {root} (nor in {', '.join(_GROUPS[1:])}); "
                f"get it from {PUBLISHED.origin}, leave it out, or set `partial: true`"
            )
    if not found:
        raise DataError(f"{request.name}: no corruption in {root}; get them: {PUBLISHED.origin}")
    return found


def splits(request: Request) -> list[Split]:
    """Return a split per corruption and severity."""
    options: ImageNetCOptions = request.options
    check_types(request.name, options.corruptions, options.severities)
    places = _places(request, root_of(request, PUBLISHED.origin))
    classes = imagenet_classes()

    def listed(place: _Place) -> Split:
        images = read_folder(request.name, place.folder, classes)
        PUBLISHED.check(request.name, images, classes, partial=options.partial)
        if options.half == "test":
            calibration = calibrates([i.rpartition("/")[2] for i in images.ids], options.seed)
            images = images.where(not chosen for chosen in calibration)
        shift = (place.corruption, place.severity)
        name = f"{place.corruption}/{place.severity}"
        return images.split(request, name, "ood", classes, shift=shift)

    made: list[Split] = []
    with ThreadPoolExecutor(_LISTINGS) as pool:
        for split in pool.map(listed, places):
            made.append(_sharing(split, made))
    return made


def _sharing(split: Split, made: list[Split]) -> Split:
    """Return the split with the manifest of the first, if equal: 80 copies are 200 MB."""
    if made and split.samples.sample_id.equals(made[0].samples.sample_id):
        return replace(split, samples=made[0].samples)
    return split
