"""`leaderboard.html`: every model that was ever watched, with its trend, on one page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

import jinja2
from markupsafe import Markup

from ace_ray.report.compose import style
from ace_ray.report.escape import breakable, clean, markup
from ace_ray.store import Store
from ace_ray.watch.history import INSIDE, SHIFTED, Entry, Measure, read_history

PATH: Final = "leaderboard.html"
_WIDTH, _HEIGHT, _EDGE = 112, 30, 5


class Column(NamedTuple):
    """A benchmark's test images, in-distribution or shifted."""

    benchmark: str
    group: str
    name: str


class Line(NamedTuple):
    """A model's newest row, and all of its rows, oldest first."""

    entry: Entry
    past: Sequence[Entry]
    cells: Sequence[tuple[float | None, float | None, float | None]]  # raw, before, after ACE
    accuracy: Sequence[float | None]
    alpha: Sequence[float | None]
    spark: str


class Board(NamedTuple):
    """Models that were measured alike, best first."""

    settings: str
    calibrator: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    updated: str


def boards(entries: Sequence[Entry]) -> list[Board]:
    """Return one board per settings, the one that was used last first."""
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda e: e.date):
        groups.setdefault(entry.settings, []).append(entry)
    ordered = sorted(groups.values(), key=lambda rows: rows[-1].date, reverse=True)
    return [_board(rows) for rows in ordered]


def _board(rows: Sequence[Entry]) -> Board:
    newest = rows[-1]
    calibrator = next((m.calibrator for m in newest.measures if m.calibrator), None)
    places = dict.fromkeys(
        (m.benchmark, group)
        for group in (INSIDE, SHIFTED)
        for e in rows
        for m in e.measures
        if m.group == group
    )
    columns = [Column(b, g, f"{b} {'ID' if g == INSIDE else 'shifted'}") for b, g in places]
    models: dict[str, list[Entry]] = {}
    for entry in rows:
        models.setdefault(entry.model, []).append(entry)
    lines = [_line(past, columns, calibrator) for past in models.values()]
    lines.sort(key=lambda line: (_score(line) is None, _score(line) or 0.0, line.entry.model))
    return Board(
        newest.settings, calibrator or "none", columns, lines, f"{newest.date:%Y-%m-%d %H:%M} UTC"
    )


def _score(line: Line) -> float | None:
    """Return what models are ranked by: the last column's ECE after ACE, or what there is."""
    *_, (raw, before, after) = line.cells or [(None, None, None)]
    return next((v for v in (after, before, raw) if v is not None), None)


def _line(past: Sequence[Entry], columns: Sequence[Column], calibrator: str | None) -> Line:
    entry = past[-1]
    cells, accuracy, alpha = [], [], []
    for column in columns:
        found = [_find(entry, column, calibrator, m) for m in ("uncalibrated", "alone", "ace")]
        raw, before, after = (m.mean if m else None for m in found)
        cells.append((raw, before, after))
        accuracy.append(next((m.accuracy for m in found if m), None))
        alpha.append(found[2].alpha if found[2] else None)
    trend = []
    for e in past:
        own = [_find(e, columns[-1], calibrator, m) for m in ("ace", "alone", "uncalibrated")]
        trend.append(next((m.mean for m in own if m), None))
    return Line(entry, past, cells, accuracy, alpha, sparkline(past, trend))


def _find(entry: Entry, column: Column, calibrator: str | None, method: str) -> Measure | None:
    wanted = None if method == "uncalibrated" else calibrator
    return next(
        (
            m
            for m in entry.measures
            if (m.benchmark, m.group, m.calibrator, m.method)
            == (column.benchmark, column.group, wanted, method)
        ),
        None,
    )


def sparkline(past: Sequence[Entry], values: Sequence[float | None]) -> str:
    """Return a trend as inline SVG: one point per run, the last one marked, up is worse."""
    points = [(e, v) for e, v in zip(past, values, strict=True) if v is not None]
    if not points:
        return ""
    known = [v for _, v in points]
    low, span = min(known), (max(known) - min(known)) or 1.0
    flat = max(known) == min(known)
    places = []
    for i, (_, v) in enumerate(points):
        x = _EDGE + (i / (len(points) - 1) if len(points) > 1 else 0.5) * (_WIDTH - 2 * _EDGE)
        y = _HEIGHT / 2 if flat else _EDGE + (1 - (v - low) / span) * (_HEIGHT - 2 * _EDGE)
        places.append((x, y))
    path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    line = f'<path class="l c1" d="{path}"/>' if len(places) > 1 else ""
    dots = []
    for i, ((e, v), (x, y)) in enumerate(zip(points, places, strict=True)):
        last, bad = i == len(points) - 1, bool(e.regressions)
        radius, colour = (3.6 if last or bad else 2.2), (7 if bad else 1)
        tip = f"{e.date:%Y-%m-%d %H:%M}: ECE {100 * v:.2f} %{', regression' if bad else ''}"
        dots.append(
            f'<circle class="p c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
            f"<title>{markup(tip)}</title></circle>"
        )
    spoken = f"{len(points)} runs, ECE " + " to ".join(
        f"{100 * v:.2f} %" for v in dict.fromkeys((known[0], known[-1]))
    )
    return (
        f'<svg class="chart spark" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" aria-label="{markup(spoken)}">{line}{"".join(dots)}</svg>'
    )


def page(entries: Sequence[Entry]) -> str:
    """Return the leaderboard as HTML; its own script is the only one that a browser will run."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["clean"] = clean
    environment.filters["breakable"] = lambda text: Markup(breakable(text))  # noqa: S704 - escaped
    script = _part("ace_ray.report", "page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    css = style() + _part("ace_ray.report", "page.css") + _part("ace_ray.watch", "leaderboard.css")
    found = boards(entries)
    return environment.from_string(_part("ace_ray.watch", "leaderboard.html")).render(
        boards=found,
        worse=[
            (line.entry, text) for b in found for line in b.lines for text in line.entry.regressions
        ],
        models=len({e.model for e in entries}),
        runs=len(entries),
        percent=_percent,
        shown=_shown,
        style=Markup(css),  # noqa: S704 - files of this package
        script=Markup(script),  # noqa: S704
        script_digest=f"sha256-{digest}",
    )


def _part(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _shown(value: float | None) -> Markup:
    """Return the attribute by which a cell is sorted."""
    return Markup("") if value is None else Markup(f' data-v="{value!r}"')  # noqa: S704


def write_leaderboard(store: Store) -> list[Entry]:
    """Write the page from the history; return the history."""
    entries = read_history(store)
    store.write(PATH, page(entries).encode())
    return entries


def as_plain(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the boards for `--json`, ECE as fractions."""
    return [
        {
            "settings": board.settings,
            "calibrator": board.calibrator,
            "models": [
                {
                    "model": line.entry.model,
                    "date": line.entry.date.isoformat(),
                    "run_id": line.entry.run_id,
                    "key": line.entry.key,
                    "weights": line.entry.weights,
                    "runs": len(line.past),
                    "regressions": line.entry.regressions,
                    "benchmarks": [
                        {
                            "benchmark": column.benchmark,
                            "group": column.group,
                            "accuracy": accuracy,
                            "ece_uncalibrated": raw,
                            "ece_before": before,
                            "ece_after": after,
                            "alpha": alpha,
                        }
                        for column, (raw, before, after), accuracy, alpha in zip(
                            board.columns, line.cells, line.accuracy, line.alpha, strict=True
                        )
                    ],
                }
                for line in board.lines
            ],
        }
        for board in boards(entries)
    ]
