"""Reliability diagrams per method and group: the records' bin sums, added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ace_ray.aggregate.tables import Results, Series


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
    """Add up the bins of every series over the splits of each group and over seeds."""
    sums: dict[tuple[Series, str], np.ndarray[Any, Any]] = {}
    for record in records:
        spec = record["spec"]
        series = Series(spec["model"], spec["calibrator"], spec["method"], spec["difficulty"])
        for row, bins in zip(record["measurements"], record["diagrams"], strict=True):
            value = np.array([bins["samples"], bins["confidence"], bins["correct"]])
            for group in results.groups:
                if (row["benchmark"], row["split"]) in group.splits:
                    known = sums.get((series, group.name))
                    sums[series, group.name] = value if known is None else known + value
    return [
        Diagram(series.model, series.calibrator, str(series), group, *value.tolist())
        for (series, group), value in sums.items()
    ]
