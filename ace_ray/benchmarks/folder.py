"""One's own images: `{name: birds, type: folder, path: /data/birds}`.

The layout is `<path>/<split>/<class>/**/<image>`, or with `halves` one `<path>/<class>/**/<image>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import Classes, given_classes, imagenet_classes
from ace_ray.benchmarks.halves import calibrates
from ace_ray.benchmarks.image_folder import Flag, Images, Seed, read_folder, root_of
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Role, Split
from ace_ray.errors import ConfigError, DataError, nearest

_ORIGIN: Final = "your own images: <path>/<split>/<class>/<image>"
_Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Which sub-folder plays which role."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    calibration: _Name | None = "calibration"  # sub-folder; None: another benchmark calibrates
    test: _Name | None = "test"  # sub-folder of the same distribution; None: there is none
    ood: tuple[_Name, ...] | None = None  # sub-folders; None: all others
    halves: Flag = False  # the path is itself one folder of classes, to be cut in two
    seed: Seed = 1  # of the halves
    classes: Classes | None = None  # None: the folders' names, sorted; ImageNet's if all are wnids
    restrict_classes: Flag = False  # look only at the outputs whose class the split has


def class_names(
    request: Request, root: str, parts: Sequence[str], given: Classes | None
) -> tuple[str, ...]:
    """Return the names of the outputs: as given, ImageNet's, or all class folders sorted."""
    if given is not None:
        return given_classes(request.name, given, root)
    found = {name for part in parts for name in roots.folders(roots.below(root, part))}
    imagenet = imagenet_classes()
    if found and found <= set(imagenet):
        return imagenet
    if len(found) < 2:
        raise DataError(
            f"{request.name}: {len(found)} class folders in {root} ({', '.join(parts) or 'itself'})"
            "; expected <split>/<class>/<image> with two classes or more"
        )
    return tuple(sorted(found))


def subset_of(images: Images, classes: Sequence[str]) -> tuple[int, ...] | None:
    """Return the classes that the images have; None if these are all."""
    found = tuple(sorted(set(images.labels)))
    return found if len(found) < len(classes) else None


def in_halves(
    request: Request, images: Images, classes: tuple[str, ...], seed: int, prefix: str = ""
) -> list[Split]:
    """Return the calibration half and the test half of a folder."""
    calibration = calibrates(images.ids, seed)
    test = [not chosen for chosen in calibration]
    return [
        images.where(calibration).split(request, f"{prefix}calibration", "calibration", classes),
        images.where(test).split(request, f"{prefix}test", "id", classes),
    ]


def _parts(request: Request, root: str) -> dict[str, Role]:
    """Return the sub-folders and their roles."""
    options: FolderOptions = request.options
    found = roots.folders(root)
    roles: dict[str, Role] = {}
    if options.calibration is not None:
        roles[options.calibration] = "calibration"
    if options.test is not None:
        roles[options.test] = "id"
    ood = options.ood if options.ood is not None else [n for n in found if n not in roles]
    given = [*roles, *ood]
    if len(set(given)) < len(given) or options.calibration == options.test is not None:
        raise ConfigError(
            f"{request.name}: a sub-folder has one role, but `calibration`, `test` and `ood` are "
            f"{options.calibration!r}, {options.test!r} and {list(ood)}; name each folder once"
        )
    for name in given:
        if not roots.exists(roots.below(root, name)):
            raise DataError(
                f"{request.name}: no folder {name!r} in {root}; "
                f"{nearest(name, found) if found else 'it has no folders'}; "
                "set `calibration`, `test` or `ood`, or `halves: true` for one folder of classes"
            )
    return roles | dict.fromkeys(ood, "ood")


def folder_splits(request: Request) -> list[Split]:
    """Return a split per sub-folder, or two halves."""
    options: FolderOptions = request.options
    root = root_of(request, _ORIGIN)
    if options.halves:
        if options.ood is not None:
            raise ConfigError(f"{request.name}: with `halves` there is no `ood`; leave one out")
        splits_there = {options.calibration, options.test} & set(roots.folders(root))
        if options.classes is None and splits_there:
            raise ConfigError(
                f"{request.name}: {root} has a folder {min(map(str, splits_there))!r}, which looks "
                "like a split, not a class; leave `halves` out, or list `classes`"
            )
        classes = class_names(request, root, [""], options.classes)
        return in_halves(request, read_folder(request.name, root, classes), classes, options.seed)
    roles = _parts(request, root)
    classes = class_names(request, root, list(roles), options.classes)
    splits = []
    for name, role in roles.items():
        images = read_folder(request.name, roots.below(root, name), classes)
        # A calibrator is fitted to all outputs: the restriction is for what is measured.
        restricted = options.restrict_classes and role != "calibration"
        subset = subset_of(images, classes) if restricted else None
        splits.append(images.split(request, name, role, classes, subset=subset))
    return splits


register_benchmark(
    Benchmark(
        name="folder",
        about="your own images: <path>/<split>/<class>/<image>",
        options=FolderOptions,
        splits=folder_splits,
        folder="folder",
        origin=_ORIGIN,
    )
)
