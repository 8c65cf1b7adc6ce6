"""What a configuration asks for and what the store already has. Starts nothing, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ace_ray.config import Config
from ace_ray.errors import IntegrityError
from ace_ray.identity import (
    BENCHMARK_RUNTIME,
    CALIBRATION_CODE,
    MODEL_RUNTIME,
    RESULT,
    content_key,
)
from ace_ray.logits.units import State, Unit, plan_units, unit_state
from ace_ray.manifest import outputs_present, read_run_marker
from ace_ray.report.render import REPORT_CODE
from ace_ray.store import Store
from ace_ray.sweep.records import recorded
from ace_ray.sweep.specs import specs_of
from ace_ray.sweep.trial import TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run, unit by unit."""

    config: Config
    store: Store
    key: str
    units: tuple[Unit, ...]
    states: dict[str, State]  # by unit key
    specs: dict[str, TrialSpec]  # by trial key
    recorded: frozenset[str]  # trial keys
    finished: bool  # results and report are committed and up to date

    @property
    def run_id(self) -> str:
        """The run's name in the store: the start of its key."""
        return self.key[:12]

    @property
    def folder(self) -> str:
        """Where the run lies in the store."""
        return f"runs/{self.run_id}"

    def units_to_do(self) -> list[Unit]:
        """Units whose logits must be extracted."""
        return [unit for unit in self.units if self.states[unit.key] != "cached"]

    def trials_to_do(self) -> dict[str, TrialSpec]:
        """Trials without a record."""
        return {key: spec for key, spec in self.specs.items() if key not in self.recorded}

    def left(self) -> str:
        """Return how much the store still lacks at this moment."""
        now = make_plan(self.config, self.store, units=list(self.units))
        splits, trials = len(now.units_to_do()), len(now.trials_to_do())
        if not splits and not trials:
            return "only the report is"
        return f"{splits} of {len(self.units)} splits and {trials} of {len(self.specs)} trials are"

    def as_plain(self) -> dict[str, Any]:
        """Return the counts for people and machines."""
        todo = self.units_to_do()
        return {
            "run_id": self.run_id,
            "store": self.store.uri,
            "splits": len(self.units),
            "splits_cached": len(self.units) - len(todo),
            "splits_outdated": sum(s == "outdated" for s in self.states.values()),
            "images": sum(unit.rows for unit in self.units),
            "images_to_do": sum(unit.rows for unit in todo),
            "trials": len(self.specs),
            "trials_recorded": len(self.specs) - len(self.trials_to_do()),
            "finished": self.finished,
        }


def make_plan(
    config: Config, store: Store, *, repair: bool = False, units: list[Unit] | None = None
) -> Plan:
    """Compare a configuration with the store.

    Args:
        config: The run.
        store: Where to look.
        repair: Look at every byte, and count a damaged split as missing instead of raising.
        units: The run's logit tables where they are known; otherwise models and data are looked at.

    Raises:
        IntegrityError: If a committed split is damaged and `repair` is off.
    """
    units = plan_units(config, store) if units is None else units
    allowed = config.extraction.quarantine
    states: dict[str, State] = {}
    for unit in units:
        try:
            states[unit.key] = unit_state(store, unit, quarantine=allowed, thorough=repair)
        except IntegrityError as error:
            if unit.imported:
                what = str(error).rpartition("; ")[0]
                raise IntegrityError(f"{what}; import this split again") from error
            if not repair:
                raise
            states[unit.key] = "missing"
    keys = {model: [u.key for u in units if u.model == model] for model in config.model_names()}
    sources = {
        model: [u.split.name for u in units if (u.model, u.split.role) == (model, "calibration")]
        for model in keys
    }
    specs = {spec.key(keys[spec.model]): spec for spec in specs_of(config, sources)}
    key = content_key(
        {
            "config": results_only(config.as_plain()),
            "logits": sorted(states),
            "code": CALIBRATION_CODE,
        }
    )
    marker = read_run_marker(store, key[:12]) if store.exists else None
    done = frozenset(recorded(store, key[:12]) & specs.keys())
    finished = (
        marker is not None
        and marker["report"] == REPORT_CODE
        and set(states.values()) == {"cached"}
        and len(done) == len(specs)
        and outputs_present(store, key[:12], marker)
    )
    return Plan(
        config=config,
        store=store,
        key=key,
        units=tuple(units),
        states=states,
        specs=specs,
        recorded=done,
        finished=finished,
    )


def results_only(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of `identity.RESULT` alone, and nothing that says where something lies."""
    kept: dict[str, Any] = {}
    for name, value in config.items():
        path = prefix + name
        if path in RESULT:
            kept[name] = _without(value, _PLACES[path]) if path in _PLACES else value
        elif any(known.startswith(f"{path}.") for known in RESULT):
            kept[name] = results_only(value, f"{path}.")
    return kept


_PLACES: Final = {"models": MODEL_RUNTIME, "benchmarks": BENCHMARK_RUNTIME}


def _without(value: Any, names: frozenset[str]) -> Any:
    """Return plain data without the keys of these names, at every depth."""
    if isinstance(value, dict):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    return [_without(v, names) for v in value] if isinstance(value, list) else value
