"""What there is to extract: one unit per model and split, identified by its content key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ace_ray.benchmarks.registry import BENCHMARKS, Corrupted, Split
from ace_ray.config import BenchmarkConfig, Config
from ace_ray.errors import ConfigError, nearest
from ace_ray.identity import EXTRACTION_CODE, IMPORT_CODE, TABLE_SCHEMA, content_key
from ace_ray.logits.table import check_sizes, read_marker, split_folder, verify_split
from ace_ray.models.registry import MODELS, find_model, weights_digest
from ace_ray.store import Store, encode

State: TypeAlias = Literal["cached", "missing", "outdated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One logit table: a model on a split."""

    model: str
    split: Split
    variant: str  # of the benchmark: its name on disk
    identity: dict[str, Any]
    key: str

    @property
    def imported(self) -> bool:
        """Whether the table was brought from outside: it cannot be extracted again."""
        return bool(self.identity["code"] == IMPORT_CODE)

    @property
    def folder(self) -> str:
        """Where the table lies in the store."""
        return split_folder(self.model, self.variant, self.split.name)

    @property
    def staged(self) -> str:
        """Where parts wait until the unit is complete; the path carries the full key."""
        return f"staging/{encode(self.variant)}-{self.key}"

    def marker(self) -> dict[str, Any]:
        """Return the part of the commit marker that is known before extraction."""
        shift = self.split.corrupted
        return {
            "key": self.key,
            "identity": self.identity,
            "model": self.model,
            "benchmark": self.split.benchmark,
            "split": self.split.name,
            "role": self.split.role,
            "corruption": shift.name if shift else None,
            "severity": shift.severity if shift else None,
            "classes": list(BENCHMARKS[self.split.benchmark].classes),
        }


def make_unit(model_name: str, split: Split, variant: str) -> Unit:
    """Return the unit of a model and a split, with its content key."""
    model = find_model(model_name)
    identity = {
        "schema": TABLE_SCHEMA,
        "code": EXTRACTION_CODE,
        "model": model.name,
        "architecture": model.architecture,
        "weights": weights_digest(model.name),
        "preprocessing": model.preprocessing(),
        "benchmark": split.benchmark,
        "split": split.name,
        "role": split.role,
        "samples": split.digest,
        "corruption": split.corrupted.identity() if split.corrupted else None,
        "dtype": "float32",
    }
    return Unit(
        model=model.name,
        split=split,
        variant=variant,
        identity=identity,
        key=content_key(identity),
    )


def plan_units(config: Config, store: Store) -> list[Unit]:
    """Return all units of a configuration, model by model.

    Where the store holds imported logits of a model on a benchmark, these are meant; otherwise the
    model is run over the benchmark's images.
    """
    units: list[Unit] = []
    for model in config.models:
        mine: list[Unit] = []
        for benchmark in config.benchmark_configs():
            mine += imported_units(store, model, benchmark.name) or _registered(model, benchmark)
        calibration = [u.split for u in mine if u.split.role == "calibration"]
        if len(calibration) != 1:
            names = ", ".join(f"{s.benchmark}:{s.name}" for s in calibration) or "none"
            raise ConfigError(
                f"{model}: need exactly one calibration split among the benchmarks, got {names}"
            )
        units += mine
    return units


def _registered(model: str, benchmark: BenchmarkConfig) -> list[Unit]:
    """Return the units of a model and a benchmark that this package knows."""
    for kind, name, known in (
        ("models", model, MODELS),
        ("benchmarks", benchmark.name, BENCHMARKS),
    ):
        if name not in known:
            raise ConfigError(
                f"{kind}: unknown {name!r}, and the store has no imported logits of {model!r} on "
                f"{benchmark.name!r}; {nearest(name, known)}"
            )
    splits = BENCHMARKS[benchmark.name].splits(benchmark.options)
    return [make_unit(model, split, benchmark.variant) for split in splits]


def imported_units(store: Store, model: str, benchmark: str) -> list[Unit]:
    """Return the imported splits of a model on a benchmark, calibration first."""
    parent = f"logits/model={encode(model)}/benchmark={encode(benchmark)}"
    units = []
    for name in store.names(parent) if store.exists else []:
        marker = read_marker(store, f"{parent}/{name}")
        if marker is None or marker["identity"].get("code") != IMPORT_CODE:
            continue
        shift = marker.get("corruption")
        split = Split(
            benchmark=benchmark,
            name=str(marker["split"]),
            role=marker["role"],
            rows=int(marker["rows"]),
            sample_id=(),
            label=np.empty(0, np.int32),
            source=(),
            corrupted=Corrupted(str(shift), int(marker["severity"])) if shift else None,
            digest=marker["identity"]["content"],
        )
        units.append(
            Unit(
                model=model,
                split=split,
                variant=benchmark,
                identity=marker["identity"],
                key=marker["key"],
            )
        )
    order = ("calibration", "id", "ood")
    return sorted(units, key=lambda u: (order.index(u.split.role), u.split.name))


def unit_state(store: Store, unit: Unit, *, thorough: bool = False) -> State:
    """Return whether a unit's table is committed under its key, under another, or not at all.

    Raises:
        IntegrityError: If it is committed but a part is missing or has another size; with
            `thorough`, also if any byte differs.
    """
    marker = read_marker(store, unit.folder) if store.exists else None
    if marker is None:
        return "missing"
    if marker["key"] != unit.key:
        return "outdated"
    if thorough:
        verify_split(store, unit.folder, unit.key)
    else:
        check_sizes(store, unit.folder, marker)
    return "cached"
