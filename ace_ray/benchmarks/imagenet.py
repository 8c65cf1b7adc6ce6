"""ImageNet: the validation images, half to calibrate on and half to test on; and its relatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict

from ace_ray.benchmarks import imagenet_c, imagenet_shifts, roots
from ace_ray.benchmarks.classes import imagenet_classes
from ace_ray.benchmarks.halves import calibrates, official_number
from ace_ray.benchmarks.image_folder import Flag, Images, Published, Seed, read_folder, root_of
from ace_ray.benchmarks.imagenet_labels import find_labels, read_labels
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Split
from ace_ray.errors import DataError

PUBLISHED: Final = Published(50_000, "https://image-net.org (ILSVRC2012_img_val.tar)", each=50)
_PLACES: Final = ("val", "validation", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageNetOptions:
    """Where, and which halves."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    labels: str | None = None  # file with the labels of a flat folder; None: by its usual name
    seed: Seed = 1  # of the halves
    partial: Flag = False  # fewer than 50,000 images will do


def _flat(request: Request, folder: str, root: str) -> Images:
    """Return the images of one folder without classes; their ids are as if it had them."""
    options: ImageNetOptions = request.options
    files = roots.files(folder, recursive=False)
    names = [file.path for file in files]
    sizes = [file.size for file in files]
    classes = imagenet_classes()
    labels = _labels_in_names(names)
    if options.labels is not None or labels is None:
        place = find_labels(request.name, [root, folder], options.labels)
        labels = read_labels(request.name, place, names)
    ids = [f"{classes[y]}/{name}" for name, y in zip(names, labels, strict=True)]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return Images(folder, ids, labels, sizes, names).take(order)


def _labels_in_names(names: list[str]) -> list[int] | None:
    """Return the labels of names such as `ILSVRC2012_val_00000001_n01751748.JPEG`."""
    index = {wnid: i for i, wnid in enumerate(imagenet_classes())}
    labels = [index.get(name.partition(".")[0].rpartition("_")[2]) for name in names]
    known = [label for label in labels if label is not None]
    return known if len(known) == len(names) else None


def _images(request: Request) -> Images:
    options: ImageNetOptions = request.options
    root = root_of(request, PUBLISHED.origin)
    classes = imagenet_classes()
    for place in _PLACES:
        folder = roots.below(root, place)
        if not roots.exists(folder):
            continue
        if not set(roots.folders(folder)).isdisjoint(classes):
            images = read_folder(request.name, folder, classes)
            PUBLISHED.check(request.name, images, classes, partial=options.partial)
            return images
        if roots.files(folder, recursive=False):
            images = _flat(request, folder, root)
            gap = _first_missing(images)
            PUBLISHED.check(request.name, images, classes, partial=options.partial, gap=gap)
            return images
    raise DataError(
        f"{request.name}: no images in {root}; expected val/<wnid>/*.JPEG or "
        f"val/ILSVRC2012_val_*.JPEG; get them from {PUBLISHED.origin}"
    )


def _first_missing(images: Images) -> str:
    there = {official_number(name) for name in images.sources}
    number = next((n for n in range(1, PUBLISHED.images + 1) if n not in there), None)
    return "" if number is None else f"ILSVRC2012_val_{number:08d}.JPEG is missing"


def _splits(request: Request) -> list[Split]:
    """Return the calibration half and the test half."""
    options: ImageNetOptions = request.options
    images, classes = _images(request), imagenet_classes()
    calibration = calibrates([name.rpartition("/")[2] for name in images.sources], options.seed)
    test = [not chosen for chosen in calibration]
    return [
        images.where(calibration).split(request, "calibration", "calibration", classes),
        images.where(test).split(request, "test", "id", classes),
    ]


register_benchmark(
    Benchmark(
        name="imagenet",
        about="ImageNet validation: 25,000 images to calibrate on, 25,000 to test on",
        options=ImageNetOptions,
        splits=_splits,
        folder="imagenet",
        origin=PUBLISHED.origin,
    )
)
register_benchmark(
    Benchmark(
        name="imagenet-v2",
        about="ImageNetV2: three new test sets, 10,000 images each",
        options=imagenet_shifts.V2Options,
        splits=imagenet_shifts.v2_splits,
        folder="imagenet-v2",
        origin=imagenet_shifts.V2.origin,
    )
)
register_benchmark(
    Benchmark(
        name="imagenet-sketch",
        about="ImageNet-Sketch: 50,889 drawings of the 1,000 classes",
        options=imagenet_shifts.ShiftOptions,
        splits=imagenet_shifts.sketch_splits,
        folder="imagenet-sketch",
        origin=imagenet_shifts.SKETCH.origin,
    )
)
register_benchmark(
    Benchmark(
        name="imagenet-r",
        about="ImageNet-R: 30,000 renditions of 200 of the classes",
        options=imagenet_shifts.ShiftOptions,
        splits=imagenet_shifts.r_splits,
        folder="imagenet-r",
        origin=imagenet_shifts.R.origin,
    )
)
register_benchmark(
    Benchmark(
        name="imagenet-a",
        about="ImageNet-A: 7,500 images of 200 of the classes that networks get wrong",
        options=imagenet_shifts.ShiftOptions,
        splits=imagenet_shifts.a_splits,
        folder="imagenet-a",
        origin=imagenet_shifts.A.origin,
    )
)
register_benchmark(
    Benchmark(
        name="imagenet-c",
        about="ImageNet-C: the test half under published corruptions x 5 severities",
        options=imagenet_c.ImageNetCOptions,
        splits=imagenet_c.splits,
        folder="imagenet-c",
        origin=imagenet_c.PUBLISHED.origin,
    )
)
