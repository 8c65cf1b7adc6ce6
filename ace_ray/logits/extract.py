"""The Ray Data shell: one pipeline per model over the shards of all its splits.

CPU tasks read, decode, corrupt and resize; actors that keep the network loaded predict and write
the part. A finished part is never computed again, and a split is committed as soon as it is whole.
"""

from __future__ import annotations

import ctypes
import io
import logging
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from ace_ray.config import ExtractionConfig, ResourcesConfig
from ace_ray.counters import count
from ace_ray.feasible import need_node
from ace_ray.identity import sample_seed
from ace_ray.logits.commit import TooManyBad, commit
from ace_ray.logits.shards import Shard, load_shard, make_part, reader_name, shards_of
from ace_ray.logits.table import Part, describe_part
from ace_ray.logits.units import Unit
from ace_ray.models.registry import Model, weights_of
from ace_ray.progress import Progress
from ace_ray.session import unwrapped
from ace_ray.store import Store

if TYPE_CHECKING:
    import ray

# Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def _keep_freed_memory() -> None:
    """Let the process keep the memory of freed activations for the next batch.

    By default glibc gives large blocks back, and every batch pays a page fault for each of their
    pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class PredictShard:
    """Predict a shard and write its part to staging. Runs in actors that keep the model loaded."""

    def __init__(
        self, model: Model, weights: ray.ObjectRef, extraction: ExtractionConfig, store_uri: str
    ) -> None:
        import ray
        import torch
        from ray.util.metrics import Counter

        from ace_ray.models.predictor import Predictor

        # One thread per actor: actors are the unit of parallelism, and results do not depend
        # on how many cores a machine has.
        torch.set_num_threads(1)
        _keep_freed_memory()
        self.model, self.dtype = model, extraction.dtype
        self.predict = Predictor(
            model,
            ray.get(weights),
            precision=extraction.precision,
            features=extraction.features,
            batch_size=extraction.batch_size,
            compile=extraction.compile,
        )
        self.store = Store.open(store_uri)
        tags = {"model": model.name}
        self.images = Counter("ace_ray_images", "Images predicted", ("model",))
        self.quarantined = Counter("ace_ray_quarantined", "Images unusable", ("model",))
        self.images.set_default_tags(tags)
        self.quarantined.set_default_tags(tags)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the receipt of the written part."""
        found = self.predict(row["images"], sample_seed(row["key"], row["part"], 0))
        facts = {
            "model": self.model.name,
            "weights": self.model.weights,
            "preprocessing": self.model.preprocessing.as_plain(),
            "batch_size": self.predict.batch_size,
        }
        data = make_part(row, found.logits.astype(self.dtype), found.features, facts)
        self.store.write(row["path"], data)
        rows, bad = len(row["sample_id"]), len(row["bad_id"])
        for counter, amount in ((self.images, rows), (self.quarantined, bad)):
            if amount:  # Ray refuses to count nothing.
                counter.inc(amount)
        part = describe_part(row["part"], rows, data)
        return {"key": row["key"], "bad": bad, **part._asdict()}


def _staged_parts(store: Store, shards: Sequence[Shard]) -> dict[str, Part]:
    """Return the parts that an interrupted run left complete in staging."""
    found: dict[str, Part] = {}
    for shard in shards:
        if store.has(shard.path):
            data = store.read(shard.path)
            rows = pq.read_metadata(io.BytesIO(data)).num_rows
            found[shard.part] = describe_part(shard.part, rows, data)
    return found


def extract(
    store: Store,
    units: Sequence[Unit],
    progress: Progress,
    extraction: ExtractionConfig | None = None,
    resources: ResourcesConfig | None = None,
) -> list[str]:
    """Extract and commit the units, model by model; return a line per unit that failed."""
    failed: list[str] = []
    for name in dict.fromkeys(unit.model for unit in units):
        mine = [unit for unit in units if unit.model == name]
        run = _ModelRun(store, mine, progress, extraction or ExtractionConfig())
        failed += run(resources or ResourcesConfig())
    return failed


class _ModelRun:
    """The extraction of one model: what is staged, what is to do, what has failed."""

    def __init__(
        self, store: Store, units: list[Unit], progress: Progress, extraction: ExtractionConfig
    ) -> None:
        self.store, self.progress, self.extraction = store, progress, extraction
        self.units = {unit.key: unit for unit in units}
        self.shards = {unit.key: shards_of(unit) for unit in units}
        self.parts: dict[str, dict[str, Part]] = {unit.key: {} for unit in units}
        self.failed: list[str] = []

    def __call__(self, resources: ResourcesConfig) -> list[str]:
        todo: list[Shard] = []
        for key, shards in self.shards.items():
            staged = _staged_parts(self.store, shards)
            todo += [shard for shard in shards if shard.part not in staged]
            for part in staged.values():
                self._received(key, part)
        if todo:
            for receipt in _receipts(self.store, todo, self.extraction, resources):
                key, bad = receipt.pop("key"), receipt.pop("bad")
                self._received(key, Part(**receipt), bad)
        return self.failed

    def _received(self, key: str, part: Part, bad: int = 0) -> None:
        parts = self.parts[key]
        parts[part.name] = part
        self.progress.advance(part.rows + bad, quarantined=bad)
        if len(parts) == len(self.shards[key]):
            unit = self.units[key]
            try:
                commit(self.store, unit, list(parts.values()), self.extraction.quarantine)
                count("rows_committed", sum(p.rows for p in parts.values()), model=unit.model)
            except TooManyBad as error:
                self.failed.append(str(error))


def _receipts(
    store: Store, shards: list[Shard], extraction: ExtractionConfig, resources: ResourcesConfig
) -> Iterator[dict[str, Any]]:
    """Run the pipeline; yield one receipt per part, in the order in which they finish."""
    import ray
    import ray.data

    # Importing ray.data configures its loggers; quieten them after that.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    model = shards[0].unit.source
    assert model is not None
    cluster = ray.cluster_resources()
    asked = resources.gpus_per_predictor
    gpus = (1.0 if cluster.get("GPU") else 0.0) if asked is None else asked
    most = cluster.get("GPU", 1) / gpus if gpus else cluster.get("CPU", 1)
    predictors = resources.predictors or max(1, int(most))
    memory = resources.memory_per_predictor or 0
    need_node({"CPU": ("cpus_per_loader", resources.cpus_per_loader)})
    need_node(
        {
            "CPU": ("cpus_per_predictor", resources.cpus_per_predictor),
            "GPU": ("gpus_per_predictor", gpus),
            "memory": ("memory_per_predictor", memory),
        }
    )
    readers = {reader_name(s.unit.split.reader): s.unit.split.reader for s in shards}
    with unwrapped():
        results = (
            ray.data.from_arrow([shard.as_table() for shard in shards])
            .map(
                partial(load_shard, readers=readers, preprocessing=model.preprocessing),
                compute=ray.data.TaskPoolStrategy(size=resources.loaders),
                num_cpus=resources.cpus_per_loader,
            )
            .map(
                PredictShard,
                fn_constructor_kwargs={
                    "model": model,
                    # Through the object store: workers need neither hub nor shared disk.
                    "weights": ray.put(weights_of(model)),
                    "extraction": extraction,
                    "store_uri": store.uri,
                },
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=predictors),
                num_cpus=resources.cpus_per_predictor,
                num_gpus=gpus,
                memory=resources.memory_per_predictor,
            )
        )
        for batch in results.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from batch.to_pylist()
