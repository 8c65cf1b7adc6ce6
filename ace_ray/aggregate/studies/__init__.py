"""Every table and figure of the paper, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ace_ray.aggregate.studies import (
    corruptions,
    figures,
    significance,
    tables,
    variants,
    weights,
)
from ace_ray.aggregate.study import Study

STUDIES: Final[Mapping[str, Study]] = {
    **tables.TABLES,
    **corruptions.TABLES,
    **significance.TABLES,
    **variants.TABLES,
    **figures.FIGURES,
    **weights.FIGURES,
}
