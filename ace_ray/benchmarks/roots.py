"""Data sets as they lie on disk (or in a bucket): list, read, and say what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from pyarrow import ArrowException, NativeFile
from pyarrow import fs as pafs

from ace_ray.benchmarks.split import Item, Unreadable
from ace_ray.errors import DataError

# What torchvision's ImageFolder takes for images, and GIF.
IMAGE_SUFFIXES: Final = frozenset(
    {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif"}
)


class File(NamedTuple):
    """A file below a root."""

    path: str  # relative, with forward slashes
    size: int


@cache
def _opened(root: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in root:
        return pafs.LocalFileSystem(), str(Path(root).expanduser().absolute()).rstrip("/")
    try:
        filesystem, path = pafs.FileSystem.from_uri(root)
    except (ValueError, OSError, ArrowException) as error:
        raise DataError(f"data {root}: {str(error).splitlines()[0]}; check `data_root`") from error
    return filesystem, path.rstrip("/")


def below(root: str, *names: str) -> str:
    """Return a place below a root: a local path or a URI."""
    given = [name.strip("/") for name in names if name]
    uri = "://" in root
    return "/".join([root.rstrip("/"), *(quote(n) if uri else n for n in given)])


def absolute(root: str) -> str:
    """Return a root that means the same in every process of this machine."""
    return root if "://" in root else str(Path(root).expanduser().absolute())


def exists(root: str) -> bool:
    """Return whether there is a file or folder."""
    filesystem, path = _opened(root)
    return bool(filesystem.get_file_info(path).type != pafs.FileType.NotFound)


def folders(root: str) -> list[str]:
    """Return the names of the folders directly below a root, sorted; hidden ones left out."""
    return sorted(
        entry.base_name
        for entry in _entries(root, recursive=False)
        if entry.type == pafs.FileType.Directory and not entry.base_name.startswith(".")
    )


def files(
    root: str, suffixes: Iterable[str] | None = IMAGE_SUFFIXES, *, recursive: bool = True
) -> list[File]:
    """Return all files below a root, sorted by path; hidden ones left out.

    Args:
        root: Folder to look through.
        suffixes: Endings to keep, in lower case; None for all.
        recursive: Whether to look into the folders below.
    """
    kept = None if suffixes is None else tuple(suffixes)
    _, base = _opened(root)
    found = []
    for entry in _entries(root, recursive=recursive):
        path = entry.path[len(base) + 1 :]
        hidden = path.startswith(".") or "/." in path
        if entry.type != pafs.FileType.File or hidden:
            continue
        if kept is None or path.lower().endswith(kept):
            found.append(File(path, entry.size))
    return sorted(found)


def _entries(root: str, *, recursive: bool) -> list[pafs.FileInfo]:
    filesystem, path = _opened(root)
    try:
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            raise DataError(f"{root}: is a file, expected a folder; check `data_root` or `path`")
        entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=recursive))
        found = [entry for entry in entries if entry.path]  # an access decodes the name
    except FileNotFoundError:
        raise DataError(f"{root}: no such folder; check `data_root` or `path`") from None
    except UnicodeDecodeError as error:
        name = bytes(error.object).decode(errors="replace")
        raise DataError(f"{name}: the name is not UTF-8; rename the file") from None
    except OSError as error:
        raise DataError(f"{root}: cannot be listed: {why(error)}; check its permissions") from error
    if recursive and isinstance(filesystem, pafs.LocalFileSystem):
        _check_loops(entry.path for entry in found if entry.type == pafs.FileType.Directory)
    return found


def _check_loops(places: Iterable[str]) -> None:
    """Raise if a linked folder holds itself: its images would be listed again and again."""
    for place in places:
        if not Path(place).is_symlink():
            continue
        above, target = Path(place).parent.resolve(), Path(place).resolve()
        if above.is_relative_to(target):
            raise DataError(f"{place}: is a link to a folder above it; remove the link")


def why(error: OSError) -> str:
    """Return the reason that a filesystem gives, in one line."""
    return error.strerror or str(error).splitlines()[0]


def open_file(root: str, path: str) -> NativeFile:
    """Open one file for random access; what the filesystem raises is an OSError."""
    filesystem, base = _opened(root)
    return filesystem.open_input_file(f"{base}/{path}" if path else base)


def read(root: str, path: str) -> bytes:
    """Return the bytes of one file; what the filesystem raises is an OSError."""
    filesystem, base = _opened(root)
    with filesystem.open_input_stream(f"{base}/{path}" if path else base) as stream:
        return bytes(stream.read())


def read_files(root: str, sources: Sequence[str]) -> list[Item]:
    """Read one encoded image per source: the reader of data sets with a file per image."""
    items: list[Item] = []
    for source in sources:
        try:
            items.append(read(root, source))
        except OSError as error:
            items.append(Unreadable(f"cannot be read: {why(error)}"))
    return items
