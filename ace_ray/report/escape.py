"""Names made inert: whatever a model, class or benchmark is called, it stays text."""

from __future__ import annotations

import re
from html import escape
from typing import Final

# Controls break XML and terminals, lone surrogates UTF-8, and bidirectional overrides reading.
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_MARKDOWN: Final = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# Where a name may be broken: behind what joins its words, never inside one or inside a number.
_JOINT: Final = re.compile(r"(?<=[+._/-])(?=[^\W\d_])")
_FORMULA: Final = ("=", "+", "-", "@")
_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after `\\` it would begin an option
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "→": r"$\to$",
    "−": r"$-$",
    "α": r"$\alpha$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\dots{}",
    "\u00a0": "~",
}
_ACCENTED: Final = range(0xC0, 0x100)  # pdfLaTeX knows these letters; no others are certain


def clean(text: str) -> str:
    """Return one line of text without characters that no format can carry."""
    return _UNFIT.sub("\ufffd", re.sub(r"\s*[\r\n\t]+\s*", " ", text))


def markup(text: str) -> str:
    """Return text for HTML and SVG, in an element or an attribute."""
    return escape(clean(text), quote=True)


def breakable(text: str) -> str:
    """Return text for HTML that a narrow column breaks between the words of a name."""
    return "<wbr>".join(markup(part) for part in _JOINT.split(clean(text)))


def markdown_text(text: str) -> str:
    """Return text for a cell of a Markdown table: no HTML, no emphasis, no new column."""
    marked = _MARKDOWN.sub(lambda found: f"\\{found[0]}", clean(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").strip()


def latex_text(text: str) -> str:
    """Return text for LaTeX; a letter that pdfLaTeX may lack is written as its code point."""
    out = []
    for letter in clean(text):
        plain = letter.isascii() or ord(letter) in _ACCENTED
        out.append(_LATEX.get(letter, letter if plain else rf"\texttt{{U+{ord(letter):04X}}}"))
    # No ligatures: two hyphens are not a dash.
    return re.sub(r"-(?=-)", "-{}", "".join(out))


def csv_text(text: str) -> str:
    """Return text that no spreadsheet takes for a formula; a number stays a number."""
    text = clean(text)
    if not text.lstrip().startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
