"""Tables as Parquet: a column of numbers stays one, and the file carries the whole table."""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.aggregate.table import Table
from ace_ray.identity import canonical_json
from ace_ray.report.escape import clean
from ace_ray.report.text import number_of

# Texts, marks and notes, as in the JSON file, under this name of the file's metadata.
METADATA: Final = b"ace_ray_table"


def parquet(table: Table) -> bytes:
    """Return values under the table's own column names; a missing measurement is null."""
    names: list[str] = []
    columns = []
    for i, title in enumerate(table.columns):
        name = clean(title)
        names.append(f"{name} ({i})" if name in names else name)
        cells = [row[i] for row in table.rows]
        if any(isinstance(cell.value, str) for cell in cells):
            texts = [None if c.value is None else clean(str(c.value)).strip() for c in cells]
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(pa.array([number_of(cell) for cell in cells], pa.float64()))
    data = pa.table(columns, names=names)
    whole = canonical_json(table.as_plain()).encode()
    sink = io.BytesIO()
    pq.write_table(data.replace_schema_metadata({METADATA: whole}), sink, compression="zstd")
    return sink.getvalue()
