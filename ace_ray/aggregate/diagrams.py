"""Reliability diagrams per method and group: the records' bin sums, added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ace_ray.aggregate.arrange import Results, Series


class Diagram(NamedTuple):
    """The bins of one method on one group of splits, over all seeds."""

    model: str
    calibrator: str | None  # None: uncalibrated
    method: str
    group: str
    samples: list[float]
    confidence: list[float]  # sum over the bin
    correct: list[float]  # sum over the bin


def diagrams(results: Results, records: Iterable[Mapping[str, Any]]) -> list[Diagram]:
    """Add up the bins of every plain series over the splits of each group and over seeds."""
    sums: dict[tuple[Series, str], np.ndarray[Any, Any]] = {}
    groups = {(place, g.role): g.name for g in results.groups for place in g.splits}
    plain = set(results.series)
    for record in records:
        series = Series.of(record["spec"])
        if series not in plain:
            continue
        for row, bins in zip(record["measurements"], record["diagrams"], strict=True):
            group = groups.get(((row["benchmark"], row["split"]), row["role"]))
            if group is None:
                continue
            value = np.array([bins["samples"], bins["confidence"], bins["correct"]])
            known = sums.get((series, group))
            sums[series, group] = value if known is None else known + value
    return [
        Diagram(series.model, series.calibrator, str(series), group, *value.tolist())
        for (series, group), value in sums.items()
    ]
