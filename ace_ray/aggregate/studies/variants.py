"""Tables of variants of the method: estimation, same_size, combination, domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ace_ray.aggregate.arrange import Group, Results, Series
from ace_ray.aggregate.cells import Row, body, holm_note, plain_rows, spread_note
from ace_ray.aggregate.study import NO_SHIFT, Sources, Study, variants
from ace_ray.aggregate.table import Table
from ace_ray.config import Config
from ace_ray.sweep.trial import EVERY_DOMAIN, TrialSpec


def _first(results: Results, method: str) -> list[Row]:
    """Return the plain rows of a method at the first difficulty."""
    first = {None, *results.difficulties[:1]}
    return [row for row in plain_rows(results, [method]) if row.series.difficulty in first]


def _table(
    results: Results,
    name: str,
    title: str,
    rows: list[Row],
    groups: Sequence[Group],
    notes: Sequence[str] = (),
) -> Table:
    by_model = [r for model in results.models() for r in rows if r.series.model == model]
    shifted = [] if results.shifted else [NO_SHIFT]
    return Table(
        name,
        title,
        ["method", *(g.name for g in groups)],
        body(results, by_model, groups) if groups else [],
        [*shifted, *notes, spread_note(results), *holm_note(results, by_model, groups)],
    )


def _estimation_trials(config: Config) -> list[TrialSpec]:
    return variants(config, method="estimation", difficulty=None)


def estimation(results: Results) -> Table:
    """The calibration set rebuilt at the test set's estimated difficulty (Tab. A9)."""
    rows = _first(results, "uncalibrated")
    for row in _first(results, "alone"):
        ace = [r for r in _first(results, "ace") if r.base == row.series]
        other = row.series._replace(method="estimation")
        rows += [row, *ace, Row(results.name(other), other, row.series)]
    title = "ECE (%): ACE against estimating the difficulty and rebuilding the calibration set"
    return _table(results, "estimation", title, rows, results.groups)


def _same_size_trials(config: Config) -> list[TrialSpec]:
    alone = variants(config, method="alone", same_size=True)
    return alone + variants(config, method="ace", same_size=True)


def same_size(results: Results) -> Table:
    """Both calibrators see as many samples: D_o cut to the size of D_h (Tab. A10)."""
    rows: list[Row] = []
    for row in _first(results, "ace"):
        ace = row.series._replace(same_size=True)
        alone = ace._replace(method="alone")
        prefix = f"{ace.model}: " if len(results.models()) > 1 else ""
        rows += [Row(f"{prefix}{alone}", alone), Row(f"{prefix}{ace}", ace, alone)]
    title = "ECE (%) with D_o cut to the size of D_h"
    return _table(results, "same_size", title, rows, results.groups)


def _combination_trials(config: Config) -> list[TrialSpec]:
    return variants(config, method="ace", space="geometric")


def combination(results: Results) -> Table:
    """Geometric against linear combination of the two calibrators (Tab. A13)."""
    rows = _first(results, "uncalibrated")
    for row in _first(results, "ace"):
        geometric = row.series._replace(space="geometric")
        rows += [
            Row(f"{row.name}, geometric", geometric, row.base),
            Row(f"{row.name}, linear", row.series, row.base),
        ]
    title = "ECE (%) under shift: how the two calibrators are combined"
    notes = ["marks: against the calibrator alone"]
    return _table(results, "combination", title, rows, results.shifted, notes)


def _domains_trials(config: Config, sources: Sources) -> list[TrialSpec]:
    wanted = {model: [*names, EVERY_DOMAIN] for model, names in sources.items() if len(names) > 1}
    return [
        spec
        for domain in dict.fromkeys(name for names in wanted.values() for name in names)
        for spec in variants(config, method="ace", domain=domain)
        if domain in wanted.get(spec.model, ())
    ]


def domains(results: Results) -> Table:
    """One ACE per source domain, and all of them ensembled (Tab. A14)."""
    found = dict.fromkeys(s.domain for s in results.asked)
    sources = [domain for domain in found if domain not in (None, EVERY_DOMAIN)]
    rows = _first(results, "uncalibrated") + _first(results, "alone")
    for row in _first(results, "ace"):
        rows.append(row._replace(name=f"{row.name}, domains pooled"))
        for domain in [*sources, EVERY_DOMAIN] if sources else []:
            how = "one per domain, ensembled" if domain == EVERY_DOMAIN else f"{domain} alone"
            series: Series = row.series._replace(domain=domain)
            if series in results.asked:
                rows.append(Row(f"{row.name}, {how}", series, row.base))
    notes = ["no results of Gong et al. (2021)"]
    if not sources:
        notes.append(
            "this run has one source domain: use the benchmark `domains` with two or more in "
            "`calibration`"
        )
    title = "ECE (%) under domain shift: one ACE per source domain"
    return _table(results, "domains", title, rows, results.shifted, notes)


TABLES: Final[Mapping[str, Study]] = {
    "estimation": Study(estimation, _estimation_trials),
    "same_size": Study(same_size, _same_size_trials),
    "combination": Study(combination, _combination_trials),
    "domains": Study(domains, domains=_domains_trials),
}
