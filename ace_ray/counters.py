"""Ray metrics of the driver; the workers of the extraction count images themselves."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeAlias

Counted: TypeAlias = Literal["rows_committed", "trials", "cache_hits"]

_ABOUT: Final[dict[Counted, tuple[str, tuple[str, ...]]]] = {
    "rows_committed": ("Rows of committed logit tables", ("model",)),
    "trials": ("Trials recorded", ("run_id",)),
    "cache_hits": ("Splits and trials that were in the store already", ("run_id", "kind")),
}


def count(what: Counted, amount: int, **tags: str) -> None:
    """Add to the metric `ace_ray_<what>`; Ray must be running."""
    if amount:  # Ray refuses to count nothing.
        _counter(what).inc(amount, tags)


@cache
def _counter(what: Counted) -> Any:
    from ray.util.metrics import Counter

    about, tags = _ABOUT[what]
    return Counter(f"ace_ray_{what}", about, tags)
