"""The logit table: one Parquet part per shard, readable by anything that reads Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.errors import IntegrityError
from ace_ray.identity import TABLE_SCHEMA, content_key, digest
from ace_ray.store import MARKER, Store, encode

# What is not derived here enters a part's file metadata under this name, as JSON.
METADATA: Final = b"ace_ray"
_REMEDY: Final = "run `ace-ray logits --repair`"


class Part(NamedTuple):
    """A written part, as its commit marker lists it."""

    name: str
    rows: int
    bytes: int
    sha256: str


class LogitTable(NamedTuple):
    """A split's logits in memory."""

    sample_id: list[str]
    label: IntArray
    logits: FloatArray  # (N, C) float32


def encode_part(
    sample_id: list[str],
    label: IntArray,
    logits: FloatArray,
    metadata: dict[str, Any],
    features: FloatArray | None = None,
) -> bytes:
    """Return a Parquet file of the rows; `logits` are stored in their own dtype.

    zstd with byte-stream split is smaller and reads faster than the defaults for float logits;
    page checksums let every reader notice a flipped bit.
    """
    matrices = {"logits": _tensor(logits)}
    if features is not None:
        matrices["features"] = _tensor(features)
    table = pa.table(
        {
            "sample_id": pa.array(sample_id, pa.string()),
            "label": pa.array(label, pa.int32()),
            **matrices,
        }
    )
    info = json.dumps({"schema": TABLE_SCHEMA, **metadata}, sort_keys=True, allow_nan=False)
    table = table.replace_schema_metadata({METADATA: info.encode()})
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        use_byte_stream_split=[f"{name}.list.element" for name in matrices],
        write_page_checksum=True,
    )
    return sink.getvalue()


def _tensor(rows: FloatArray) -> pa.FixedShapeTensorArray:
    """Return (N, C) rows as a column; N may be 0."""
    rows = np.ascontiguousarray(rows)
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(rows.dtype), [rows.shape[1]])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    return pa.ExtensionArray.from_storage(kind, storage)


def describe_part(name: str, rows: int, data: bytes) -> Part:
    """Return the marker's entry of a part."""
    return Part(name, rows, len(data), digest(data))


def decode_part(store: Store, path: str, columns: list[str] | None = None) -> pa.Table:
    """Read a part; page checksums are verified."""
    data = store.read(path)
    try:
        # One thread: pyarrow's pools can outlive the interpreter and abort it at exit.
        with pq.ParquetFile(
            io.BytesIO(data), page_checksum_verification=True, pre_buffer=False
        ) as file:
            return file.read(columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, path, error) from error


def stream_part(
    store: Store, path: str, columns: list[str], rows: int = 1024
) -> Iterator[pa.RecordBatch]:
    """Read a part a few rows at a time: beside its bytes, one page of each column is held."""
    source = pa.BufferReader(store.read(path))
    try:
        with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False) as file:
            yield from file.iter_batches(rows, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, path, error) from error


def _damaged(store: Store, path: str, error: Exception) -> IntegrityError:
    reason = str(error).splitlines()[0]
    return IntegrityError(f"{store.locate(path)}: damaged Parquet ({reason}); {_REMEDY}")


class PartAudit(NamedTuple):
    """What a part says of itself: its ids, and the audit of its sources."""

    ids: list[str]
    info: dict[str, Any]


def audit_part(store: Store, path: str) -> PartAudit:
    """Read a part's ids and file metadata; its logits stay where they are."""
    with store.reading(path) as stream, pq.ParquetFile(stream, pre_buffer=False) as file:
        ids = file.read(columns=["sample_id"], use_threads=False)[0].to_pylist()
        return PartAudit(ids, json.loads(file.schema_arrow.metadata[METADATA]))


def split_folder(model: str, benchmark: str, split: str) -> str:
    """Return where a split's table lies in the store."""
    return f"logits/model={encode(model)}/benchmark={encode(benchmark)}/split={encode(split)}"


def read_marker(store: Store, folder: str) -> dict[str, Any] | None:
    """Return a split's commit marker with its parts as `Part`s, or None if not committed."""
    path = f"{folder}/{MARKER}"
    if not store.has(path):
        return None
    fields = {"key": str, "identity": dict, "rows": int, "parts": list}
    marker = store.read_document(path, fields)
    try:
        marker["parts"] = [Part(**{n: part[n] for n in Part._fields}) for part in marker["parts"]]
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"{store.locate(path)} is damaged; {_REMEDY}") from error
    return marker


def check_sizes(store: Store, folder: str, marker: dict[str, Any]) -> None:
    """Raise unless every part is there with the size that the marker states."""
    for part in marker["parts"]:
        size = store.size(f"{folder}/{part.name}")
        if size != part.bytes:
            found = "missing" if size is None else f"{size:,} bytes"
            raise IntegrityError(
                f"{store.locate(folder)}/{part.name}: {found}, expected {part.bytes:,} bytes; "
                f"{_REMEDY}"
            )


def read_split(store: Store, folder: str, marker: dict[str, Any]) -> LogitTable:
    """Read a committed split; what does not match its marker raises IntegrityError."""
    check_sizes(store, folder, marker)
    tables = [decode_part(store, f"{folder}/{part.name}") for part in marker["parts"]]
    table = pa.concat_tables(tables).combine_chunks()
    if table.num_rows != marker["rows"]:
        raise IntegrityError(
            f"{store.locate(folder)}: {table.num_rows:,} rows, "
            f"expected {marker['rows']:,}; {_REMEDY}"
        )
    tensor = table["logits"].combine_chunks().to_numpy_ndarray()
    return LogitTable(
        table["sample_id"].to_pylist(),
        table["label"].to_numpy(),
        tensor.astype(np.float32, copy=False),
    )


def verify_split(store: Store, folder: str, key: str) -> int:
    """Return the rows of a split, after every byte, id and key was found as committed."""
    marker = read_marker(store, folder)
    where = store.locate(folder)
    if marker is None:
        raise IntegrityError(f"{where}: not committed; run `ace-ray logits`")
    if marker["key"] != key:
        raise IntegrityError(
            f"{where}: holds logits with another key than this run used; "
            "the model or data changed since, run `ace-ray run`"
        )
    if content_key(marker["identity"]) != key:
        raise IntegrityError(f"{where}: the marker's key is not the key of its identity; {_REMEDY}")
    ids: list[str] = []
    for part in marker["parts"]:
        path = f"{folder}/{part.name}"
        if not store.has(path):
            raise IntegrityError(f"{store.locate(path)}: missing; {_REMEDY}")
        if digest(store.read(path)) != part.sha256:
            raise IntegrityError(f"{store.locate(path)}: digest differs from its marker; {_REMEDY}")
        table = decode_part(store, path)
        if f'"{key}"'.encode() not in table.schema.metadata[METADATA]:
            raise IntegrityError(f"{store.locate(path)}: carries another key; {_REMEDY}")
        ids += table["sample_id"].to_pylist()
    if len(ids) != marker["rows"] or len(set(ids)) != len(ids):
        raise IntegrityError(
            f"{where}: {len(ids):,} rows with {len(set(ids)):,} ids, "
            f"expected {marker['rows']:,}; {_REMEDY}"
        )
    return len(ids)
