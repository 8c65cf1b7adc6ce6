"""Bring your own logits: a file becomes a committed split, checked as strictly as our own."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.arrays import FloatArray
from ace_ray.benchmarks.split import Role
from ace_ray.errors import DataError, UsageError
from ace_ray.identity import IMPORT_CODE, TABLE_SCHEMA, content_key, digest
from ace_ray.logits.table import (
    LogitTable,
    describe_part,
    encode_part,
    read_marker,
    split_folder,
)
from ace_ray.store import Store, encode

_PART_ROWS: Final = 10_000
_SHIFT: Final = re.compile(r"(?P<name>[a-z_]+)/(?P<severity>[1-5])")


def read_foreign(path: str, *, probabilities: bool) -> LogitTable:
    """Read logits, labels and optional ids from an npz, a Parquet file, or a pair of npy files.

    A pair is `NAME.npy` with `NAME.labels.npy` beside it. With `probabilities`, their logarithm is
    taken; a probability of 0 becomes that of the smallest normal float32.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        columns = _READERS[file.suffix](file)
    except KeyError:
        known = ", ".join(sorted(_READERS))
        raise UsageError(f"{path}: expected a file that ends in {known}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    logits, labels = columns.get("logits"), columns.get("labels", columns.get("label"))
    if logits is None or labels is None:
        found = ", ".join(sorted(columns)) or "nothing"
        raise DataError(f"{path}: needs `logits` and `labels` (or `label`), found {found}")
    ids = columns.get("sample_id")
    return checked(path, logits, labels, ids, probabilities=probabilities)


def _read_npz(file: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no npz archive")
    with np.load(file, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}


def _read_npy(file: Path) -> dict[str, Any]:
    labels = file.with_suffix(".labels.npy")
    if not labels.is_file():
        raise ValueError(f"no {labels.name} beside it")
    return {
        "logits": np.load(file, allow_pickle=False),
        "labels": np.load(labels, allow_pickle=False),
    }


def _read_parquet(file: Path) -> dict[str, Any]:
    table = pq.read_table(file, partitioning=None, use_threads=False)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name == "logits":
            columns[name] = _matrix(column)
        elif name == "sample_id":
            columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def _matrix(column: pa.Array) -> FloatArray:
    """Return a list, fixed-size list or tensor column as (N, C)."""
    if isinstance(column, pa.FixedShapeTensorArray):
        return np.asarray(column.to_numpy_ndarray())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        widths = set(column.value_lengths().to_pylist())
        if len(widths) != 1:
            raise ValueError(
                f"rows of `logits` have different lengths {sorted(map(str, widths))[:5]}"
            )
    elif not pa.types.is_fixed_size_list(column.type):
        raise ValueError(f"`logits` must be a list or tensor column, got {column.type}")
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)


_READERS: Final = {".npz": _read_npz, ".npy": _read_npy, ".parquet": _read_parquet}


def checked(
    where: str, logits: Any, labels: Any, ids: Any, *, probabilities: bool = False
) -> LogitTable:
    """Return a table after checking shapes, values, labels and ids."""
    z, y = np.asarray(logits), np.asarray(labels)
    if z.ndim != 2 or z.shape[0] < 1 or z.shape[1] < 2 or z.dtype.kind != "f":
        raise DataError(
            f"{where}: logits: expected floats of shape (N >= 1, C >= 2), got {z.dtype} {z.shape}"
        )
    if y.shape != (len(z),) or y.dtype.kind not in "iu":
        raise DataError(
            f"{where}: labels: expected {len(z):,} integers to match the logits, "
            f"got {y.dtype} {y.shape}"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(z.astype(np.float32)).all(axis=1)  # as they will be stored
    if not finite.all():
        bad = int(np.flatnonzero(~finite)[0])
        raise DataError(
            f"{where}: logits: NaN, or infinite in float32, in row {bad}; drop or repair it"
        )
    if y.min() < 0 or y.max() >= z.shape[1]:
        raise DataError(
            f"{where}: labels: expected 0 to {z.shape[1] - 1}, got {y.min()} to {y.max()}"
        )
    sums = z.astype(np.float64).sum(axis=1)
    looks = bool(z.min() >= 0 and np.abs(sums - 1).max() < 1e-3)
    if probabilities:
        if not looks:
            raise DataError(f"{where}: --probabilities: rows must be >= 0 and sum to one")
        z = np.log(np.maximum(z, np.finfo(np.float32).tiny))
    elif looks:
        raise DataError(
            f"{where}: logits: every row is >= 0 and sums to one: pass --probabilities if that is "
            "what they are"
        )
    names = [f"{i:08d}" for i in range(len(z))] if ids is None else [str(i) for i in ids]
    if len(names) != len(z) or len(set(names)) != len(names):
        raise DataError(
            f"{where}: sample_id: expected {len(z):,} different ids, "
            f"got {len(names):,} of which {len(set(names)):,} differ"
        )
    return LogitTable(names, y.astype(np.int32), z.astype(np.float32))


def import_split(
    store: Store, table: LogitTable, *, model: str, benchmark: str, split: str, role: Role
) -> dict[str, Any]:
    """Commit a table as a split and return its marker; the same content twice changes nothing.

    Raises:
        UsageError: If the place holds another table.
    """
    for what, name in (("model", model), ("benchmark", benchmark), ("split", split)):
        if not name:
            raise UsageError(f"--{what}: expected a name, got nothing")
    content = digest(
        b"\n".join(i.encode() for i in table.sample_id)
        + b"\0"
        + table.label.tobytes()
        + np.ascontiguousarray(table.logits).tobytes()
    )
    identity = {
        "schema": TABLE_SCHEMA,
        "code": IMPORT_CODE,
        "model": model,
        "benchmark": benchmark,
        "split": split,
        "role": role,
        "content": content,
        "classes": table.logits.shape[1],
    }
    key = content_key(identity)
    folder = split_folder(model, benchmark, split)
    known = read_marker(store, folder) if store.exists else None
    if known is not None and known["key"] == key:
        return known
    if known is not None:
        raise UsageError(
            f"{store.locate(folder)} already holds other logits (key {known['key'][:12]}); "
            "import under another --split or --model, or delete that folder"
        )
    store.create()
    staged = f"staging/{encode(benchmark)}-{key}"
    parts = []
    for i, start in enumerate(range(0, len(table.label), _PART_ROWS)):
        rows = slice(start, start + _PART_ROWS)
        ids = table.sample_id[rows]
        metadata = {k: identity[k] for k in ("model", "benchmark", "split", "content")}
        data = encode_part(ids, table.label[rows], table.logits[rows], {"key": key, **metadata})
        part = describe_part(f"part-{key[:12]}-{i:05d}.parquet", len(ids), data)
        store.write(f"{staged}/{part.name}", data)
        parts.append(part)
    shift = _SHIFT.fullmatch(split) if role == "ood" else None
    marker = {
        "key": key,
        "identity": identity,
        "model": model,
        "benchmark": benchmark,
        "split": split,
        "role": role,
        "corruption": shift["name"] if shift else None,
        "severity": int(shift["severity"]) if shift else None,
        "classes": [str(i) for i in range(table.logits.shape[1])],
        "rows": len(table.label),
        "parts": [part._asdict() for part in parts],
    }
    store.publish(staged, folder, [part.name for part in parts], marker)
    return marker
