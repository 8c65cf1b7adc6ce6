"""WebDataset shards: tar files whose members belong together by name, `<key>.jpg` and `<key>.cls`.

Planning reads the headers and the labels; a worker reads each image by its offset.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from pyarrow import NativeFile

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.split import Item, Unreadable
from ace_ray.errors import DataError

_IMAGES: Final = frozenset({"jpg", "jpeg", "png", "webp"})
_LABELS: Final = ("cls", "json")
_BLOCK: Final = tarfile.BLOCKSIZE


_Group: TypeAlias = dict[str, tarfile.TarInfo]  # members of one key, by suffix


class Row(NamedTuple):
    """One labelled image of a shard."""

    key: str
    label: int
    source: str  # `<shard>:<offset>:<size>`
    size: int


def _members(file: NativeFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar file.

    Raises:
        tarfile.TarError: If it is damaged or has no end, as after a broken copy.
    """
    with tarfile.open(fileobj=file, mode="r:") as tar:
        yield from tar
        end: int = tar.offset
    if file.read_at(_BLOCK, end).count(0) != _BLOCK:
        raise tarfile.ReadError(f"it has no end after {end:,} bytes")


def _label(data: bytes, suffix: str) -> int:
    if suffix == "cls":
        return int(data.decode("ascii"))
    content = json.loads(data)
    value = content.get("label", content.get("cls")) if isinstance(content, dict) else None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number as `label` or `cls`, got {value!r}")
    return value


def _grouped(where: str, members: list[tarfile.TarInfo]) -> dict[str, _Group]:
    """Return members by key and suffix, as WebDataset does: the key ends at the first dot."""
    groups: dict[str, _Group] = {}
    for member in members:
        folder, _, name = member.name.removeprefix("./").rpartition("/")
        stem, _, suffix = name.partition(".")
        if not member.isreg() or not stem:
            continue
        key = f"{folder}/{stem}" if folder else stem
        group = groups.setdefault(key, {})
        if suffix.lower() in group:
            raise DataError(f"{where}: {member.name} is there twice; write the shard again")
        group[suffix.lower()] = member
    return groups


def index_shard(label: str, root: str, path: str, *, partial: bool) -> list[Row]:
    """Return the labelled images of a shard, sorted by key.

    Args:
        label: The benchmark, for errors.
        root: Folder of the shards.
        path: The shard.
        partial: Whether to take what a damaged shard still has, and leave out images without
            a label.

    Raises:
        DataError: With the shard, and the member where there is one.
    """
    where = f"{label}: {root}/{path}"
    members: list[tarfile.TarInfo] = []
    try:
        with roots.open_file(root, path) as file:
            size = file.size()
            try:
                for member in _members(file):
                    members.append(member)  # noqa: PERF402 - keeps what came before the damage
            except (tarfile.TarError, ValueError, EOFError) as error:
                if not partial:
                    raise DataError(
                        f"{where}: damaged after {len(members):,} members: {error}; copy it again, "
                        "or set `partial: true` to use what is there"
                    ) from error
                members = [m for m in members if m.offset_data + m.size <= size]
            groups = _grouped(where, members)
            rows: list[Row] = []
            for key in sorted(groups):
                try:
                    rows.append(_row(file, path, key, groups[key]))
                except ValueError as error:
                    if not partial:
                        raise DataError(f"{where}: {error}, or set `partial: true`") from error
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {roots.why(error)}; copy it again") from error
    return rows


def _row(file: NativeFile, path: str, key: str, group: _Group) -> Row:
    """Return a labelled image; raise ValueError if it has no label, or is none."""
    image = next((group[suffix] for suffix in group if suffix in _IMAGES), None)
    suffix = next((suffix for suffix in _LABELS if suffix in group), None)
    if image is None or suffix is None:
        lacks = "no image (.jpg, .png, .webp)" if image is None else "no label (.cls, .json)"
        raise ValueError(f"{key!r} has {lacks}; add it")
    member = group[suffix]
    try:
        value = _label(file.read_at(member.size, member.offset_data), suffix)
    except ValueError as error:
        raise ValueError(f"{member.name}: no class number: {error}; correct it") from error
    return Row(key, value, f"{path}:{image.offset_data}:{image.size}", image.size)


def read_members(root: str, sources: Sequence[str]) -> list[Item]:
    """Read encoded images by `<shard>:<offset>:<size>`; a bad one is named, all others are kept."""
    items: list[Item] = []
    opened: dict[str, NativeFile | Unreadable] = {}
    try:
        for source in sources:
            path, offset, size = source.rsplit(":", 2)
            if path not in opened:
                opened[path] = _open(root, path)
            items.append(_read(opened[path], int(offset), int(size)))
    finally:
        for file in opened.values():
            if not isinstance(file, Unreadable):
                file.close()
    return items


def _open(root: str, path: str) -> NativeFile | Unreadable:
    try:
        return roots.open_file(root, path)
    except OSError as error:
        return Unreadable(f"{path} cannot be read: {roots.why(error)}")


def _read(file: NativeFile | Unreadable, offset: int, size: int) -> Item:
    if isinstance(file, Unreadable):
        return file
    try:
        data = bytes(file.read_at(size, offset))
    except OSError as error:
        return Unreadable(f"cannot be read: {roots.why(error)}")
    return data if len(data) == size else Unreadable(f"the shard ends before it, at {offset:,}")
