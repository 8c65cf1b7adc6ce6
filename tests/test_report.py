"""The report: self-contained, inert against hostile names, and a page a browser can show."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ace_ray.aggregate.table import Cell, Table, label, missing, p_text
from ace_ray.report.render import _page
from ace_ray.report.svg import Axis, Line, chart, nice_axis
from ace_ray.report.text import comma_separated, markdown, terminal

HOSTILE = '<script>alert(1)</script> | "x" & y'
TABLE = Table(
    "t",
    "Title",
    ["method", "a|b"],
    [
        [label("uncalibrated"), Cell(12.345678, "12.35")],
        [label(HOSTILE), Cell(1.5, "1.50 ±0.010", "better")],
        [label("lost"), missing()],
    ],
    ["a note"],
)


def test_terminal_columns_line_up() -> None:
    lines = terminal(TABLE).splitlines()
    assert lines[0] == "Title"
    assert lines[4].endswith("12.35")
    assert lines[5].endswith("1.50 ±0.010 ▲")
    assert len(lines[4]) == len(lines[5])
    assert "never a mean over fewer" in lines[-1]


def test_markdown_keeps_its_columns() -> None:
    rows = [line for line in markdown(TABLE).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3


def test_csv_has_full_precision_and_names_what_is_missing() -> None:
    lines = comma_separated(TABLE).splitlines()
    assert lines[1] == "uncalibrated,12.345678"
    assert lines[3] == "lost,missing"


def test_tables_survive_json() -> None:
    assert Table.from_plain(TABLE.as_plain()) == TABLE


def test_p_values_as_people_write_them() -> None:
    assert [p_text(p) for p in (None, 0.0, 0.04999, 1.0)] == [
        "deterministic", "<0.0001", "0.0500", "1.0000",
    ]  # fmt: skip


def test_figures_are_valid_xml_with_hostile_names() -> None:
    svg = chart(
        HOSTILE,
        Axis(HOSTILE, 0, 1, [(0, HOSTILE)]),
        nice_axis("y", 7.3),
        [Line(HOSTILE, [0.5], [1])],
    )
    tree = ElementTree.fromstring(svg)
    assert not [e for e in tree.iter() if e.tag.endswith("script")]


@pytest.mark.parametrize("top", [1e-12, 0.003, 1, 7.3, 29.96, 1000])
def test_axes_end_at_or_above_the_data(top: float) -> None:
    axis = nice_axis("y", top)
    assert axis.high >= top
    assert 1 <= len(axis.ticks) <= 8


def test_hostile_names_are_inert_in_the_page() -> None:
    manifest = {
        "run_id": "r",
        "key": "k",
        "config": {"models": [HOSTILE], "benchmarks": [{"name": HOSTILE}]},
    }
    summary = {"sentences": [HOSTILE], "warnings": [HOSTILE], "missing": [HOSTILE]}
    page = _page(manifest, summary, [TABLE], [], HOSTILE)
    assert "<script" not in page


def test_the_page_refers_to_nothing_outside(small_run: dict[str, Any]) -> None:
    page = Path(small_run["report"]).read_text()
    assert "<script" not in page
    links = set(re.findall(r"""(?:src|href)\s*=\s*["']([^"']+)""", page))
    assert not links
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine; `.ci/run` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
        chromium = playwright.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_a_browser_shows_the_page(
    small_run: dict[str, Any], browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(Path(small_run["report"]).as_uri())
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert problems == []
    assert [r for r in requests if not r.startswith("file://")] == []
    assert page.locator("figure svg").count() == 3
    for i in range(3):
        box = page.locator("figure svg").nth(i).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 120
    assert page.locator("table").count() == 7
    assert "temperature+ACE" in page.locator("table").first.inner_text()
    # The page itself never scrolls sideways; wide tables scroll in their own box.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
