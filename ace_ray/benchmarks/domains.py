"""Domain generalisation: a folder per domain, each with class folders (Office-Home, PACS, ...)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import Classes
from ace_ray.benchmarks.folder import class_names, in_halves
from ace_ray.benchmarks.image_folder import Seed, read_folder, root_of
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Split
from ace_ray.errors import ConfigError, nearest

_ORIGIN: Final = (
    "https://www.hemanthdv.org/officeHomeDataset.html, https://ai.bu.edu/M3SDA (DomainNet) or "
    "https://github.com/facebookresearch/DomainBed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainsOptions:
    """Which domains are known, and which are new."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    calibration: tuple[str, ...]  # source domains, each cut into two halves
    ood: tuple[str, ...] | None = None  # target domains; None: all others
    seed: Seed = 1  # of the halves
    classes: Classes | None = None  # None: all class folders, sorted


def _splits(request: Request) -> list[Split]:
    """Return two halves per source domain, and a split per target domain."""
    options: DomainsOptions = request.options
    root = root_of(request, _ORIGIN)
    found = roots.folders(root)
    ood = options.ood
    if ood is None:
        ood = tuple(name for name in found if name not in options.calibration)
    domains = [*options.calibration, *ood]
    if not options.calibration:
        raise ConfigError(f"{request.name}: calibration is empty; {nearest('', found)}")
    if len(set(domains)) < len(domains):
        raise ConfigError(f"{request.name}: a domain has one role, but got {domains}")
    for name in domains:
        if name not in found:
            raise ConfigError(
                f"{request.name}: no domain {name!r} in {root}; {nearest(name, found)}"
            )
    classes = class_names(request, root, domains, options.classes)
    splits: list[Split] = []
    for name in domains:
        images = read_folder(request.name, roots.below(root, name), classes)
        if name in options.calibration:
            splits += in_halves(request, images, classes, options.seed, f"{name}/")
        else:
            splits.append(images.split(request, name, "ood", classes))
    return splits


register_benchmark(
    Benchmark(
        name="domains",
        about="domain generalisation: <path>/<domain>/<class>/<image>, one or more source domains",
        options=DomainsOptions,
        splits=_splits,
        folder="domains",
        origin=_ORIGIN,
    )
)
