"""Make the pictures of `docs/studies.md` from a run: `python tools/pictures.py RUN_DIR`.

ace-ray run configs/glyphs-studies.yaml
python tools/pictures.py ace-store/runs/<run_id>
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from ace_ray.aggregate.figure import Figure
from ace_ray.aggregate.table import Cell, Table
from ace_ray.config import STUDIES
from ace_ray.report.compose import compose, standalone, style
from ace_ray.report.escape import markup
from ace_ray.report.svg import shortened, wrapped
from ace_ray.report.text import rank_of, shown

PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"
_LETTER: Final = 7.0  # mean width at 12 px, with room for a wider font
_BOLD: Final = 7.8
_GAP: Final = 18
_LINE: Final = 21
_EDGE: Final = 14
_STYLE: Final = """.chart .v{fill:var(--ink)}.chart .better{fill:var(--c3)}.chart .worse,.chart .missing{fill:var(--c7)}
.chart .rank1{font-weight:700}.chart .rank2{text-decoration:underline}"""  # noqa: E501


def table_svg(table: Table) -> str:
    """Return a table as an SVG file, marks and ranks as the report shows them."""
    grid = [[shortened(shown(cell).strip(), 48) for cell in row] for row in table.rows]
    head = [wrapped(name, 24 if i == 0 else 16, 2) for i, name in enumerate(table.columns)]
    widths = [
        _GAP
        + max(*(_BOLD * len(line) for line in head[i]), *(_LETTER * len(row[i]) for row in grid))
        for i in range(len(head))
    ]
    title = wrapped(table.title, int(max(sum(widths), 300) / 8.4), 2)
    width = round(max(sum(widths), 300) + 2 * _EDGE)
    ends = [_EDGE + sum(widths[: i + 1]) for i in range(len(widths))]
    out = [
        f'<text class="t" style="font-size:14px" x="{_EDGE}" y="{24 + 18 * i}">'
        f"{markup(line)}</text>"
        for i, line in enumerate(title)
    ]
    y = 24 + 18 * len(title) + 10
    lines = max(map(len, head))
    for i, name in enumerate(head):
        for j, line in enumerate(name):
            place = _place(i, ends[i], y + 15 * (j + lines - len(name)))
            out.append(f'<text class="t" {place}>{markup(line)}</text>')
    y += 15 * lines - 4
    out.append(_rule(y, width, "g"))
    for row, texts in zip(table.rows, grid, strict=True):
        y += _LINE
        inner = row[0].text.startswith(" ")
        for i, (cell, text) in enumerate(zip(row, texts, strict=True)):
            where = _place(i, ends[i], y - 6, indent=12 if inner else 0)
            out.append(f'<text class="{_class(cell, inner)}" {where}>{markup(text)}</text>')
        out.append(_rule(y, width, "g"))
    height = y + _EDGE
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<title>{markup(table.title)}</title><style>{style()}{_STYLE}</style>"
        f'<rect class="paper" width="{width}" height="{height}"/>{"".join(out)}</svg>\n'
    )


def _place(column: int, end: float, y: float, indent: int = 0) -> str:
    if column == 0:
        return f'x="{_EDGE + indent}" y="{y}"'
    return f'x="{end:.0f}" y="{y}" text-anchor="end"'


def _rule(y: float, width: int, kind: str) -> str:
    return f'<line class="{kind}" x1="{_EDGE}" x2="{width - _EDGE}" y1="{y}" y2="{y}"/>'


def _class(cell: Cell, inner: bool) -> str:
    names = ["" if inner else "v", cell.mark, f"rank{rank_of(cell)}" if rank_of(cell) else ""]
    return " ".join(name for name in names if name)


def pictures(run: Path) -> dict[str, str]:
    """Return an SVG per study of a run, by name."""
    found = {}
    for study in STUDIES:
        table, figure = run / f"tables/{study}.json", run / f"figures/{study}.json"
        if table.is_file():
            found[study] = table_svg(Table.from_plain(json.loads(table.read_text())))
        elif figure.is_file():
            found[study] = standalone(compose(Figure.from_plain(json.loads(figure.read_text()))))
    return found


def main() -> None:
    """Write the pictures of a run's studies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run's folder in a store")
    parser.add_argument("--out", type=Path, default=PICTURES)
    arguments = parser.parse_args()
    found = pictures(arguments.run)
    if not found:
        parser.error(f"{arguments.run}: has no table and no figure of a study")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for study, svg in found.items():
        (arguments.out / f"{study}.svg").write_text(svg)
    print(f"{len(found)} pictures in {arguments.out}")


if __name__ == "__main__":
    main()
