"""The embedded benchmark: drawn characters, clean and corrupted, no download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field

from ace_ray.arrays import ImageArray
from ace_ray.benchmarks import glyphs
from ace_ray.benchmarks.corrupt import Severities, check_types, splits_of
from ace_ray.benchmarks.corruptions import PROTOCOL, SEVERITIES
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Corrupted, Item, Role, Samples, Split
from ace_ray.errors import ConfigError

Size: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlyphsOptions:
    """Sizes and corruptions of the embedded benchmark."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    calibration: Size = 5_000
    test: Size = 5_000
    corrupted: Size = 2_000  # the first of the test images
    corruptions: tuple[str, ...] = PROTOCOL
    severities: Severities = SEVERITIES


# Every corruption split reads the same first test images: draw a shard once per worker.
@lru_cache(maxsize=32)
def _drawn(sources: tuple[str, ...]) -> ImageArray:
    parts = [source.split("/") for source in sources]
    (part,) = {part for part, _ in parts}
    return glyphs.draw(glyphs.SEEDS[part], np.array([int(i) for _, i in parts]))


def read_glyphs(root: str, sources: Sequence[str]) -> list[Item]:  # noqa: ARG001
    """Draw images; there is no root."""
    return list(_drawn(tuple(sources)))


def _split(request: Request, part: str, size: int, role: Role) -> Split:
    ids = [f"{part}/{i:06d}" for i in range(size)]
    samples = Samples.of(ids, glyphs.labels(glyphs.SEEDS[part], np.arange(size)), ids)
    return Split(
        benchmark=request.name,
        name=part,
        role=role,
        samples=samples,
        classes=tuple(glyphs.CLASSES),
        digest=samples.digest(glyphs.RENDERER),
        reader=read_glyphs,
        side=glyphs.SIDE,
        drawn=True,
    )


def glyph_splits(request: Request) -> list[Split]:
    """Return calibration, test, and the first test images under every corruption."""
    options: GlyphsOptions = request.options
    if options.corrupted > options.test:
        raise ConfigError(
            f"benchmarks.glyphs: corrupted ({options.corrupted}) is larger than test "
            f"({options.test}), whose first images it corrupts"
        )
    check_types("glyphs", options.corruptions, options.severities)
    base = _split(request, "test", options.corrupted, "id")
    shifts = [Corrupted(name, s) for name in options.corruptions for s in options.severities]
    return [
        _split(request, "calibration", options.calibration, "calibration"),
        _split(request, "test", options.test, "id"),
        *splits_of(base, request.name, shifts),
    ]


register_benchmark(
    Benchmark(
        name="glyphs",
        about="36 drawn characters, 32x32, 16 corruptions x 5 severities; embedded, no download",
        options=GlyphsOptions,
        splits=glyph_splits,
    )
)
