"""Names of a network's outputs: ImageNet's as timm orders them, or one's own."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from ace_ray.benchmarks import roots
from ace_ray.errors import ConfigError, DataError

# Names in order, or a text file with one per line (below the data's path, or any path).
Classes: TypeAlias = tuple[str, ...] | str


@cache
def _timm_lines(file: str) -> tuple[str, ...]:
    spec = find_spec("timm")  # importing timm itself would load torch
    if spec is None or not spec.submodule_search_locations:
        raise DataError("ImageNet's class order is timm's, and timm is missing; `pip install timm`")
    path = Path(spec.submodule_search_locations[0], "data", "_info", file)
    return tuple(path.read_text(encoding="utf-8").split())


def imagenet_classes() -> tuple[str, ...]:
    """Return the WordNet ids of the 1,000 ImageNet classes, in the order of the outputs."""
    return _timm_lines("imagenet_synsets.txt")


def imagenet_subset(variant: Literal["a", "r"]) -> tuple[int, ...]:
    """Return the 200 of the 1,000 classes that ImageNet-A or ImageNet-R has."""
    return tuple(sorted(int(line) for line in _timm_lines(f"imagenet_{variant}_indices.txt")))


def positions(classes: Iterable[str]) -> dict[str, int]:
    """Return the output of each class name, for `position`."""
    return {_plain(name): i for i, name in enumerate(classes)}


def position(name: str, known: dict[str, int]) -> int | None:
    """Return the output of a class name; None if there is no such class."""
    return known.get(_plain(name))


def _plain(name: str) -> str:
    # Some systems store an accent as a character of its own, and the list of classes may not.
    return unicodedata.normalize("NFC", name)


def given_classes(label: str, given: Classes, root: str) -> tuple[str, ...]:
    """Return the class names that a config gives, in line or as a file.

    Args:
        label: The benchmark, for errors.
        given: Names, or a text file with one per line.
        root: Where the data lie; a file there comes before one in the working directory.
    """
    names = given if isinstance(given, tuple) else _read(label, given, root)
    if not names:
        raise ConfigError(f"{label}: classes: no name in {given!r}; give one per output")
    if len(positions(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ConfigError(f"{label}: classes: {twice!r} is given twice; each output has one name")
    return names


def _read(label: str, path: str, root: str) -> tuple[str, ...]:
    text = read_text(label, "classes", placed(path, root))
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def placed(path: str, root: str) -> str:
    """Return the place of a file that an option names: below the data's root, or any path."""
    anywhere = path.startswith(("/", "~")) or "://" in path
    place = roots.below(root, path)
    return roots.absolute(path) if anywhere or not roots.exists(place) else place


def read_text(label: str, option: str, place: str) -> str:
    """Return the text of a file that an option names."""
    try:
        return roots.read(place, "").decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{label}: {option}: cannot read {place}: {roots.why(error)}; give a path, or the "
            "name of a file beside the data"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{label}: {option}: {place} is not UTF-8 text") from None
