"""The store: files under one root, on any pyarrow filesystem, that appear whole or not at all.

A file is published by one atomic step: a rename where the filesystem has one, a single upload
where it has not (object stores). A *unit* (several files) is published by its marker: the parts
are staged under `staging/<key>/`, checked, moved to their place (copied, then deleted, where there
is no rename), and exist for readers only once `_COMMITTED.json` names them. A crash at any moment
leaves the old state or the new one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from pyarrow import ArrowException
from pyarrow import fs as pafs

from ace_ray.errors import IntegrityError, StoreError
from ace_ray.filesystem import OBJECT_STORES, absolute, open_filesystem, persistent
from ace_ray.identity import canonical_json

FORMAT: Final = 1
MARKER: Final = "_COMMITTED.json"
_ROOT_MARKER: Final = "ace-store.json"


@contextmanager
def _reported(action: str, where: str) -> Iterator[None]:
    """Turn what a filesystem raises into one line that names the path."""
    try:
        yield
    except (OSError, ArrowException) as error:
        # pyarrow's messages repeat the path and may span lines; errno's text says enough.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise StoreError(
            f"cannot {action} {where}: {reason}; check the path, its permissions and free space, "
            "or choose another --store"
        ) from error


def encode(name: str) -> str:
    """Percent-encode a name for use as one path segment."""
    return quote(name, safe="")


class Store:
    """A store root. Opening it never writes; `create` does."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, uri: str) -> None:
        self.filesystem = filesystem
        self.root = root
        self.uri = uri
        self.bytes_read = 0  # by `read`, since it was opened

    @classmethod
    def open(cls, uri: str) -> Store:
        """Open a local path or an `s3://`, `gs://`, `abfs://` URI.

        Raises:
            StoreError: If the folder exists and belongs to something else, or the URI holds
                a secret.
        """
        uri = absolute(uri)
        with _reported("open store", uri):
            filesystem, root = open_filesystem(uri)
            store = cls(filesystem, root.rstrip("/"), uri)
            info = store._info("")
            if info.type == pafs.FileType.File:
                raise StoreError(f"store {uri} is a file; choose a folder with --store")
            if info.type == pafs.FileType.Directory and not store.exists:
                entries = sorted(e.base_name for e in store._entries(""))
                if entries:
                    raise StoreError(
                        f"store {uri} is not an ace-ray store: it holds {len(entries)} entries "
                        f"({', '.join(entries[:3])}) and no {_ROOT_MARKER}; "
                        "choose a new or empty folder with --store"
                    )
        if store.exists:
            store._check_format()
        return store

    @property
    def exists(self) -> bool:
        """Whether the store has been created."""
        return self.has(_ROOT_MARKER)

    def _check_format(self) -> None:
        try:
            found = self.read_json(_ROOT_MARKER).get("format")
        except IntegrityError as error:
            raise StoreError(
                f"{self.locate(_ROOT_MARKER)} is damaged; if this is your store, put "
                f'{{"format": {FORMAT}}} into that file'
            ) from error
        if found != FORMAT:
            raise StoreError(
                f"store {self.uri} has format {found!r}, this version reads {FORMAT}; "
                "use the version that wrote it or choose another --store"
            )

    def create(self) -> Store:
        """Create the store if it does not exist, and find out whether it can be written."""
        if not self.exists:
            self.write_json(_ROOT_MARKER, {"format": FORMAT, "software": "ace_ray"})
            return self
        for folder in ("", "logits/", "runs/"):
            self.write(f"{folder}.probe", b"")
            self.delete(f"{folder}.probe")
        return self

    def at(self, path: str) -> str:
        """Return the filesystem's own path of a path in the store."""
        return f"{self.root}/{path}" if path else self.root

    def locate(self, path: str) -> str:
        """Return a path in the store as a user would name it: joined to the store's URI."""
        return f"{self.uri.rstrip('/')}/{path}"

    def has(self, path: str) -> bool:
        """Return whether a file exists."""
        with _reported("look at", self.locate(path)):
            found = self._info(path).type
        return bool(found == pafs.FileType.File)

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None where there is no file."""
        with _reported("look at", self.locate(path)):
            info = self._info(path)
        return int(info.size) if info.type == pafs.FileType.File else None

    @property
    def _renames(self) -> bool:
        """Whether the filesystem has folders and renames files in one step."""
        return self.filesystem.type_name not in OBJECT_STORES

    def _info(self, path: str) -> Any:
        return persistent(lambda: self.filesystem.get_file_info(self.at(path)))

    def _entries(self, path: str) -> list[Any]:
        selector = pafs.FileSelector(self.at(path), allow_not_found=True)
        return persistent(lambda: list(self.filesystem.get_file_info(selector)))

    def names(self, path: str) -> list[str]:
        """Return the names directly under a folder, sorted, without temporary files."""
        with _reported("list", self.locate(path)):
            names = [entry.base_name for entry in self._entries(path)]
        return sorted(name for name in names if not name.startswith("."))

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        with _reported("read", self.locate(path)):
            data = persistent(lambda: self._read(path))
        self.bytes_read += len(data)
        return data

    def _read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(self.at(path)) as stream:
            return bytes(stream.read())

    @contextmanager
    def reading(self, path: str) -> Iterator[Any]:
        """Open a file for random access; what goes wrong inside is reported with its path."""
        with (
            _reported("read", self.locate(path)),
            self.filesystem.open_input_file(self.at(path)) as stream,
        ):
            yield stream

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically: readers see the old bytes or the new ones."""
        with _reported("write", self.locate(path)):
            persistent(lambda: self._write(self.at(path), data))

    def _write(self, target: str, data: bytes) -> None:
        if not self._renames:
            # The object appears when its upload is complete, with all its bytes.
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(data)
            return
        folder, _, name = target.rpartition("/")
        self.filesystem.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            with self.filesystem.open_output_stream(temporary) as stream:
                stream.write(data)
            self.filesystem.move(temporary, target)
        except BaseException:
            if self.filesystem.get_file_info(temporary).type == pafs.FileType.File:
                self.filesystem.delete_file(temporary)
            raise

    def read_json(self, path: str) -> dict[str, Any]:
        """Return a JSON object."""
        try:
            value = json.loads(self.read(path))
        except ValueError as error:
            raise IntegrityError(
                f"{self.locate(path)} is not valid JSON ({error}); delete it and run again"
            ) from error
        if not isinstance(value, dict):
            raise IntegrityError(f"{self.locate(path)} is not a JSON object; delete it, run again")
        return value

    def read_document(self, path: str, fields: Mapping[str, type]) -> dict[str, Any]:
        """Return a JSON object that has these fields with these types."""
        value = self.read_json(path)
        wrong = [n for n, kind in fields.items() if not isinstance(value.get(n), kind)]
        if wrong:
            raise IntegrityError(
                f"{self.locate(path)} is damaged ({', '.join(wrong)} missing or not of its type); "
                "delete it and run again"
            )
        return value

    def write_json(self, path: str, value: dict[str, Any], *, indent: bool = True) -> None:
        """Write a JSON object atomically; NaN is refused."""
        if indent:
            text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"
        else:
            text = canonical_json(value)
        self.write(path, text.encode())

    def move(self, source: str, target: str) -> None:
        """Move a file, replacing what was there; at no moment is it in neither place."""
        first, second = self.at(source), self.at(target)
        with _reported("move", self.locate(source)):
            if self._renames:
                self.filesystem.create_dir(second.rpartition("/")[0], recursive=True)
                self.filesystem.move(first, second)
                return
            persistent(lambda: self.filesystem.copy_file(first, second))
        self.delete(source)

    def delete(self, path: str) -> None:
        """Delete a file or a whole folder; nothing there is fine."""
        with _reported("delete", self.locate(path)):
            persistent(lambda: self._delete(self.at(path)))

    def _delete(self, target: str) -> None:
        kind = self.filesystem.get_file_info(target).type
        if kind == pafs.FileType.File:
            self.filesystem.delete_file(target)
        elif kind == pafs.FileType.Directory:
            self.filesystem.delete_dir(target)

    def publish(
        self,
        staged: str,
        folder: str,
        parts: list[str],
        marker: dict[str, Any],
        keep: Sequence[str] = (),
    ) -> None:
        """Move checked parts into a unit's folder, then make them exist by writing the marker.

        Parts of a former state have other names (a part's name carries its key) and are removed
        last, so readers that follow the marker never see a mixture; `keep` names what else stays.
        """
        for name in parts:
            self.move(f"{staged}/{name}", f"{folder}/{name}")
        self.write_json(f"{folder}/{MARKER}", marker)
        for name in self.names(folder):
            if name != MARKER and name not in parts and name not in keep:
                self.delete(f"{folder}/{name}")
        self.delete(staged)
