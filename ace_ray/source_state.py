"""Which source this is, where it runs from a checkout: the commit, and whether it was changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 10


def source_state(package: Path = Path(__file__).parent) -> dict[str, Any] | None:
    """Return `{commit, dirty}` of the checkout that tracks the package; None if there is none.

    A package installed below someone's repository is not part of it: its files must be tracked.
    """
    git = shutil.which("git")
    if git is None or _asked(git, package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _asked(git, package, "rev-parse", "HEAD")
    changed = _asked(git, package, "status", "--porcelain", "--", ".")
    return None if not commit or changed is None else {"commit": commit, "dirty": bool(changed)}


def _asked(git: str, folder: Path, *words: str) -> str | None:
    """Return what git answers; None if it refuses."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [git, "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
