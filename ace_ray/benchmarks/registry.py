"""What a benchmark is, and the registry by name.

A benchmark lists its splits. A split is a manifest: one row per sample with an id, a label and a
source, where the source is all that a worker needs to produce the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field

from ace_ray.arrays import ImageArray, IntArray
from ace_ray.benchmarks import glyphs
from ace_ray.benchmarks.corruptions import CORRUPTIONS, ENGINE, SEVERITIES, constants
from ace_ray.errors import ConfigError, nearest
from ace_ray.identity import digest_lines

Size: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Role: TypeAlias = Literal["calibration", "id", "ood"]


class Corrupted(NamedTuple):
    """How a split's images are corrupted after loading."""

    name: str
    severity: int

    def identity(self) -> dict[str, Any]:
        """Return what changes the corrupted pixels."""
        return {
            "name": self.name,
            "severity": self.severity,
            "constants": list(constants(self.name, self.severity)),
            "engine": ENGINE,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A named set of samples with one role."""

    benchmark: str
    name: str  # corruption splits: `<corruption>/<severity>`
    role: Role
    rows: int
    sample_id: tuple[str, ...]
    label: IntArray
    source: tuple[str, ...]
    corrupted: Corrupted | None
    digest: str  # of ids, labels, and the content behind the sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A family of splits over the same classes."""

    name: str
    about: str
    classes: tuple[str, ...]
    options: type[Any]  # a frozen dataclass: what a config may set
    splits: Callable[[Any], list[Split]]
    load: Callable[[Sequence[str]], ImageArray]  # sources -> (N, H, W, 3) uint8


@dataclass(frozen=True, slots=True, kw_only=True)
class GlyphsOptions:
    """Sizes and corruptions of the embedded benchmark."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    calibration: Size = 5_000
    test: Size = 5_000
    corrupted: Size = 2_000  # the first of the test images
    corruptions: tuple[str, ...] = tuple(CORRUPTIONS)
    severities: tuple[Annotated[int, Field(strict=True, ge=1, le=5)], ...] = SEVERITIES


def _glyph_split(part: str, size: int, role: Role, corrupted: Corrupted | None = None) -> Split:
    ids = tuple(f"{part}/{i:06d}" for i in range(size))
    label = glyphs.labels(glyphs.SEEDS[part], np.arange(size))
    rows = (f"{i} {y}" for i, y in zip(ids, label.tolist(), strict=True))
    return Split(
        benchmark="glyphs",
        name=f"{corrupted.name}/{corrupted.severity}" if corrupted else part,
        role=role,
        rows=size,
        sample_id=ids,
        label=label,
        source=ids,
        corrupted=corrupted,
        digest=digest_lines([glyphs.RENDERER, *rows]),
    )


def _glyph_splits(options: GlyphsOptions) -> list[Split]:
    if options.corrupted > options.test:
        raise ConfigError(
            f"benchmarks.glyphs: corrupted ({options.corrupted}) is larger than test "
            f"({options.test}), whose first images it corrupts"
        )
    for field, values in (("corruptions", options.corruptions), ("severities", options.severities)):
        if len(set(values)) < len(values):
            raise ConfigError(f"benchmarks.glyphs: {field} repeats a value: {list(values)}")
    for name in options.corruptions:
        if name not in CORRUPTIONS:
            raise ConfigError(
                f"benchmarks.glyphs: unknown corruption {name!r}; {nearest(name, CORRUPTIONS)}"
            )
    shifts = [Corrupted(name, s) for name in options.corruptions for s in options.severities]
    return [
        _glyph_split("calibration", options.calibration, "calibration"),
        _glyph_split("test", options.test, "id"),
        *(_glyph_split("test", options.corrupted, "ood", shift) for shift in shifts),
    ]


# Every corruption split reads the same first test images: draw a shard once per worker.
@lru_cache(maxsize=32)
def _drawn(sources: tuple[str, ...]) -> ImageArray:
    parts = [source.split("/") for source in sources]
    (part,) = {part for part, _ in parts}
    return glyphs.draw(glyphs.SEEDS[part], np.array([int(i) for _, i in parts]))


BENCHMARKS: Final[dict[str, Benchmark]] = {
    "glyphs": Benchmark(
        name="glyphs",
        about="36 drawn characters, 32x32, 16 corruptions x 5 severities; embedded, no download",
        classes=tuple(glyphs.CLASSES),
        options=GlyphsOptions,
        splits=_glyph_splits,
        load=lambda sources: _drawn(tuple(sources)),
    ),
}
