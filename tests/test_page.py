"""The page in a browser: quiet, alone, sortable, legible on a phone, in the dark and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ace_ray.aggregate.studies import STUDIES
from ace_ray.report.page import page as page_of
from tests.gallery import contents, gallery
from tests.synthetic import arranged, config_of
from tests.test_report import HOSTILE, hostile_page

WIDTHS = {"desktop": 1280, "phone": 375}


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page with everything on it, and one whose every name is hostile."""
    folder = tmp_path_factory.mktemp("pages")
    found = {"gallery": gallery(), "hostile": hostile_page(HOSTILE)}
    for name, text in found.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in found}


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; the test fails if anything was said on its console or asked of the network."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file://")] == []
    assert len(asked) == len(contexts)


def overflow(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
@pytest.mark.parametrize("name", ["gallery", "hostile"])
def test_the_page_is_shown_whole(
    opened: Callable[..., Any], pages: dict[str, Path], name: str, device: str, scheme: str
) -> None:
    page = opened(pages[name], WIDTHS[device], scheme)
    assert overflow(page) <= 0
    panels = page.locator(".panels svg.chart")
    assert panels.count() == (17 if name == "gallery" else 3)
    for i in range(panels.count()):
        box = panels.nth(i).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 120
    assert page.locator("figure").count() == page.locator("figure h3:visible").count() > 0


BROKEN_WORDS = """[...document.querySelectorAll('tbody td:first-child')].flatMap(cell => {
  const broken = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); )
    for (const word of node.data.matchAll(/[A-Za-z]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(cell.textContent);
    }
  return broken;
})"""


@pytest.mark.parametrize("width", [1280, 768, 390, 375])
def test_names_of_rows_break_between_words(
    opened: Callable[..., Any], tmp_path: Path, width: int
) -> None:
    results = arranged(config_of(models=["test_resnet.glyphs", "vit_small_patch32_224.augreg"]))
    tables = [STUDIES[name].show(results) for name in ("ttest", "table1", "metrics", "alpha")]
    file = tmp_path / "page.html"
    file.write_text(page_of(contents(tables=tables)))
    page = opened(file, width)
    assert page.locator("tbody td:first-child").count() > 40
    assert page.evaluate(BROKEN_WORDS) == []
    assert overflow(page) <= 0


def test_the_run_has_a_page(small_run: dict[str, Any], opened: Callable[..., Any]) -> None:
    page = opened(Path(small_run["report"]), 375)
    assert overflow(page) <= 0
    run = Path(small_run["run_dir"])
    assert page.locator("table.sortable").count() == len(list((run / "tables").glob("*.json"))) >= 3
    assert "temperature+ACE" in page.locator("table").first.inner_text()
    assert page.locator("figure").count() == len(list((run / "figures").glob("*.svg"))) >= 2
    assert "temperature+ACE" in page.locator(".lead .first").inner_text()


def column(page: Any, table: int, index: int) -> list[str]:
    rows = page.locator("table.sortable").nth(table).locator("tbody tr")
    return [rows.nth(i).locator("td").nth(index).inner_text() for i in range(rows.count())]


def test_a_table_sorts_by_number_in_both_directions_and_back(
    opened: Callable[..., Any], pages: dict[str, Path]
) -> None:
    page = opened(pages["gallery"])
    before = column(page, 1, 1)
    assert before == ["9.5", "10.25", "-3", "100", "0.001"]
    head = page.locator("table.sortable").nth(1).locator("th").nth(1)
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(page, 1, 1) == ["-3", "0.001", "9.5", "10.25", "100"]
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, 1, 1) == ["100", "10.25", "9.5", "0.001", "-3"]
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "none"
    assert column(page, 1, 1) == before
    # By text, too; and only one column is the sorted one.
    page.locator("table.sortable").nth(1).locator("th button").first.click()
    head.locator("button").click()
    sorted_ = page.locator("table.sortable").nth(1).locator("th:not([aria-sort=none])")
    assert sorted_.count() == 1


def test_rows_stay_with_their_row_and_missing_ones_last(
    opened: Callable[..., Any], pages: dict[str, Path]
) -> None:
    page = opened(pages["gallery"])
    for clicks in (1, 2):
        page.locator("table.sortable").first.locator("th button").nth(1).click()
        names = column(page, 0, 0)
        assert names[names.index("temperature+ACE") + 1] == "p against temperature"
        assert names[names.index("spline+ACE") + 1] == "p against spline"
        assert names[-2:] == ["lost", "not asked"]
        values = [
            float(v.split()[0])
            for name, v in zip(names, column(page, 0, 1), strict=True)
            if not name.startswith("p ") and name not in ("lost", "not asked")
        ]
        assert values == sorted(values, reverse=clicks == 2)
        assert len(values) == 5


def test_wide_tables_scroll_in_their_own_box(
    opened: Callable[..., Any], pages: dict[str, Path]
) -> None:
    page = opened(pages["gallery"], 375)
    box = page.locator(".scroll").first
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    assert box.get_attribute("tabindex") == "0"
    left = box.locator("td").first.bounding_box()["x"]
    box.evaluate("e => e.scrollLeft = 200")
    assert box.locator("td").first.bounding_box()["x"] == pytest.approx(left, abs=1)


def test_the_dark_page_is_dark(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    def brightness(scheme: str) -> list[int]:
        page = opened(pages["gallery"], 1280, scheme)
        found = page.evaluate(
            "[document.body, document.querySelector('.card')].map("
            "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"
        )
        ink = page.evaluate(
            "getComputedStyle(document.querySelector('.chart text')).fill"
            ".match(/\\d+/g).map(Number)"
        )
        return [sum(found[0]), sum(found[1]), sum(ink)]

    light, dark = brightness("light"), brightness("dark")
    assert all(a > 600 > 150 > b for a, b in zip(light[:2], dark[:2], strict=True))
    assert light[2] < 400 < dark[2]


def test_paper_has_everything(
    opened: Callable[..., Any], pages: dict[str, Path], tmp_path: Path
) -> None:
    page = opened(pages["gallery"], 1280, "dark")
    essential = ".lead, .notice, .facts, table.sortable, .panels svg, .legend, pre, #provenance p"
    shown = page.locator(essential).count()
    page.emulate_media(media="print")
    assert page.locator(f":is({essential}):visible").count() == shown > 30
    # Ink on white, also for those who read in the dark.
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    )
    # Folded parts are opened for the printer, and folded again.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_the_contents_lead_to_every_section(
    opened: Callable[..., Any], pages: dict[str, Path]
) -> None:
    page = opened(pages["gallery"])
    links = page.locator("nav a")
    targets = [links.nth(i).get_attribute("href") for i in range(links.count())]
    assert len(targets) == len(set(targets)) == 15
    assert all(page.locator(target).count() == 1 for target in targets)
    assert page.locator("nav li", has_text="Reliability").locator("visible=true").count() > 0


def test_no_script_but_the_page_s_own_runs(
    browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    smuggled = (
        "<script>document.title = 'owned'</script><p onclick=\"document.title='owned'\">x</p>"
    )
    text = pages["gallery"].read_text().replace("<main>", f"<main>{smuggled}")
    for name, policy in (("with", "Content-Security-Policy"), ("without", "x")):
        (tmp_path / f"{name}.html").write_text(text.replace("Content-Security-Policy", policy))
    page = browser.new_page()
    page.goto((tmp_path / "without.html").as_uri())
    assert page.title() == "owned"
    page.goto((tmp_path / "with.html").as_uri())
    page.locator("main > p").click()
    assert "owned" not in page.title()
    page.close()


def test_failures_are_red_lines(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    page = opened(pages["gallery"])
    line = page.locator(".notice.failed p").first
    assert line.inner_text() == "failed: resnet152.tv_in1k spline+ace d=10 seed 3: its worker died"
    # One block for trials that failed alike.
    alike = page.locator(".notice.failed").nth(1)
    assert alike.locator("p").inner_text().startswith("failed: hard set: difficulty 3 needs")
    assert alike.locator("li:visible").count() == 2
    assert page.locator(".notice.failed").count() == 2
    colour = line.evaluate("e => getComputedStyle(e).color.match(/\\d+/g).map(Number)")
    assert colour[0] > 2 * max(colour[1:])
