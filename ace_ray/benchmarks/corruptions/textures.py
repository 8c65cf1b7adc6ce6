"""Where the ice of `frost` comes from: photographs, or drawn where there are none.

A reference is a string that a configuration or a worker can carry: "drawn", "package" (the
pictures inside the installed `imagecorruptions`) or "folder:<absolute path>".
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from ace_ray.arrays import ImageArray
from ace_ray.errors import DataError

DRAWN: Final = "drawn"
PACKAGE: Final = "package"
_FOLDER: Final = "folder:"
_PICTURES: Final = (".jpeg", ".jpg", ".png")
_COUNT: Final = 6


def _package_folder() -> Path | None:
    # Found, not imported: importing it loads numba and opencv.
    found = util.find_spec("imagecorruptions")
    places = found.submodule_search_locations if found else None
    return Path(places[0]) / "frost" if places else None


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in _PICTURES)[:_COUNT]


def find_textures(folder: str | None = None) -> str:
    """Return the reference of a folder, else of the installed package, else "drawn"."""
    if folder is not None:
        return f"{_FOLDER}{Path(folder).expanduser().resolve()}"
    packaged = _package_folder()
    return PACKAGE if packaged and _pictures(packaged) else DRAWN


def _files(reference: str) -> list[Path]:
    """Return the pictures behind a reference, or refuse: ice is never drawn in their place."""
    if reference == PACKAGE:
        packaged = _package_folder()
        files = _pictures(packaged) if packaged else []
        remedy = "run `pip install imagecorruptions-imaug` on this machine"
    elif reference.startswith(_FOLDER):
        files = _pictures(Path(reference.removeprefix(_FOLDER)))
        remedy = "put PNG or JPEG pictures of frost there, readable from this machine"
    else:
        raise DataError(
            f"frost textures: unknown reference {reference!r}; use {DRAWN!r}, {PACKAGE!r} or "
            f"'{_FOLDER}<path>'"
        )
    if not files:
        raise DataError(f"frost textures {reference!r}: no pictures found; {remedy}")
    return files


def textures_identity(reference: str) -> str:
    """Return what enters a content key: the pictures' digest, never their path."""
    if reference == DRAWN:
        return DRAWN
    digest = hashlib.sha256()
    for file in _files(reference):
        data = file.read_bytes()
        digest.update(len(data).to_bytes(8))  # so that no byte can move between files
        digest.update(data)
    return f"{reference.partition(':')[0]}:{digest.hexdigest()[:16]}"


@lru_cache(maxsize=8)
def load_textures(reference: str, scale: float, height: int, width: int) -> tuple[ImageArray, ...]:
    """Return the pictures, scaled by at least `scale`, and 1.1 times as large as the image."""
    loaded = []
    for file in _files(reference):
        try:
            with Image.open(file) as opened:
                picture = opened.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise DataError(f"{file}: not a readable picture; remove or replace it") from error
        w, h = picture.size
        factor = max(scale, 1.1 * max(height / h, width / w))
        size = (int(np.ceil(w * factor)), int(np.ceil(h * factor)))
        # A transform, not a resize: the published code shrinks without averaging.
        scaled = picture.transform(
            size,
            Image.Transform.AFFINE,
            (w / size[0], 0, 0, 0, h / size[1], 0),
            Image.Resampling.BICUBIC if factor > 1 else Image.Resampling.BILINEAR,
        )
        loaded.append(np.asarray(scaled))
    return tuple(loaded)
