"""The Ray Data shell: one pipeline per model over the shards of all its splits.

A row of the dataset is a shard (a run of samples of one split), not a sample: Ray Data may split
and merge blocks but never a row, so a part holds the same samples in the same batches whatever
the number of workers, and a finished part is never computed again.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from ace_ray.benchmarks.corruptions import corrupt
from ace_ray.benchmarks.registry import BENCHMARKS
from ace_ray.errors import IntegrityError
from ace_ray.identity import sample_seed
from ace_ray.logits.table import Part, decode_part, describe_part, encode_part
from ace_ray.logits.units import Unit
from ace_ray.progress import Progress
from ace_ray.session import unwrapped
from ace_ray.store import Store

SHARD_ROWS: Final = 500


class Shard(NamedTuple):
    """A run of consecutive samples of a unit, which becomes one part."""

    unit: Unit
    part: str
    start: int
    stop: int

    def as_row(self) -> dict[str, Any]:
        """Return everything a worker needs, as one row of plain data."""
        split = self.unit.split
        rows = slice(self.start, self.stop)
        return {
            "key": self.unit.key,
            "path": f"{self.unit.staged}/{self.part}",
            "part": self.part,
            "benchmark": split.benchmark,
            "split": split.name,
            "samples": split.digest,
            "corruption": split.corrupted.name if split.corrupted else "",
            "severity": split.corrupted.severity if split.corrupted else 0,
            "sample_id": list(split.sample_id[rows]),
            "label": split.label[rows].tolist(),
            "source": list(split.source[rows]),
        }


def shards_of(unit: Unit) -> list[Shard]:
    """Cut a unit into shards of `SHARD_ROWS` samples."""
    starts = range(0, unit.split.rows, SHARD_ROWS)
    return [
        Shard(
            unit,
            f"part-{unit.key[:12]}-{i:05d}.parquet",
            start,
            min(start + SHARD_ROWS, unit.split.rows),
        )
        for i, start in enumerate(starts)
    ]


def load_images(row: dict[str, Any]) -> dict[str, Any]:
    """Add a shard's images: loaded or drawn, then corrupted. Runs in CPU tasks."""
    images = BENCHMARKS[row["benchmark"]].load(list(row["source"]))
    if row["corruption"]:
        name, severity = str(row["corruption"]), int(row["severity"])
        seeds = [sample_seed(str(i), name, severity) for i in row["sample_id"]]
        images = corrupt(images, name, severity, seeds)
    return {**{k: v for k, v in row.items() if k != "source"}, "images": images}


class PredictShard:
    """Predict a shard and write its part to staging. Runs in actors that keep the model loaded."""

    def __init__(self, model: str, weights: str, store_uri: str) -> None:
        import torch

        from ace_ray.models.predictor import Predictor

        # One thread per actor: actors are the unit of parallelism, and results do not depend
        # on how many cores a machine has.
        torch.set_num_threads(1)
        self.model, self.weights = model, weights
        self.predict = Predictor(model)
        self.store = Store.open(store_uri)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the receipt of the written part."""
        benchmark = str(row["benchmark"])
        metadata = {
            "key": str(row["key"]),
            "model": self.model,
            "weights": self.weights,
            "benchmark": benchmark,
            "split": str(row["split"]),
            "samples": str(row["samples"]),
            "classes": list(BENCHMARKS[benchmark].classes),
        }
        ids = [str(i) for i in row["sample_id"]]
        data = encode_part(ids, np.asarray(row["label"]), self.predict(row["images"]), metadata)
        self.store.write(str(row["path"]), data)
        return {"key": str(row["key"]), **describe_part(row["part"], len(ids), data)._asdict()}


def _staged_parts(store: Store, shards: Sequence[Shard]) -> dict[str, Part]:
    """Return the parts that an interrupted run left complete in staging."""
    found: dict[str, Part] = {}
    for shard in shards:
        path = f"{shard.unit.staged}/{shard.part}"
        if store.has(path):
            data = store.read(path)
            rows = pq.read_metadata(io.BytesIO(data)).num_rows
            found[shard.part] = describe_part(shard.part, rows, data)
    return found


def commit(store: Store, unit: Unit, parts: list[Part]) -> None:
    """Check that staged parts hold exactly the unit's samples, then publish them."""
    parts = sorted(parts)
    ids: list[str] = []
    for part in parts:
        ids += decode_part(store, f"{unit.staged}/{part.name}", ["sample_id"])[0].to_pylist()
    if len(ids) != unit.split.rows or set(ids) != set(unit.split.sample_id):
        raise IntegrityError(
            f"{unit.model} on {unit.split.benchmark}:{unit.split.name}: staged {len(ids):,} rows "
            f"({len(set(ids)):,} ids), expected {unit.split.rows:,}; nothing was committed, "
            "run again"
        )
    marker = {
        **unit.marker(),
        "rows": len(ids),
        "parts": [part._asdict() for part in parts],
    }
    store.publish(unit.staged, unit.folder, [part.name for part in parts], marker)


def extract(store: Store, units: Sequence[Unit], progress: Progress) -> None:
    """Extract and commit the units, model by model; a unit is committed as soon as it is whole."""
    for model in dict.fromkeys(unit.model for unit in units):
        _extract_model(store, [unit for unit in units if unit.model == model], progress)


def _extract_model(store: Store, units: list[Unit], progress: Progress) -> None:
    by_key = {unit.key: unit for unit in units}
    parts: dict[str, dict[str, Part]] = {}
    todo: list[Shard] = []

    def received(key: str, part: Part) -> None:
        parts[key][part.name] = part
        progress.advance(part.rows)
        if len(parts[key]) == len(shards_of(by_key[key])):
            commit(store, by_key[key], list(parts[key].values()))

    for unit in units:
        shards = shards_of(unit)
        staged = _staged_parts(store, shards)
        parts[unit.key] = {}
        todo += [shard for shard in shards if shard.part not in staged]
        for part in staged.values():
            received(unit.key, part)
    if todo:
        weights = units[0].identity["weights"]
        for receipt in _receipts(store, units[0].model, weights, todo):
            key = receipt.pop("key")
            received(key, Part(**receipt))


def _receipts(
    store: Store, model: str, weights: str, shards: list[Shard]
) -> Iterator[dict[str, Any]]:
    """Run the pipeline; yield one receipt per part, in the order in which they finish."""
    import ray
    import ray.data

    # Importing ray.data configures its loggers; quieten them after that.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    cluster = ray.cluster_resources()
    workers = max(1, int(cluster.get("GPU", 0) or cluster.get("CPU", 1)))
    with unwrapped():
        results = (
            ray.data.from_items([s.as_row() for s in shards], override_num_blocks=len(shards))
            # Half a CPU each: with whole ones, actors can claim every CPU and starve the loaders.
            .map(load_images, num_cpus=0.5)
            .map(
                PredictShard,
                fn_constructor_kwargs={"model": model, "weights": weights, "store_uri": store.uri},
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
                num_cpus=0.5,
                num_gpus=1 if cluster.get("GPU") else 0,
            )
        )
        for batch in results.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from batch.to_pylist()
