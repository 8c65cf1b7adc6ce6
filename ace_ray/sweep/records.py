"""One durable record per trial: `runs/<run_id>/trials/<trial key>.json`, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.errors import IntegrityError
from ace_ray.store import Store
from ace_ray.sweep.trial import TrialResult, TrialSpec


def trials_folder(run_id: str) -> str:
    """Return where a run's records lie in the store."""
    return f"runs/{run_id}/trials"


def partials_folder(run_id: str) -> str:
    """Return where measurements wait, split by split, until every trial has its record."""
    return f"runs/{run_id}/partial"


def partial_path(run_id: str, split_key: str) -> str:
    """Return where the measurements of a split wait."""
    return f"{partials_folder(run_id)}/{split_key}.json"


def record_path(run_id: str, key: str) -> str:
    """Return where a trial's record lies in the store."""
    return f"{trials_folder(run_id)}/{key}.json"


def failures_path(run_id: str) -> str:
    """Return where the reasons of trials that failed in the last sweep lie in the store."""
    return f"runs/{run_id}/failures.json"


def write_failures(store: Store, run_id: str, reasons: Mapping[str, str]) -> None:
    """Keep why trials failed, by trial; if none did, what an earlier sweep left is deleted."""
    if reasons:
        store.write_json(failures_path(run_id), {"failures": dict(reasons)})
    else:
        store.delete(failures_path(run_id))


def read_failures(store: Store, run_id: str) -> dict[str, str]:
    """Return why trials failed in the last sweep, by trial."""
    if not store.has(failures_path(run_id)):
        return {}
    found: dict[str, str] = store.read_document(failures_path(run_id), {"failures": dict})[
        "failures"
    ]
    return found


def write_record(store: Store, run_id: str, key: str, spec: TrialSpec, result: TrialResult) -> None:
    """Write a trial's record."""
    record = {"key": key, "spec": spec.as_plain(), **result._asdict()}
    store.write_json(record_path(run_id, key), record, indent=False)


def read_record(store: Store, run_id: str, key: str) -> dict[str, Any]:
    """Read a trial's record; the key inside must be the key of its name."""
    path = record_path(run_id, key)
    record = store.read_document(
        path, {"key": str, "spec": dict, "measurements": list, "diagrams": list, "warnings": list}
    )
    if record["key"] != key:
        raise IntegrityError(
            f"{store.locate(path)} holds the record of another trial; delete it and run again"
        )
    return record


def recorded(store: Store, run_id: str) -> set[str]:
    """Return the keys of all recorded trials of a run."""
    names = store.names(trials_folder(run_id)) if store.exists else []
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}
