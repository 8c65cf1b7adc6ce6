"""Write a run's report from what aggregation committed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

import jinja2

from ace_ray.aggregate.table import Table
from ace_ray.report.figures import reliability_figures, severity_figure
from ace_ray.report.text import comma_separated, markdown, shown
from ace_ray.store import Store, encode

# Raise it when the same tables give another report: finished runs are then rendered again.
REPORT_CODE: Final = "report-3"


def read_tables(store: Store, run_id: str, studies: Sequence[str]) -> list[Table]:
    """Return a run's tables in the order of its studies."""
    paths = [f"runs/{run_id}/tables/{s}.json" for s in studies if not s.startswith("fig_")]
    return [Table.from_plain(store.read_json(path)) for path in paths]


def render(store: Store, run_id: str, studies: Sequence[str]) -> list[str]:
    """Write tables (Markdown, CSV), figures (SVG) and the page; return their paths in the store."""
    folder = f"runs/{run_id}"
    manifest = store.read_json(f"{folder}/manifest.json")
    summary = store.read_json(f"{folder}/summary.json")
    tables = read_tables(store, run_id, studies)
    figures = _figures(tables, summary)
    files_: dict[str, str] = {}
    for table in tables:
        files_[f"{folder}/tables/{table.name}.md"] = markdown(table)
        files_[f"{folder}/tables/{table.name}.csv"] = comma_separated(table)
    for name, svg in figures.items():
        files_[f"{folder}/figures/{encode(name)}.svg"] = svg
    config = store.read(f"{folder}/config.yaml").decode()
    files_[f"{folder}/report.html"] = _page(
        manifest, summary, tables, list(figures.values()), config
    )
    for path, text in files_.items():
        store.write(path, text.encode())
    return list(files_)


def _figures(tables: list[Table], summary: dict[str, Any]) -> dict[str, str]:
    figures: dict[str, str] = {}
    for table in tables:
        if table.name == "severity":
            figures |= severity_figure(table)
    return figures | reliability_figures(summary["diagrams"])


def _page(
    manifest: dict[str, Any],
    summary: dict[str, Any],
    tables: list[Table],
    figures: list[str],
    config: str,
) -> str:
    template = files("ace_ray.report").joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template).render(
        title=manifest["run_id"],
        run_id=manifest["run_id"],
        key=manifest["key"],
        models=manifest["config"]["models"],
        benchmarks=[b["name"] for b in manifest["config"]["benchmarks"]],
        sentences=summary["sentences"],
        warnings=summary["warnings"],
        missing=summary["missing"],
        tables=tables,
        figures=figures,
        shown=shown,
        config=config,
    )
