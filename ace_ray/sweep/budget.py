"""The memory of a sweep as a whole: what it keeps for good, and what each worker may take.

The budget counts the growth of the driver, the growth of every worker, and the object store's
copies once. It does not count the interpreter with its libraries, nor pages of the scratch file,
which the system may drop.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ace_ray.errors import ConfigError
from ace_ray.sweep.fits import FitSpec
from ace_ray.sweep.trial import TrialSpec

# Of a split's sample while all trials are measured on it: a few vectors, and copies to sort them.
SAMPLE: Final = 200
# Row blocks in double precision, batches of a part, the interpreter's own.
_BLOCKS: Final = 24 << 20
_NODE: Final = 24  # of a sample at one temperature of the lattice
_NODES: Final = 96  # temperatures that fits usually touch


class Need(NamedTuple):
    """What the tables and trials of one model ask for, in bytes."""

    kept: int  # in the object store and the driver, until the sweep ends
    fitting: int  # the least that a worker needs to fit
    measuring: int  # the least that a worker needs to measure a split


class Share(NamedTuple):
    """Workers at the same time, and the bytes that each may take; None: no bound."""

    workers: int | None
    memory: int | None


class TableSize(NamedTuple):
    """A split's table, from its commit marker."""

    rows: int
    classes: int
    part: int  # bytes of its largest part in the store
    calibration: bool


def needed(
    tables: Sequence[TableSize], trials: Iterable[TrialSpec], fits: Sequence[FitSpec]
) -> Need:
    """Return what a model's sweep asks for."""
    trials = list(trials)
    classes = max(table.classes for table in tables)
    rows = sum(table.rows for table in tables if table.calibration)
    table = 4 * rows * classes
    parameters = len(fits) * (16 * classes + 1000)
    piece = sum(1000 + 80 * trial.bins + 12 * (trial.bootstrap or 0) for trial in trials)
    # A fit copies its rows; temperatures share a table of moments.
    fitting = table + rows * (_NODE * _NODES + SAMPLE) + _BLOCKS
    measuring = max(2 * table.part + SAMPLE * table.rows for table in tables) + 4 * piece + _BLOCKS
    if any(trial.needs_calibration for trial in trials):
        measuring += fitting
    return Need(table + 20 * rows + 3 * parameters + 3 * piece * len(tables), fitting, measuring)


def share(memory: int | None, cpus: int, kept: int, least: int) -> Share:
    """Divide what is left of the budget among as many workers as it feeds.

    Args:
        memory: The budget; None: no bound.
        cpus: Workers that could run.
        kept: Bytes that are kept beside them.
        least: Bytes that a worker needs.

    Raises:
        ConfigError: If not even one worker is fed.
    """
    if memory is None:
        return Share(None, None)
    left = memory - kept
    if left < least:
        raise ConfigError(
            f"resources.sweep_memory: {memory:,} bytes are too few for these tables and trials; "
            f"give at least {kept + least:,}"
        )
    workers = max(1, min(cpus, left // least))
    return Share(workers, left // workers)


def give_back() -> None:
    """Return freed memory to the system: a worker that waits holds nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
