"""What can go wrong, as types. A message is one line: what, where, got, remedy.

Exit codes of the command line: 0 done, 1 some units failed, 2 bad input or a damaged store.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AceRayError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 2


class UsageError(AceRayError):
    """An argument, option or name is not valid."""


class ConfigError(UsageError):
    """The configuration is not valid."""


class DataError(AceRayError, ValueError):
    """An array cannot be used for what was asked."""


class StoreError(AceRayError):
    """The store cannot be opened, read or written."""


class IntegrityError(StoreError):
    """Something in the store is not what its commit marker says."""


class PartialFailure(AceRayError):
    """Some units failed; all others are done and kept."""

    exit_code = 1


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...? available: ..." for an unknown name."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}available: {', '.join(names)}"
