"""Corruptions against the `imagecorruptions` package: CPU time per image on one thread.

    python -m bench.corruptions [--images 2000] [--sample 100] [--only glass_blur]

Both work on the same drawn 32 x 32 images in this process, in turns, severity by severity; each
takes its best of three. The package (its numba code compiled beforehand) is called per image, on
a sample, with the only constants that it has, those of ImageNet-C. Ours corrupts all the images,
with the same constants and, for the record, with those of CIFAR-10-C.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ace_ray.benchmarks import glyphs
from ace_ray.benchmarks.corruptions import (
    CORRUPTIONS,
    PROTOCOL,
    SEVERITIES,
    ConstantSet,
    corrupt,
    find_textures,
)


class Times(NamedTuple):
    """Milliseconds of CPU per image, the mean over severities."""

    ours: float
    ours_cifar: float
    package: float


def best(functions: list[Callable[[], object]], repeats: int = 3) -> list[float]:
    """Return the least CPU seconds of each function, run in turns."""
    seconds = np.full((repeats, len(functions)), np.inf)
    for row in seconds:
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            row[i] = time.process_time() - start
    return [float(s) for s in seconds.min(axis=0)]


def measure(name: str, images: np.ndarray, sample: int) -> Times:
    """Time one type over all severities."""
    import imagecorruptions

    textures = find_textures()
    seeds = list(range(len(images)))

    def ours(severity: int, constant_set: ConstantSet) -> Callable[[], object]:
        return lambda: corrupt(
            images, name, severity, seeds, constant_set=constant_set, textures=textures
        )

    def package(severity: int) -> Callable[[], object]:
        return lambda: [
            imagecorruptions.corrupt(x, corruption_name=name, severity=severity)
            for x in images[:sample]
        ]

    imagecorruptions.corrupt(images[0], corruption_name=name, severity=1)  # numba compiles
    rows = []
    for s in SEVERITIES:
        same, cifar, theirs = best([ours(s, "imagenet-c"), ours(s, "cifar10-c"), package(s)])
        rows.append((same / len(images), cifar / len(images), theirs / sample))
    return Times(*(1000 * float(t) for t in np.mean(rows, axis=0)))


def uncompiled_glass_blur(images: np.ndarray) -> float:
    """Return the package's ms per image with its loop run by Python, as published."""
    import imagecorruptions
    from imagecorruptions import corruptions as module

    compiled = module._shuffle_pixels_njit_glass_blur
    module._shuffle_pixels_njit_glass_blur = lambda *given: compiled.py_func(*given[:4])
    try:
        seconds = [
            best([lambda s=s, x=x: imagecorruptions.corrupt(x, s, "glass_blur") for x in images])
            for s in SEVERITIES
        ]
    finally:
        module._shuffle_pixels_njit_glass_blur = compiled
    return 1000 * float(np.mean(seconds))


def show(name: str, t: Times) -> None:
    """Print a row."""
    print(
        f"{name:32}{t.ours:10.4f}{t.ours_cifar:10.4f}{t.package:10.4f}"
        f"{t.package / t.ours:9.1f}x{t.package / t.ours_cifar:9.1f}x",
        flush=True,
    )


def total(rows: dict[str, Times], names: list[str]) -> Times:
    """Add up some types."""
    return Times(*np.sum([rows[name] for name in names], axis=0).tolist())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--only", choices=CORRUPTIONS, help="eight times, and the median ratio")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import cv2

    cv2.setNumThreads(1)
    images = glyphs.draw(4, np.arange(options.images))
    print(
        f"{options.images:,} images of 32 x 32, package on {min(options.sample, options.images)}; "
        f"ms of CPU per image, mean over severities\n"
        f"{'':32}{'ours':>10}{'ours':>10}{'package':>10}{'ratio':>10}{'ratio':>10}\n"
        f"{'constants':32}{'imagenet':>10}{'cifar10':>10}{'imagenet':>10}{'same':>10}{'cifar10':>10}"
    )
    if options.only:
        found = [measure(options.only, images, min(options.sample, len(images))) for _ in range(8)]
        for t in found:
            show(options.only, t)
        ratio = np.median([t.package / t.ours for t in found])
        print(f"median ratio, same constants: {ratio:.1f}x")
        return
    rows = {}
    for name in CORRUPTIONS:
        rows[name] = measure(name, images, min(options.sample, options.images))
        show(name, rows[name])
    python = rows["glass_blur"]._replace(package=uncompiled_glass_blur(images[:5]))
    show("glass_blur, package sans numba", python)
    # The package reads a picture from disk for every frosted image, and so flatters any total.
    unfrosted = [name for name in PROTOCOL if name != "frost"]
    show(f"total of the {len(PROTOCOL)} of the protocol", total(rows, list(PROTOCOL)))
    show("the same without frost", total(rows, unfrosted))
    show(f"total of all {len(CORRUPTIONS)}", total(rows, list(CORRUPTIONS)))


if __name__ == "__main__":
    main()
