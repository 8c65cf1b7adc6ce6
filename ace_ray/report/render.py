"""Write a run's report from what aggregation committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow.parquet as pq

from ace_ray.aggregate.figure import Figure
from ace_ray.aggregate.table import Table
from ace_ray.identity import digest
from ace_ray.report.columns import parquet
from ace_ray.report.compose import Composed, compose, standalone
from ace_ray.report.escape import clean
from ace_ray.report.figures import reliability_figures, severity_figure
from ace_ray.report.latex import latex
from ace_ray.report.page import Contents, page
from ace_ray.report.provenance import Warned, grouped, logit_sources, noticed
from ace_ray.report.text import comma_separated, markdown
from ace_ray.store import Store, encode

# Raise it when the same tables give another report: finished runs are then rendered again.
REPORT_CODE: Final = "report-6"
_LOOKED_AT: Final = (
    "model", "benchmark", "split", "role", "method", "difficulty", "fixed_alpha", "batch",
    "alpha", "alpha_raw", "n", "accuracy",
)  # fmt: skip
_LONGEST: Final = 150  # of a file's name, without what the store adds while it writes


def read_tables(store: Store, run_id: str, studies: Sequence[str]) -> list[Table]:
    """Return a run's tables in the order of its studies; some studies have a figure instead."""
    paths = [f"runs/{run_id}/tables/{study}.json" for study in studies]
    return [Table.from_plain(store.read_json(path)) for path in paths if store.has(path)]


def read_figures(store: Store, run_id: str, studies: Sequence[str]) -> list[Figure]:
    """Return a run's figures in the order of its studies."""
    paths = [f"runs/{run_id}/figures/{study}.json" for study in studies]
    return [Figure.from_plain(store.read_json(path)) for path in paths if store.has(path)]


def warned(store: Store, run_id: str) -> list[Warned]:
    """Return what the trials and the measurements of a run warn of."""
    folder = f"runs/{run_id}"
    trials = store.read_json(f"{folder}/summary.json")["warnings"]
    return [*grouped(trials), *noticed(_measurements(store, folder))]


def render(store: Store, run_id: str, studies: Sequence[str]) -> list[str]:
    """Write tables, figures and the page; return all paths of the report in the store."""
    folder = f"runs/{run_id}"
    inputs = [
        path
        for study in studies
        for path in (f"{folder}/tables/{study}.json", f"{folder}/figures/{study}.json")
        if store.has(path)
    ]
    lost = [s for s in studies if not any(path.endswith(f"/{s}.json") for path in inputs)]
    tables = read_tables(store, run_id, studies)
    summary = store.read_json(f"{folder}/summary.json")
    figures = _composed(tables, read_figures(store, run_id, studies), summary)
    manifest = store.read_json(f"{folder}/manifest.json")
    contents = Contents(
        manifest,
        summary["sentences"],
        summary["missing"],
        [
            *(Warned(f"study {study} has no table and no figure", []) for study in lost),
            *warned(store, run_id),
        ],
        tables,
        figures,
        logit_sources(store, manifest),
        store.read(f"{folder}/config.yaml").decode(),
    )
    outputs = {f"{folder}/report.html": page(contents).encode()}
    for table in tables:
        path = f"{folder}/tables/{table.name}"
        outputs[f"{path}.md"] = markdown(table).encode()
        outputs[f"{path}.tex"] = latex(table).encode()
        outputs[f"{path}.csv"] = comma_separated(table).encode()
        outputs[f"{path}.parquet"] = parquet(table)
    for composed in figures:
        outputs[f"{folder}/figures/{_file_name(composed.figure.name)}.svg"] = standalone(
            composed
        ).encode()
    for path, data in outputs.items():
        store.write(path, data)
    return [*inputs, *outputs]


def _file_name(name: str) -> str:
    """Return a figure's name as a file's; a model may be called longer than a file can."""
    encoded = encode(clean(name))
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{encoded[:_LONGEST].partition('%')[0]}-{digest(clean(name).encode())[:12]}"


def _composed(
    tables: Sequence[Table], given: Sequence[Figure], summary: dict[str, Any]
) -> list[Composed]:
    """Draw the figures of the studies and those that the report makes itself."""
    made = [severity_figure(table) for table in tables if table.name == "severity"]
    known = {figure.name for figure in given}
    own = [f for f in made if f is not None and not {f.name, "severity"} & known]
    diagrams = reliability_figures(summary["diagrams"])
    return [compose(figure) for figure in (*own, *given)] + [
        compose(figure, reliability=True) for figure in diagrams
    ]


def _measurements(store: Store, folder: str) -> list[dict[str, Any]]:
    """Return what warnings are looked for in, from the results."""
    with store.reading(f"{folder}/results.parquet") as stream:
        file = pq.ParquetFile(stream)
        columns = [name for name in _LOOKED_AT if name in file.schema_arrow.names]
        table = file.read(columns=columns, use_threads=False)
    # Each once: a weight does not depend on seed or calibrator, and trials are many.
    rows: list[dict[str, Any]] = (
        table.group_by(columns, use_threads=False).aggregate([]).to_pylist()
    )
    return rows
