r"""Tables as LaTeX: a fragment for `\input`, which needs booktabs and graphicx."""

from __future__ import annotations

import re
from typing import Final

from ace_ray.aggregate.table import Cell, Table
from ace_ray.report.escape import clean, latex_text
from ace_ray.report.text import notes_of, rank_of

# textcomp is part of LaTeX since 2020; T1 has the straight quote.
PREAMBLE: Final = r"""\usepackage[T1]{fontenc}
\usepackage{textcomp}
\usepackage{booktabs}
\usepackage{graphicx}"""
# A table that is wider than the text is made smaller; others keep their size.
_FITTED: Final = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_MARKS: Final = {"better": r"$^{\bigtriangleup}$", "worse": r"$^{\bigtriangledown}$"}
_SIGNS: Final = {"▲": r"$\bigtriangleup$", "▼": r"$\bigtriangledown$"}


def latex(table: Table) -> str:
    """Return a `table` environment; the best is bold, the second underlined."""
    head = _line([latex_text(name) for name in table.columns])
    body = []
    for i, row in enumerate(table.rows):
        # A block of rows begins where a plain label follows the indented ones of another.
        begins = i and table.rows[i - 1][0].text[:1] == " " and row[0].text[:1] != " "
        body += [r"\addlinespace"] if begins else []
        body.append(_line([_label(row[0]), *(_cell(cell) for cell in row[1:])]))
    notes = [rf"\par\smallskip{{\footnotesize {_note(note)}.\par}}" for note in notes_of(table)]
    label = re.sub(r"[^A-Za-z0-9-]", "-", table.name)
    return "\n".join(
        [
            *(f"% {line}" for line in PREAMBLE.splitlines()),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(table.title)}}}",
            rf"\label{{tab:{label}}}",
            _FITTED,
            rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _label(cell: Cell) -> str:
    text = clean(cell.text)
    indent = r"\quad " if text.startswith(" ") else ""
    return indent + latex_text(text.strip())


def _cell(cell: Cell) -> str:
    text = cell.text.strip()
    minus = re.match(r"-(?=[\d.])", text) is not None
    text = f"$-${latex_text(text[1:])}" if minus else latex_text(text)
    ranked = {1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}
    return ranked.get(rank_of(cell) or 0, text) + _MARKS.get(cell.mark, "")


def _note(note: str) -> str:
    parts = re.split("([▲▼])", clean(note).rstrip("."))
    return "".join(_SIGNS.get(part, latex_text(part)) for part in parts)
