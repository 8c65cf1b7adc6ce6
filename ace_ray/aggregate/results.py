"""`results.parquet`: tidy, one row per measurement, the same bytes for the same records."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.sweep.trial import ADDED

SCHEMA: Final = pa.schema(
    [
        ("run_id", pa.string()),
        ("model", pa.string()),
        ("benchmark", pa.string()),
        ("split", pa.string()),
        ("corruption", pa.string()),
        ("severity", pa.int32()),
        ("role", pa.string()),
        ("calibrator", pa.string()),
        ("method", pa.string()),
        ("difficulty", pa.float64()),
        ("seed", pa.int64()),
        ("fixed_alpha", pa.float64()),
        ("batch", pa.int64()),
        ("space", pa.string()),
        ("size", pa.int64()),
        ("hard_size", pa.int64()),
        ("same_size", pa.bool_()),
        ("domain", pa.string()),
        ("alpha", pa.float64()),
        ("alpha_raw", pa.float64()),
        ("n", pa.int64()),
        ("accuracy", pa.float64()),
        ("confidence", pa.float64()),
        ("ece", pa.float64()),
        ("ks", pa.float64()),
        ("brier", pa.float64()),
        ("nll", pa.float64()),
    ]
)


def results_rows(run_id: str, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the measurements of all records, in the order of the records.

    What a study added to a trial comes from its spec.
    """
    return [
        {"run_id": run_id, **{name: record["spec"][name] for name in ADDED}, **row}
        for record in records
        for row in record["measurements"]
    ]


def encode_results(rows: list[dict[str, Any]]) -> bytes:
    """Return the rows as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return sink.getvalue()
