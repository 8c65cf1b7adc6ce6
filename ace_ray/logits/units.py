"""What there is to extract: one unit per model and split, identified by its content key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ace_ray.benchmarks.locate import Located
from ace_ray.benchmarks.registry import BENCHMARKS
from ace_ray.benchmarks.roots import read_files
from ace_ray.benchmarks.split import Samples, Split
from ace_ray.config import BenchmarkConfig, Config, ExtractionConfig
from ace_ray.errors import ConfigError, nearest
from ace_ray.identity import EXTRACTION_CODE, IMPORT_CODE, TABLE_SCHEMA, content_key
from ace_ray.logits.images import DECODER
from ace_ray.logits.table import check_sizes, read_marker, split_folder, verify_split
from ace_ray.models.registry import Model, resolve
from ace_ray.store import Store, encode

State: TypeAlias = Literal["cached", "missing", "outdated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One logit table: a model on a split."""

    model: str
    split: Split
    rows: int  # of the split, or of the committed table where that is all there is
    variant: str  # of the benchmark: its name on disk
    identity: dict[str, Any]
    key: str
    source: Model | None  # what makes the logits; None: they are in the store, made or imported

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
        split = self.split
        return {
            "key": self.key,
            "identity": self.identity,
            "model": self.model,
            "benchmark": split.benchmark,
            "split": split.name,
            "role": split.role,
            "corruption": split.corruption,
            "severity": split.severity,
            "classes": list(split.classes),
            "subset": list(split.subset) if split.subset else None,
        }


def make_unit(model: Model, split: Split, variant: str, extraction: ExtractionConfig) -> Unit:
    """Return the unit of a model and a split, with its content key."""
    if model.classes != len(split.classes):
        raise ConfigError(
            f"{model.name} has {model.classes} classes, {split.benchmark} has {len(split.classes)}"
            "; take a model trained on these classes (or, of your own images, list `classes`)"
        )
    if extraction.features and (model.members or model.config.mc):
        raise ConfigError(f"{model.name}: a mean of several has no features; set features: false")
    identity = {
        "schema": TABLE_SCHEMA,
        "code": EXTRACTION_CODE,
        "decoder": DECODER,
        "model": model.name,
        "network": model.identity(),
        "benchmark": split.benchmark,
        "split": split.name,
        "role": split.role,
        "samples": split.digest,
        "subset": list(split.subset) if split.subset else None,
        "corruption": split.corrupted.identity() if split.corrupted else None,
        "dtype": extraction.dtype,
        "precision": extraction.precision,
        "features": extraction.features,
    }
    return Unit(
        model=model.name,
        split=split,
        rows=split.rows,
        variant=variant,
        identity=identity,
        key=content_key(identity),
        source=model,
    )


def plan_units(config: Config, store: Store) -> list[Unit]:
    """Return all units of a configuration, model by model.

    Where the store holds imported logits of a model on a benchmark, these are meant; otherwise the
    model is run over the benchmark's images.
    """
    benchmarks = config.benchmark_configs()
    _check_pairs(benchmarks)
    located = Located(benchmarks, config.data_root)
    units: list[Unit] = []
    for model in config.model_configs():
        mine: list[Unit] = []
        for benchmark in benchmarks:
            imported = imported_units(store, model.name, benchmark.name)
            mine += imported
            if imported:
                if benchmark.explicit:
                    raise ConfigError(
                        f"benchmarks.{benchmark.name}: the store holds imported logits of "
                        f"{model.name!r} under this name; choose another name, write the name "
                        "alone to mean them, or delete "
                        f"{store.locate(imported[0].folder.rpartition('/')[0])}"
                    )
                continue
            if benchmark.options is None:
                known = nearest(benchmark.name, BENCHMARKS)
                raise ConfigError(
                    f"benchmarks: unknown {benchmark.name!r}, and the store has no imported logits "
                    f"of {model.name!r} on it; {known}"
                )
            resolved = resolve(model)
            mine += [
                make_unit(resolved, split, benchmark.variant, config.extraction)
                for split in located.splits(benchmark.name)
            ]
        _check_calibration(model.name, mine)
        _check_widths(model.name, mine)
        units += mine
    return units


# Sets that are cut alike, so that no image both calibrates and tests: by this option.
_PAIRS: Final = (("cifar10", "cifar10-c", "protocol"), ("imagenet", "imagenet-c", "seed"))


def _check_pairs(benchmarks: Sequence[BenchmarkConfig]) -> None:
    """Raise if a corrupted set is cut in another way than the set that it was made from."""
    by_type = {benchmark.type: benchmark.options for benchmark in benchmarks}
    for clean, shifted, option in _PAIRS:
        if by_type.get(clean) is None or by_type.get(shifted) is None:
            continue
        wanted, got = (getattr(by_type[name], option) for name in (clean, shifted))
        if wanted != got and getattr(by_type[shifted], "half", "test") != "all":
            raise ConfigError(
                f"benchmarks.{shifted}: {option} is {got!r}, that of {clean} is {wanted!r}; "
                "images that calibrate would be tested on, set them alike"
            )


def _check_calibration(model: str, units: list[Unit]) -> None:
    """Raise unless there is one calibration split, or several source domains of one benchmark."""
    found = [unit for unit in units if unit.split.role == "calibration"]
    domains = len({unit.split.benchmark for unit in found}) == 1 and all(
        # As the benchmark `domains` names them; several other imports are a mistake.
        not unit.imported or unit.split.name.endswith("/calibration")
        for unit in found
    )
    if len(found) != 1 and not domains:
        names = ", ".join(f"{u.split.benchmark}:{u.split.name}" for u in found) or "none"
        raise ConfigError(
            f"{model}: need exactly one calibration split among the benchmarks, got {names}; "
            "several source domains are named <domain>/calibration"
        )
    if len(found) == len(units):
        raise ConfigError(
            f"{model}: nothing to test on, its only split is {found[0].split.benchmark}:"
            f"{found[0].split.name} (calibration); add or import one with the role id or ood"
        )


def _check_widths(model: str, units: list[Unit]) -> None:
    """Raise unless all tables of a model have as many classes."""
    first = units[0].split
    for split in (unit.split for unit in units):
        if len(split.classes) != len(first.classes):
            raise ConfigError(
                f"{model}: {first.benchmark}:{first.name} has {len(first.classes)} classes, "
                f"{split.benchmark}:{split.name} has {len(split.classes)}; "
                "a run needs logits of the same classes"
            )


def imported_units(store: Store, model: str, benchmark: str) -> list[Unit]:
    """Return the imported splits of a model on a benchmark, calibration first."""
    parent = f"logits/model={encode(model)}/benchmark={encode(benchmark)}"
    units = []
    for name in store.names(parent) if store.exists else []:
        marker = read_marker(store, f"{parent}/{name}")
        if marker is not None and marker["identity"].get("code") == IMPORT_CODE:
            units.append(stored_unit(marker, benchmark))
    order = ("calibration", "id", "ood")
    return sorted(units, key=lambda u: (order.index(u.split.role), u.split.name))


def stored_unit(marker: Mapping[str, Any], variant: str) -> Unit:
    """Return the unit of a table that is in the store, from its commit marker alone."""
    shift = marker.get("corruption")
    split = Split(
        benchmark=str(marker["benchmark"]),
        name=str(marker["split"]),
        role=marker["role"],
        samples=Samples.none(),
        classes=tuple(marker["classes"]),
        digest="",
        reader=read_files,
        subset=tuple(marker["subset"]) if marker.get("subset") else None,
        shift=(str(shift), int(marker["severity"])) if shift else None,
    )
    return Unit(
        model=str(marker["model"]),
        split=split,
        rows=int(marker["rows"]),
        variant=variant,
        identity=marker["identity"],
        key=marker["key"],
        source=None,
    )


def unit_state(
    store: Store, unit: Unit, *, quarantine: float = 1.0, thorough: bool = False
) -> State:
    """Return whether a unit's table is committed under its key, under another, or not at all.

    Args:
        store: Where to look.
        unit: What to look for.
        quarantine: Share of unusable images above which a table does not count.
        thorough: Look at every byte.

    Raises:
        IntegrityError: If it is committed but a part is missing or has another size; with
            `thorough`, also if any byte differs.
    """
    marker = read_marker(store, unit.folder) if store.exists else None
    if marker is None:
        return "missing"
    lost = int(marker.get("quarantined", 0))
    if marker["key"] != unit.key or lost > quarantine * (marker["rows"] + lost):
        return "outdated"
    if thorough:
        verify_split(store, unit.folder, unit.key)
    else:
        check_sizes(store, unit.folder, marker)
    return "cached"
