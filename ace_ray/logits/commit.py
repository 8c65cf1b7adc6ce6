"""From staged parts to a committed split: exact rows, named losses, or a clear failure."""

from __future__ import annotations

import io
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.errors import AceRayError, IntegrityError
from ace_ray.logits.table import Part, audit_part
from ace_ray.logits.units import Unit
from ace_ray.store import Store

# Beside the parts; readers of a folder of Parquet skip names that begin with an underscore.
QUARANTINE: Final = "_audit/quarantine.parquet"
_SHOWN: Final = 3


class Quarantined(NamedTuple):
    """An image that could not be used."""

    sample_id: str
    source: str
    reason: str


class TooManyBad(AceRayError):
    """More of a split's images are unusable than the configuration allows."""

    exit_code = 1


def commit(store: Store, unit: Unit, parts: list[Part], quarantine: float) -> None:
    """Check that staged parts hold exactly the unit's samples, then publish them.

    Raises:
        IntegrityError: If rows are missing or double; nothing is published.
        TooManyBad: If the share of unusable images is above `quarantine`.
    """
    parts = sorted(parts)
    audits = [audit_part(store, f"{unit.staged}/{part.name}") for part in parts]
    ids = [i for audit in audits for i in audit.ids]
    bad = [Quarantined(*entry) for audit in audits for entry in audit.info["quarantined"]]
    found = set(ids) | {b.sample_id for b in bad}
    if len(ids) + len(bad) != unit.rows or found != set(unit.split.samples.sample_id.to_pylist()):
        raise IntegrityError(
            f"{_where(unit)}: staged {len(ids):,} rows and {len(bad):,} quarantined "
            f"({len(found):,} ids), expected {unit.rows:,}; nothing was committed, run again"
        )
    if bad:
        store.write(f"{unit.folder}/{QUARANTINE}", _as_parquet(bad))
    if len(bad) > quarantine * unit.rows or not ids:
        # Parts without their bad images would be reused as they are, even after a repair.
        for part, audit in zip(parts, audits, strict=True):
            if audit.info["quarantined"]:
                store.delete(f"{unit.staged}/{part.name}")
        raise TooManyBad(_explained(store, unit, bad, quarantine))
    marker = {
        **unit.marker(),
        "rows": len(ids),
        "quarantined": len(bad),
        "batch_size": min(audit.info["batch_size"] for audit in audits),
        "parts": [part._asdict() for part in parts],
    }
    extra = [QUARANTINE.partition("/")[0]] if bad else []
    store.publish(unit.staged, unit.folder, [part.name for part in parts], marker, keep=extra)


def _where(unit: Unit) -> str:
    return f"{unit.model} on {unit.split.benchmark}:{unit.split.name}"


def _as_parquet(bad: list[Quarantined]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([b._asdict() for b in bad]), sink)
    return sink.getvalue()


def _explained(store: Store, unit: Unit, bad: list[Quarantined], quarantine: float) -> str:
    named = ", ".join(f"{b.source} ({b.reason})" for b in bad[:_SHOWN])
    more = f" and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
    return (
        f"{_where(unit)}: {len(bad):,} of {unit.rows:,} images cannot be used "
        f"({len(bad) / unit.rows:.2%}, allowed {quarantine:.2%}): {named}{more}; mend or remove "
        f"them, or raise `extraction.quarantine`; all are named in "
        f"{store.locate(f'{unit.folder}/{QUARANTINE}')}"
    )


def read_quarantine(store: Store, folder: str) -> list[dict[str, Any]]:
    """Return the images that a split lacks, each with its source and the reason."""
    path = f"{folder}/{QUARANTINE}"
    if not store.has(path):
        return []
    with pq.ParquetFile(io.BytesIO(store.read(path)), pre_buffer=False) as file:
        rows: list[dict[str, Any]] = file.read(use_threads=False).to_pylist()
        return rows
