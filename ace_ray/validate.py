"""Check a run: every file, row count, id, key and digest against what was committed."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ace_ray.errors import AceRayError
from ace_ray.identity import digest
from ace_ray.logits.sources import compare_sources
from ace_ray.logits.table import verify_split
from ace_ray.manifest import read_manifest, read_run_marker
from ace_ray.store import Store
from ace_ray.sweep.records import read_record, recorded
from ace_ray.sweep.trial import TrialSpec


class Validation(NamedTuple):
    """What was looked at, one line per problem, and what could not be looked at."""

    checked: dict[str, int]
    problems: list[str]
    notes: list[str]


def validate_run(store: Store, run_id: str, data_root: str | None = None) -> Validation:
    """Check everything that a run consists of; problems are collected, not raised.

    Args:
        store: Where the run is.
        run_id: Its name.
        data_root: Where the images are; None: where they were when the run was made.
    """
    problems: list[str] = []
    manifest = read_manifest(store, run_id)
    rows = 0
    for folder, key in manifest["logits"].items():
        try:
            rows += verify_split(store, f"logits/{folder}", key)
        except AceRayError as error:
            problems.append(str(error))
    trials, done = manifest["trials"], recorded(store, run_id)
    measurements = 0
    for key, spec in trials.items():
        if key not in done:
            problems.append(f"trial {TrialSpec(**spec)} has no record; run `ace-ray run` again")
            continue
        try:
            measurements += _check_record(store, run_id, key, spec, manifest)
        except AceRayError as error:
            problems.append(str(error))
    problems += _check_files(store, run_id, measurements)
    images, changed, notes = compare_sources(store, run_id, data_root)
    problems += changed
    checked = {"splits": len(manifest["logits"]), "rows": rows, "trials": len(trials)}
    return Validation({**checked, "measurements": measurements, "images": images}, problems, notes)


def _check_record(
    store: Store, run_id: str, key: str, spec: dict[str, Any], manifest: dict[str, Any]
) -> int:
    """Return the number of measurements of a record that belongs to its key and spec."""
    record = read_record(store, run_id, key)
    model = f"model={spec['model']}/"
    tables = [k for folder, k in manifest["logits"].items() if folder.startswith(model)]
    if record["spec"] != spec or TrialSpec(**spec).key(tables) != key:
        raise AceRayError(f"trial {key[:12]}: spec and key disagree; delete it and run again")
    return len(record["measurements"])


def _check_files(store: Store, run_id: str, measurements: int) -> list[str]:
    """Return a line per file of the run that is missing or is not what was committed."""
    folder = f"runs/{run_id}"
    try:
        marker = read_run_marker(store, run_id)
    except AceRayError as error:
        return [str(error)]
    if marker is None:
        return [f"run {run_id} is not complete; run `ace-ray run` again"]
    remedy = f"run `ace-ray report {run_id}`"
    problems = []
    for name, (_, expected) in marker["files"].items():
        if not store.has(f"{folder}/{name}"):
            problems.append(f"{store.locate(folder)}/{name}: missing; {remedy}")
        elif digest(store.read(f"{folder}/{name}")) != expected:
            problems.append(f"{store.locate(folder)}/{name}: changed since it was made; {remedy}")
    if not problems:
        found = pq.read_metadata(io.BytesIO(store.read(f"{folder}/results.parquet"))).num_rows
        if found != measurements:
            problems.append(f"results.parquet: {found} rows, records hold {measurements}; {remedy}")
    return problems
