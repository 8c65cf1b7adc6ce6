"""Any split, corrupted on the fly: `corrupt: {base: my-set/test, types: [...]}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field

from ace_ray.benchmarks.corruptions import CORRUPTIONS, PROTOCOL, SEVERITIES
from ace_ray.benchmarks.corruptions.textures import find_textures
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Corrupted, Split
from ace_ray.errors import ConfigError, nearest

Severities: TypeAlias = tuple[Annotated[int, Field(strict=True, ge=1, le=5)], ...]
_SIDE: Final = 224  # of the published ImageNet-C: short side 256, then the centre


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptOptions:
    """Which split, and how."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    base: str  # `<benchmark>/<split>`; the benchmark is one of this config, or a registered one
    types: tuple[str, ...] = PROTOCOL
    severities: Severities = SEVERITIES
    images: Annotated[int, Field(strict=True, ge=1)] | None = None  # the first; None: all
    constants: Literal["auto", "imagenet-c", "cifar10-c"] = "auto"
    side: Annotated[int, Field(strict=True, ge=32, le=2048)] | Literal["auto"] = "auto"
    textures: str | None = None  # folder with pictures of frost; never part of an identity


def check_types(name: str, types: Sequence[str], severities: Sequence[int]) -> None:
    """Raise unless every type is known and nothing repeats."""
    for field, values in (("corruptions", types), ("severities", severities)):
        if not values:
            raise ConfigError(f"benchmarks.{name}: {field} is empty; give at least one")
        if len(set(values)) < len(values):
            raise ConfigError(f"benchmarks.{name}: {field} repeats a value: {list(values)}")
    for value in types:
        if value not in CORRUPTIONS:
            raise ConfigError(
                f"benchmarks.{name}: unknown corruption {value!r}; {nearest(value, CORRUPTIONS)}"
            )


def splits_of(base: Split, benchmark: str, shifts: Sequence[Corrupted]) -> list[Split]:
    """Return one split per corruption; all share the samples of the base."""
    return [
        replace(
            base,
            benchmark=benchmark,
            name=f"{shift.name}/{shift.severity}",
            role="ood",
            corrupted=shift,
        )
        for shift in shifts
    ]


def _splits(request: Request) -> list[Split]:
    options: CorruptOptions = request.options
    check_types(request.name, options.types, options.severities)
    base = request.find(options.base)
    if base.corruption is not None:
        raise ConfigError(
            f"benchmarks.{request.name}: base {options.base!r} is corrupted already; "
            "choose a clean split"
        )
    if options.images is not None:
        if options.images > base.rows:
            raise ConfigError(
                f"benchmarks.{request.name}: images is {options.images:,}, but {options.base!r} "
                f"has {base.rows:,}"
            )
        samples = base.samples.slice(0, options.images)
        # The base's digest covers all of its images, and so more than these.
        base = replace(base, samples=samples, digest=samples.digest(base.digest))
    side = base.side if options.side == "auto" else options.side
    small = (side or _SIDE) < 64
    constants = options.constants
    if constants == "auto":
        constants = "cifar10-c" if small else "imagenet-c"
    textures = find_textures(options.textures)
    # Images of one native size stay as they are; others are cropped as the published set was.
    crop = None if side is not None and side == base.side else side or _SIDE
    shifts = [
        Corrupted(name, severity, constants, textures, crop)
        for name in options.types
        for severity in options.severities
    ]
    return splits_of(base, request.name, shifts)


register_benchmark(
    Benchmark(
        name="corrupt",
        about="any split of another benchmark, corrupted on the fly: 19 types x 5 severities",
        options=CorruptOptions,
        splits=_splits,
    )
)
