"""Extraction through Ray Data against a plain loop over the same images, side by side.

    make bench

Prints ratios: what they compare ran one after the other in this process and on this machine.
The pipeline pays its start-up once; the marginal ratio leaves it out by timing two sizes.
"""

from __future__ import annotations

import tempfile
import time

import torch

from ace_ray.benchmarks.corruptions import corrupt
from ace_ray.benchmarks.registry import BENCHMARKS
from ace_ray.config import load_plain
from ace_ray.identity import sample_seed
from ace_ray.logits.extract import SHARD_ROWS, extract
from ace_ray.logits.units import Unit, plan_units
from ace_ray.models.predictor import Predictor
from ace_ray.progress import Progress
from ace_ray.session import ray_session
from ace_ray.store import Store


def units(images: int) -> list[Unit]:
    """Return units of the embedded benchmark with this many corrupted images in 16 splits."""
    glyphs = {
        "name": "glyphs",
        "calibration": SHARD_ROWS,
        "test": images // 16,
        "corrupted": images // 16,
        "severities": [3],
    }
    found = plan_units(load_plain({"benchmarks": [glyphs]}, "bench"), Store.open("nowhere"))
    return [unit for unit in found if unit.split.role == "ood"]


def pipeline(todo: list[Unit]) -> float:
    """Return the seconds that the pipeline takes, Parquet committed."""
    rows = sum(unit.split.rows for unit in todo)
    with tempfile.TemporaryDirectory() as folder, Progress("pipeline", rows, "images") as progress:
        start = time.perf_counter()
        extract(Store.open(folder).create(), todo, progress)
        return time.perf_counter() - start


def plain_loop(todo: list[Unit]) -> float:
    """Return the seconds of a loop in this process with all threads: load, corrupt, predict."""
    predict = Predictor(todo[0].model)
    start = time.perf_counter()
    for unit in todo:
        shift = unit.split.corrupted
        assert shift is not None
        for at in range(0, unit.split.rows, SHARD_ROWS):
            ids = unit.split.sample_id[at : at + SHARD_ROWS]
            images = BENCHMARKS["glyphs"].load(unit.split.source[at : at + SHARD_ROWS])
            seeds = [sample_seed(i, *shift) for i in ids]
            predict(corrupt(images, *shift, seeds))
    return time.perf_counter() - start


def main() -> None:
    """Measure two sizes and print the ratios."""
    small, large = units(16_000), units(48_000)
    with ray_session():
        pipeline(units(1_600))  # Warm up worker processes.
        times = {n: (pipeline(u), plain_loop(u)) for n, u in (("small", small), ("large", large))}
    whole = times["large"][1] / times["large"][0]
    marginal = (times["large"][1] - times["small"][1]) / (times["large"][0] - times["small"][0])
    print(f"\n{torch.get_num_threads()} threads for the plain loop; rate of the pipeline / loop")
    print(f"48,000 images, start-up included   {whole:.2f}")
    print(f"marginal (48,000 minus 16,000)     {marginal:.2f}")


if __name__ == "__main__":
    main()
