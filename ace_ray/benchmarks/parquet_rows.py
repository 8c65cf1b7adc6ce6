"""Parquet tables with an image and a label per row, as Hugging Face datasets are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.arrays import IntArray
from ace_ray.benchmarks import roots
from ace_ray.benchmarks.split import Item, Unreadable
from ace_ray.errors import DataError, nearest


class Labels(NamedTuple):
    """The labels of a table, and its class names if it has them."""

    values: IntArray
    names: tuple[str, ...] | None


def read_label_column(label: str, root: str, path: str, image: str, column: str) -> Labels:
    """Return the labels of a table; its images are not read.

    Raises:
        DataError: If it is no table with an image column and whole-number labels.
    """
    where = f"{label}: {root}/{path}"
    try:
        with roots.open_file(root, path) as file:
            table = pq.ParquetFile(file)
            schema = table.schema_arrow
            for name in (image, column):
                if name not in schema.names:
                    raise DataError(f"{where}: no column {name!r}; {nearest(name, schema.names)}")
            _check_types(where, schema.field(image), schema.field(column))
            values = table.read(columns=[column])[column]
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{where}: not a readable Parquet file: {reason}; copy it again") from error
    if values.null_count:
        raise DataError(f"{where}: {values.null_count:,} rows have no {column!r}; remove them")
    return Labels(values.to_numpy().astype(np.int64), _class_names(schema, column))


def _check_types(where: str, image: pa.Field, label: pa.Field) -> None:
    inside = image.type
    if pa.types.is_struct(inside):
        index = inside.get_field_index("bytes")
        inside = inside.field(index).type if index >= 0 else inside
    if not (pa.types.is_binary(inside) or pa.types.is_large_binary(inside)):
        raise DataError(
            f"{where}: {image.name!r} is {image.type}, expected binary or struct<bytes, path>"
        )
    if not pa.types.is_integer(label.type):
        raise DataError(f"{where}: {label.name!r} is {label.type}, expected class numbers")


def _class_names(schema: pa.Schema, column: str) -> tuple[str, ...] | None:
    """Return the class names that `datasets` writes into a file, if any."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def read_cells(root: str, sources: Sequence[str]) -> list[Item]:
    """Read encoded images by `<file>#<column>#<row>`; only the row groups asked for are read."""
    items: list[Item] = [Unreadable("the table ends before it")] * len(sources)
    wanted: dict[tuple[str, str], dict[int, list[int]]] = {}
    for position, source in enumerate(sources):
        path, column, row = source.rsplit("#", 2)
        rows = wanted.setdefault((path, column), {})
        rows.setdefault(int(row), []).append(position)
    for (path, column), rows in wanted.items():
        try:
            with roots.open_file(root, path) as file:
                _fill(items, pq.ParquetFile(file), column, rows)
        except (OSError, pa.ArrowException) as error:
            reason = f"{path} cannot be read: {str(error).splitlines()[0]}"
            for position in (p for at in rows.values() for p in at):
                items[position] = Unreadable(reason)
    return items


def _fill(
    items: list[Item], table: pq.ParquetFile, column: str, rows: dict[int, list[int]]
) -> None:
    start = 0
    for group in range(table.num_row_groups):
        stop = start + table.metadata.row_group(group).num_rows
        here = [row for row in rows if start <= row < stop]
        if here:
            try:
                cells: Any = table.read_row_group(group, columns=[column])[column]
                found = [_cell(cells[row - start].as_py()) for row in here]
            except (OSError, pa.ArrowException) as error:
                reason = f"row group {group} is damaged: {str(error).splitlines()[0]}"
                found = [Unreadable(reason)] * len(here)
            for row, item in zip(here, found, strict=True):
                for position in rows[row]:
                    items[position] = item
        start = stop


def _cell(value: Any) -> Item:
    data = value.get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else Unreadable("the row has no image bytes")
