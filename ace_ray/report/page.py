"""The page: one file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from ace_ray.aggregate.table import Cell, Table
from ace_ray.report.compose import Composed, style, swatch
from ace_ray.report.escape import breakable, clean, markup
from ace_ray.report.provenance import LogitSource, Warned
from ace_ray.report.text import ARROWS, notes_of, number_of, rank_of


class Contents(NamedTuple):
    """What the page shows."""

    manifest: Mapping[str, Any]
    sentences: Sequence[str]
    missing: Mapping[str, str]  # trials without a record, and why
    warnings: Sequence[Warned]
    tables: Sequence[Table]
    figures: Sequence[Composed]
    sources: Sequence[LogitSource]
    config: str  # as YAML


def page(contents: Contents) -> str:
    """Return the report as HTML. Its own script is the only one that a browser will run."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"clean": clean, "arrows": _arrows, "lines": _lines}
    environment.filters["breakable"] = lambda text: Markup(breakable(text))  # noqa: S704 - escaped
    manifest = contents.manifest
    script = _part("page.js")
    # The policy names the script by its digest: no other one runs, however it came in.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_part("page.html")).render(
        contents._asdict(),
        run_id=manifest["run_id"],
        key=manifest["key"],
        versions=list(manifest.get("versions", {}).items()),
        git=_git(manifest),
        models=_names(manifest["config"]["models"]),
        benchmarks=_names(manifest["config"]["benchmarks"]),
        facts=_facts(contents),
        failed=_failed(contents.missing),
        quarantine=_quarantine(contents.sources),
        notes_of=notes_of,
        indented=_indented,
        ranked=_ranked,
        shown=_cell,
        swatch=swatch,
        style=Markup(style() + _part("page.css")),  # noqa: S704 - files of this package
        script=Markup(script),  # noqa: S704
        script_digest=f"sha256-{digest}",
    )


def _part(name: str) -> str:
    return files("ace_ray.report").joinpath(name).read_text(encoding="utf-8")


def _names(entries: Sequence[Any]) -> list[str]:
    return [str(e["name"] if isinstance(e, Mapping) else e) for e in entries]


def _arrows(text: str) -> str:
    return text.replace("->", "→")


def _lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def _indented(row: Sequence[Cell]) -> bool:
    return row[0].text.startswith(" ")


def _ranked(table: Table) -> bool:
    return any(rank_of(cell) in (1, 2) for row in table.rows for cell in row)


def _cell(cell: Cell) -> Markup:
    """Return a cell as `td`; its value, by which the table is sorted, stands beside its text."""
    value = number_of(cell)
    rank = {1: "rank1", 2: "rank2"}.get(rank_of(cell) or 0)
    classes = [name for name in (cell.mark, rank) if name]
    text, sign, spread = cell.text.strip().partition("±")
    inner = breakable(text) if isinstance(cell.value, str) else markup(text)
    inner += f'<span class="sd">±{markup(spread)}</span>' if sign else ""
    if cell.mark in ARROWS:
        hidden = f'<span class="visually-hidden"> {markup(cell.mark)}</span>'
        inner += f' <span aria-hidden="true">{ARROWS[cell.mark]}</span>{hidden}'
    chosen = f' class="{markup(" ".join(classes))}"' if classes else ""
    known = "" if value is None else f' data-v="{value!r}"'
    return Markup(f"<td{chosen}{known}>{inner}</td>")  # noqa: S704 - every part is escaped


def _git(manifest: Mapping[str, Any]) -> str:
    """Return the state of the source where it was recorded: `{commit, dirty}` or a text."""
    found = manifest.get("git")
    if not isinstance(found, Mapping):
        return str(found or "")
    changed = "with uncommitted changes" if found.get("dirty") else "without changes"
    return f"git commit {found.get('commit')}, {changed}"


def _failed(missing: Mapping[str, str]) -> list[Warned]:
    """Return each reason once, with the trials that it failed."""
    found: dict[str, list[str]] = {}
    for trial, reason in missing.items():
        found.setdefault(reason or "no record yet, run again", []).append(trial)
    return [Warned(reason, trials) for reason, trials in found.items()]


def _facts(contents: Contents) -> list[tuple[str, str]]:
    config = contents.manifest["config"]
    sweep = config.get("sweep", {})
    rows = [s.rows for s in contents.sources if s.rows is not None]
    trials = contents.manifest.get("trials", {})
    facts = [
        ("models", f"{len(config['models'])}"),
        ("calibrators", ", ".join(map(str, sweep.get("calibrators", [])))),
        ("difficulty", _few([f"{d:g}" for d in sweep.get("difficulty", [])])),
        ("seeds", _few([str(seed) for seed in sweep.get("seeds", [])])),
        ("splits", f"{len(contents.sources)}"),
        ("samples", f"{sum(rows):,}"),
        ("trials", f"{len(trials) - len(contents.missing):,} of {len(trials):,}"),
    ]
    return [(name, value) for name, value in facts if value and value != "0"]


def _few(values: Sequence[str]) -> str:
    """Return values, or first, last and how many where there are many."""
    if len(values) <= 6:
        return ", ".join(values)
    return f"{values[0]} … {values[-1]} ({len(values)})"


def _quarantine(sources: Sequence[LogitSource]) -> str:
    counts = [s.quarantined for s in sources if s.quarantined is not None]
    if not counts:
        return "Quarantined images: not counted for these tables."
    if not any(counts):
        return "Quarantined images: none."
    some = sum(count > 0 for count in counts)
    return f"Quarantined images: {sum(counts):,}, in {some} of {len(sources)} tables."
