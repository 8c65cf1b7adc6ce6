"""What there is to extract: one unit per model and split, identified by its content key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ace_ray.benchmarks.registry import BENCHMARKS, Split
from ace_ray.config import Config
from ace_ray.errors import ConfigError
from ace_ray.identity import EXTRACTION_CODE, TABLE_SCHEMA, content_key
from ace_ray.logits.table import check_sizes, read_marker, split_folder, verify_split
from ace_ray.models.registry import find_model, weights_digest
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


def plan_units(config: Config) -> list[Unit]:
    """Return all units of a configuration: model by model, calibration split first."""
    splits = [
        (split, benchmark.variant)
        for benchmark in config.benchmark_configs()
        for split in BENCHMARKS[benchmark.name].splits(benchmark.options)
    ]
    calibration = [split for split, _ in splits if split.role == "calibration"]
    if len(calibration) != 1:
        names = ", ".join(f"{s.benchmark}:{s.name}" for s in calibration) or "none"
        raise ConfigError(f"benchmarks: need exactly one calibration split, got {names}")
    return [
        make_unit(model, split, variant) for model in config.models for split, variant in splits
    ]


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
