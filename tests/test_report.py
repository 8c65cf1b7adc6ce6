"""The report: the same table in every format, inert against hostile names, warnings found."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ace_ray.aggregate.figure import Curve, Figure, Panel
from ace_ray.aggregate.table import Cell, Table, label, missing, p_text
from ace_ray.report.axes import is_geometric, linear, logarithmic
from ace_ray.report.columns import METADATA, parquet
from ace_ray.report.compose import compose, standalone, style
from ace_ray.report.escape import clean, csv_text, latex_text, markdown_text
from ace_ray.report.figures import reliability_figures, wilson
from ace_ray.report.latex import PREAMBLE, latex
from ace_ray.report.page import page
from ace_ray.report.palette import looks
from ace_ray.report.provenance import LogitSource, Warned, grouped, noticed
from ace_ray.report.render import _file_name, render
from ace_ray.report.text import comma_separated, markdown, shown, terminal
from ace_ray.source_state import source_state
from ace_ray.store import Store
from tests import gallery

HOSTILE = (
    '</title></script><script>alert(1)</script><img src=x onerror="alert(2)"> | "x" & y \\input{'
    "/etc/passwd} $x$ 100% #1 _a_ ^~ 'q' `b` é 猫 \x1b[31m\x00 \u202e {{ 7 * 7 }} {% raw %} "
    + "n"
    * 300
)
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


class Ranked(NamedTuple):
    """A cell as it is once aggregation ranks."""

    value: float | str | None
    text: str
    mark: str = ""
    rank: int | None = None


RANKED: Any = Table(
    "r",
    "Ranked",
    ["method", "ECE"],
    [
        [Ranked("a", "a"), Ranked(1.0, "1.00", "better", 1)],
        [Ranked("b", "b"), Ranked(2.0, "2.00", "", 2)],
        [Ranked("c", "c"), Ranked(3.0, "-3.00", "", 3)],
    ],  # type: ignore[list-item]
    [],
)


def everywhere(name: str) -> tuple[Table, Figure]:
    table = Table(name, name, [name, name], [[label(name), Cell(1.0, name, name)]], [name])
    curves = [Curve(name, [0.0, 1.0], [0.0, 1.0], drawn=how) for how in ("line", "area", "points")]
    bars = Curve(f"{name}2", [0.0], [1.0], [0.5], [1.5], "bars")
    panel = Panel(name, [*curves, bars], [name, name], [(0.5, name), (0.7, f"{name}3")])
    return table, Figure(name, name, name, name, [panel, panel._replace(ticks=None)], [name])


def hostile_page(name: str) -> str:
    table, figure = everywhere(name)
    config = {"models": [name, {"name": name}], "benchmarks": [{"name": name}], "sweep": {}}
    manifest = {
        "run_id": name, "key": name, "config": config, "versions": {name: name},
        "trials": {}, "git": name,
    }  # fmt: skip
    diagrams = [{**d, "method": name, "group": name} for d in gallery.diagrams(name)]
    figures = [compose(figure)] + [
        compose(f, reliability=True) for f in reliability_figures(diagrams)
    ]
    return page(
        gallery.contents(
            manifest=manifest, sentences=[name, name], missing={name: name}, tables=[table],
            warnings=[Warned(name, [name])], figures=figures, config=name,
            sources=[LogitSource(name, name, 1, 1)],
        )
    )  # fmt: skip


def test_terminal_columns_line_up() -> None:
    lines = terminal(TABLE).splitlines()
    assert lines[0] == "Title"
    assert lines[4].endswith("12.35")
    assert lines[5].endswith("1.50 ±0.010 ▲")
    assert "\x1b" not in terminal(TABLE)
    assert "never a mean over fewer" in lines[-1]
    wide = Table("t", "T", ["猫", "b"], [[label("a"), Cell(1.0, "1")]], [])
    assert terminal(wide).splitlines()[2:5:2] == ["猫  b", "a   1"]


def test_markdown_keeps_its_columns() -> None:
    rows = [line for line in markdown(TABLE).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3
        assert "<" not in row
    assert markdown_text("gaussian_noise _x_ **b** [a](b)") == (
        r"gaussian_noise \_x\_ \*\*b\*\* \[a\](b)"
    )


def test_csv_has_full_precision_and_names_what_is_missing() -> None:
    rows = list(csv.reader(io.StringIO(comma_separated(TABLE))))
    assert rows[1] == ["uncalibrated", "12.345678"]
    assert rows[3] == ["lost", "missing"]


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_has_no_formula(name: str) -> None:
    table = Table("t", "T", [name, "b"], [[label(name), Cell(None, name)]], [])
    for cell in itertools.chain(*csv.reader(io.StringIO(comma_separated(table)))):
        assert cell == "b" or cell.startswith("'")


def test_csv_keeps_numbers() -> None:
    assert [csv_text(t) for t in ("-0.5", "+3", "1e-3", "a-b")] == ["-0.5", "+3", "1e-3", "a-b"]


def test_parquet_has_numbers_nulls_and_the_whole_table() -> None:
    found = pq.read_table(io.BytesIO(parquet(TABLE)))
    assert found.column_names == ["method", "a|b"]
    assert found["a|b"].to_pylist() == [12.345678, 1.5, None]
    assert found["method"].to_pylist()[2] == "lost"
    assert Table.from_plain(json.loads(found.schema.metadata[METADATA])) == TABLE
    twice = Table("t", "T", ["a", "a"], [[label("x"), Cell(None, "")]], [])
    assert pq.read_table(io.BytesIO(parquet(twice))).column_names == ["a", "a (1)"]


def test_tables_survive_json() -> None:
    assert Table.from_plain(TABLE.as_plain()) == TABLE


def test_ranks_are_bold_and_underlined() -> None:
    assert "| **1.00 ▲** |" in markdown(RANKED)
    assert "| <ins>2.00</ins> |" in markdown(RANKED)
    assert r"\textbf{1.00}$^{\bigtriangleup}$ \\" in latex(RANKED)
    assert r"\underline{2.00} \\" in latex(RANKED)
    assert r"$-$3.00 \\" in latex(RANKED)
    assert "1.00 ▲¹" in terminal(RANKED)
    html = page(gallery.contents(tables=[RANKED]))
    assert '<td class="better rank1" data-v="1.0">' in html
    assert '<td class="rank2" data-v="2.0">' in html


def test_p_values_as_people_write_them() -> None:
    assert [p_text(p) for p in (None, 0.0, 0.04999, 1.0)] == [
        "deterministic", "<0.0001", "0.0500", "1.0000",
    ]  # fmt: skip


def balanced(source: str) -> bool:
    """Whether braces close, and every line of the tabular has as many columns as were declared."""
    plain = re.sub(
        r"%.*", "", re.sub(r"\\[\\{}%&#$_]", lambda m: "\0" if m[0] == r"\\" else "", source)
    )
    depth = 0
    for letter in plain:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return False
    (columns, body) = re.search(r"tabular}{(\w+)}(.*)\\end{tabular}", plain, re.S).groups()  # type: ignore[union-attr]
    lines = [line for line in body.splitlines() if "\0" in line]
    even = plain.count("$") % 2 == 0
    return depth == 0 and even and all(line.count("&") == len(columns) - 1 for line in lines)


@pytest.mark.parametrize("table", [TABLE, RANKED, everywhere(HOSTILE)[0], *gallery.tables()])
def test_latex_is_balanced(table: Table) -> None:
    source = latex(table)
    assert balanced(source)
    assert r"\input" not in source
    assert not re.search("[\x00-\x09\x0b-\x1f]", source)
    assert not balanced(source.replace(r"\toprule", r"\toprule}"))
    assert not balanced(source.replace(r" \\", r" & \\", 1))


@given(st.text())
def test_any_text_is_inert_in_latex(text: str) -> None:
    found = latex_text(text)
    bare = re.sub(r"\\[{}$&#%_]", "", found)
    bare = re.sub(r"\\(text\w+|dots)|\$\\(pm|times|cdot|to|alpha)\$|\$-\$", "", bare)
    assert not re.search(r"[\\$&#%_^]", bare)
    assert bare.count("{") == bare.count("}")


# Every sign that LaTeX reads as a command, signs that tables use, and letters that no font has.
SIGNS = (
    "< > \" ' ` [x] * --- ~ ^ \\ { } $ & # % _ | ± − × · → α … – — ▲ ▼ ß ÿ Ð þ × ÷ Ł ő 猫 🐱 \u0301"
)


def compile_latex(folder: Path, body: str) -> str:
    """Compile with nothing but what a table says it needs; return the log."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("no pdflatex on this machine; `.ci/run` installs Debian's")
    source = f"\\documentclass{{article}}\n{PREAMBLE}\n\\begin{{document}}\n{body}\\end{{document}}"
    (folder / "t.tex").write_text(source)
    # A draft: all of it is set, but no font is drawn for a file that nobody reads.
    options = ["-halt-on-error", "-interaction=nonstopmode", "-draftmode", "-no-shell-escape"]
    done = subprocess.run(
        [program, *options, "t.tex"], cwd=folder, capture_output=True, check=False
    )
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-2000:]
    return log


def test_latex_compiles(tmp_path: Path) -> None:
    tables = [TABLE, RANKED, everywhere(HOSTILE)[0], everywhere(SIGNS)[0], *gallery.tables()]
    log = compile_latex(tmp_path, "\n".join(latex(table) for table in tables))
    assert "undefined" not in log
    assert "Missing character" not in log


def test_latex_of_every_study_compiles_and_fits_the_page(tmp_path: Path) -> None:
    """With names that are commands, markup, or in no font."""
    from ace_ray.aggregate.studies import STUDIES
    from tests.synthetic import PLACES, arranged, config_of, records

    odd = [place._replace(benchmark=f"shop<script>{SIGNS[:20]}") for place in PLACES]
    config = config_of(models=[r"a_b&c%d#e", r"\input{x}$y$<script>"])
    results = arranged(config, records(config, tuple(odd)))
    tables = [made for study in STUDIES.values() if isinstance(made := study.show(results), Table)]
    assert len(tables) == 15
    log = compile_latex(tmp_path, "\\clearpage\n".join(latex(table) for table in tables))
    assert "Overfull \\hbox" not in log
    assert "Missing character" not in log


def test_latex_of_a_run_compiles(small_run: dict[str, Any], tmp_path: Path) -> None:
    files = sorted(Path(small_run["run_dir"]).glob("tables/*.tex"))
    assert files
    log = compile_latex(tmp_path, "".join(file.read_text() for file in files))
    assert "Overfull \\hbox" not in log


@given(st.text())
def test_clean_text_is_one_line_that_every_format_can_carry(text: str) -> None:
    found = clean(text)
    assert len(found.splitlines()) <= 1 or "\u2028" in found or "\u2029" in found
    ElementTree.fromstring(f"<a>{found.replace('&', '').replace('<', '')}</a>")
    found.encode()


def test_figures_are_valid_xml_with_hostile_names() -> None:
    svg = standalone(compose(everywhere(HOSTILE)[1]))
    tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(svg).iter()}
    assert tags <= {
        "svg", "style", "title", "text", "rect", "line", "path", "circle", "polygon", "polyline",
    }  # fmt: skip


@pytest.mark.parametrize("figure", gallery.figures(), ids=lambda f: f.name)
def test_every_point_lies_inside_its_panel(figure: Figure) -> None:
    composed = compose(figure)
    assert len(composed.panels) == len(figure.panels)
    for panel in composed.panels:
        tree = ElementTree.fromstring(panel.svg)
        _, _, width, height = map(float, tree.attrib["viewBox"].split())
        numbers = [(e.attrib.get("cx"), e.attrib.get("cy")) for e in tree.iter()]
        for path in (e.attrib.get("d", "") for e in tree.iter()):
            numbers += re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)
        known = [(float(x), float(y)) for x, y in numbers if x and y]
        assert known or "<rect" in panel.svg
        assert all(0 <= x <= width and 0 <= y <= height for x, y in known)
        assert "nan" not in panel.svg.lower()
    ElementTree.fromstring(standalone(composed))
    plain = json.loads(json.dumps(figure.as_plain(), allow_nan=False))
    assert compose(Figure.from_plain(plain)).panels == composed.panels


def test_a_figure_without_data_says_so_and_gaps_stay_gaps() -> None:
    empty = Figure("e", "E", "x", "y", [Panel("", [])], [])
    assert "no data" in compose(empty).panels[0].svg
    holes: Any = Curve("c", [0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, None, 3.0, math.nan])
    svg = compose(empty._replace(panels=[Panel("", [holes])])).panels[0].svg
    (path,) = re.findall(r'<path class="l[^>]* d="([^"]+)"', svg)
    assert re.findall("[ML]", path) == ["M", "L", "M"]


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=9), st.booleans())
def test_axes_cover_the_data_with_few_round_ticks(values: list[float], zero: bool) -> None:
    axis = linear(values, zero=zero)
    reach = 1e-6 * max(map(abs, [*values, 1.0]))
    assert axis.low <= min(values) + reach
    assert axis.high >= max(values) - reach
    assert 2 <= len(axis.ticks) <= 9
    assert not zero or axis.low <= 0 <= axis.high


def test_ticks_are_numbers_a_person_would_write() -> None:
    assert [name for _, name in linear([0, 23.1]).ticks] == ["0", "5", "10", "15", "20", "25"]
    assert [name for _, name in linear([0, 0.011]).ticks][:3] == ["0", "0.0025", "0.0050"]
    assert [name for _, name in linear([0, 60_000]).ticks][1] == "20,000"
    assert logarithmic([16, 64, 128, 256, 512]).ticks[0] == (16, "16")
    assert is_geometric([16, 64, 128, 256, 512])
    assert not is_geometric([0.5, *range(1, 16)])
    assert not is_geometric([0, 1, 10, 100])


def test_curves_are_told_apart_without_colour() -> None:
    found = looks(["uncalibrated", "spline", "spline+ACE", "temperature", "temperature+ACE"])
    assert len(set(found.values())) == 5
    assert found["spline"].colour == found["spline+ACE"].colour
    assert found["spline+ACE"].dash == 0 < found["spline"].dash
    many = looks([f"method {i}" for i in range(20)])
    assert len(set(many.values())) == 20


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c + c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear_ = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear_[0] + 0.7152 * linear_[1] + 0.0722 * linear_[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_contrast(dark: bool) -> None:
    """WCAG 2: 4.5 for text, 3 for curves, on the page and on cards."""
    css = (Path(gallery.page.__code__.co_filename).parent / "page.css").read_text()
    own = [
        dict(re.findall(r"--(\w+):(#\w+)", block)) for block in re.findall(r":root{([^}]*)}", css)
    ]
    charts = [
        dict(re.findall(r"--(\w+):(#\w+)", block))
        for block in re.findall(r"\.chart{([^}]*)}", style())
    ]
    colours, chart = own[dark], charts[dark]
    for text in ("ink", "soft", "accent", "good", "bad", "warn"):
        for back in ("paper", "card"):
            assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    assert contrast(colours["bad"], colours["badtint"]) >= 4.5
    assert contrast(colours["warn"], colours["warntint"]) >= 4.5
    assert contrast(colours["ink"], colours["tint"]) >= 4.5
    assert chart["paper"] == colours["card"]
    for i in range(8):
        assert contrast(chart[f"c{i}"], chart["paper"]) >= 3, i


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (5, 5), (3, 10), (50, 200)])
def test_the_band_is_wilsons(hits: int, n: int) -> None:
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits, n) == pytest.approx((expected.low, expected.high))


def test_the_band_does_not_take_seeds_for_samples() -> None:
    once = {
        "samples": [10.0, 0.0, 20.0],
        "confidence": [2.0, 0.0, 15.0],
        "correct": [3.0, 0.0, 9.0],
    }
    plain = {"model": "m", "calibrator": None, "method": "uncalibrated", "group": "test", **once}
    five = {name: [5 * v for v in values] for name, values in once.items()}
    (figure,) = reliability_figures(
        [plain, {**plain, "calibrator": "spline", "method": "spline", **five}]
    )
    first, second = figure.panels[0].curves
    assert first[1:] == second[1:]
    assert first.x == [0.2, 0.75]
    expected = binomtest(3, 10).proportion_ci(method="wilson")
    assert first.low is not None
    assert first.low[0] == pytest.approx(expected.low)


def test_warnings_are_said_once_with_their_trials() -> None:
    found = grouped(["m t seed 1: at its bound", "m t seed 2: at its bound", "odd"])
    assert found == [Warned("at its bound", ["m t seed 1", "m t seed 2"]), Warned("odd", [])]


def test_measurements_warn_of_clipped_weights_and_tiny_hard_sets() -> None:
    def row(**changed: Any) -> dict[str, Any]:
        plain = {
            "model": "m",
            "benchmark": "b",
            "split": "s",
            "role": "ood",
            "method": "ace",
            "difficulty": 10.0,
            "alpha": 0.5,
            "alpha_raw": 0.5,
            "n": 1000,
            "accuracy": 0.9,
        }
        return {**plain, **changed}  # fmt: skip

    calibration = row(role="calibration", method="uncalibrated", alpha=None, alpha_raw=None)
    # 100 wrong and 900 right at d = 10: 100 + 10 samples, enough.
    assert noticed([row(), calibration | {"difficulty": None}]) == []
    clipped = noticed([row(), row(split="t", alpha=1.0, alpha_raw=1.01), row(split="t")])
    assert len(clipped) == 1
    assert "1 of 2 splits" in clipped[0].message
    assert clipped[0].trials == ["b:t"]
    assert noticed([row(), row(alpha=0.2, alpha_raw=1.01, fixed_alpha=0.2)]) == []
    few = calibration | {"difficulty": None, "accuracy": 0.96}
    (tiny,) = noticed([row(), few])
    assert tiny.trials == ["about 44 samples at difficulty 10"]


def test_hostile_names_are_inert_in_the_page() -> None:
    text = hostile_page(HOSTILE)
    assert len(re.findall("<script", text, re.I)) == 1  # the page's own
    assert "<img" not in text
    assert "{{ 7 * 7 }}" in text  # not evaluated
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    assert "</title></script>" not in text


def test_the_page_refers_to_nothing_outside(small_run: dict[str, Any]) -> None:
    text = Path(small_run["report"]).read_text()
    links = set(re.findall(r"""(?:src|href)\s*=\s*["']([^"']+)""", text))
    assert links
    assert all(link.startswith("#") and f'id="{link[1:]}"' in text for link in links)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in text
    assert "@import" not in text


def test_the_run_has_every_format_and_its_provenance(small_run: dict[str, Any]) -> None:
    run = Path(small_run["run_dir"])
    marker = json.loads((run / "_COMMITTED.json").read_text())["files"]
    for study in ("severity", "ttest", "alpha"):
        table = Table.from_plain(json.loads((run / f"tables/{study}.json").read_text()))
        assert (run / f"tables/{study}.md").read_text() == markdown(table)
        assert (run / f"tables/{study}.tex").read_text() == latex(table)
        assert balanced(latex(table))
        assert (run / f"tables/{study}.csv").read_text() == comma_separated(table)
        found = pq.read_table(run / f"tables/{study}.parquet", partitioning=None)
        assert found.num_rows == len(table.rows)
        for suffix in ("json", "md", "tex", "csv", "parquet"):
            assert f"tables/{study}.{suffix}" in marker
    text = (run / "report.html").read_text()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["key"] in text
    assert manifest["versions"]["ray"] in text
    assert "Quarantined images: none." in text
    assert all(key in text for key in manifest["logits"].values())
    for figure in (run / "figures").glob("*.svg"):
        ElementTree.fromstring(figure.read_text())
    assert Store.open(str(small_run["store"])).exists


def test_the_state_of_the_source_is_known_only_where_it_is_tracked(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert source_state(package) is None
    git("init", "-q")
    assert source_state(package) is None  # in a repository, but no part of it
    git("add", ".")
    git("commit", "-qm", "first")
    assert source_state(package) == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    (package / "__init__.py").write_text("changed")
    assert source_state(package) == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_long_names_of_figures_are_names_of_files() -> None:
    names = [_file_name("m" * 400), _file_name("m" * 401), _file_name("猫" * 90), _file_name("a/b")]
    assert len(set(names)) == 4
    assert all(len(name) < 200 for name in names)
    assert names[3] == "a%2Fb"


def test_a_study_without_table_or_figure_is_a_warning(
    small_run: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(small_run["store"], tmp_path / "store")
    store = Store.open(str(tmp_path / "store"))
    figure = gallery.figures()[2]._replace(name="fig_alpha")
    run_id = small_run["run_id"]
    store.write_json(f"runs/{run_id}/figures/fig_alpha.json", figure.as_plain())
    paths = render(store, run_id, ["severity", "fig_alpha", "fig_d"])
    assert all(store.has(path) for path in paths)
    own = {path.rpartition("/")[2] for path in paths if "/figures/" in path}
    assert own >= {"fig_alpha.json", "fig_alpha.svg", "ece-by-severity.svg"}
    text = store.read(f"runs/{run_id}/report.html").decode()
    assert "study fig_d has no table and no figure" in text
    assert "study fig_alpha" not in text
    assert figure.title in text


def test_shown_text_has_its_mark() -> None:
    assert shown(Cell(1.0, "1.00", "worse")) == "1.00 ▼"
