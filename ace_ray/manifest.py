"""A run's own documents: what it is made of, and the marker that makes it complete."""

from __future__ import annotations

from typing import Any

from ace_ray.errors import IntegrityError
from ace_ray.identity import digest
from ace_ray.store import MARKER, Store


def read_manifest(store: Store, run_id: str) -> dict[str, Any]:
    """Return what a run is made of."""
    fields = {"run_id": str, "key": str, "config": dict, "logits": dict, "trials": dict}
    return store.read_document(f"runs/{run_id}/manifest.json", fields)


def write_run_marker(store: Store, run_id: str, key: str, report: str, paths: list[str]) -> None:
    """Declare a run complete: its outputs, each with size and digest."""
    folder = f"runs/{run_id}"
    files = {}
    for path in sorted(paths):
        data = store.read(path)
        files[path.removeprefix(f"{folder}/")] = [len(data), digest(data)]
    store.write_json(f"{folder}/{MARKER}", {"key": key, "report": report, "files": files})


def read_run_marker(store: Store, run_id: str) -> dict[str, Any] | None:
    """Return the marker of a complete run; `files` maps a name to its size and digest."""
    path = f"runs/{run_id}/{MARKER}"
    if not store.has(path):
        return None
    marker = store.read_document(path, {"key": str, "report": str, "files": dict})
    if not all(isinstance(v, list) and len(v) == 2 for v in marker["files"].values()):
        raise IntegrityError(f"{store.locate(path)} is damaged; delete it and run again")
    return marker


def outputs_present(store: Store, run_id: str, marker: dict[str, Any]) -> bool:
    """Return whether every output of a run is there with its size."""
    return all(
        store.size(f"runs/{run_id}/{name}") == size for name, (size, _) in marker["files"].items()
    )
