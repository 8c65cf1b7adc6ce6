"""From what a reader returned to the pixels that a network sees.

Pure: no Ray, no files, and no torch unless an image has to be resized (by timm's own transform).
"""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ace_ray.arrays import ImageArray
from ace_ray.benchmarks.corruptions import corrupt
from ace_ray.benchmarks.split import Corrupted, Item, Unreadable
from ace_ray.models.registry import Preprocessing

if TYPE_CHECKING:
    from ace_ray.models.preprocess import Preprocess

# Part of every content key: raise it whenever a decoded pixel changes.
DECODER: Final = "decoder-1"
DIGEST_BYTES: Final = 8  # of an image's source bytes: enough to notice a change
# What Pillow's decoders raise on damaged or hostile files.
_DAMAGED: Final = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class Bad(NamedTuple):
    """An image that cannot be used, by its position in the shard."""

    at: int
    reason: str


class Loaded(NamedTuple):
    """A shard's usable images at the network's input size."""

    images: ImageArray  # (K, H, W, 3)
    kept: list[int]  # their positions in the shard
    digests: bytes  # of their source bytes, `DIGEST_BYTES` each
    bad: list[Bad]


def source_digest(item: bytes | ImageArray) -> bytes:
    """Return the short digest of an image's source bytes."""
    data = item if isinstance(item, bytes) else np.ascontiguousarray(item).data
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def decode(data: bytes) -> Image.Image | Unreadable:
    """Return an encoded image upright in RGB, or why that is impossible.

    CMYK, palette, grey and alpha go through Pillow's conversion, as in timm; 16-bit grey is scaled
    (Pillow would clip it), and the EXIF orientation is applied.
    """
    if not data:
        return Unreadable("the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns of odd EXIF, palettes and large images that it then decodes well.
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return _rgb(image)
    except UnidentifiedImageError:
        return Unreadable("is not an image that Pillow knows")
    except _DAMAGED as error:
        text = str(error).splitlines()
        return Unreadable(f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)


def _rgb(image: Image.Image) -> Image.Image | Unreadable:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65_535:
            return Unreadable("has grey levels beyond 16 bits")
        return Image.fromarray(((levels + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return Unreadable("has floating-point pixels")
    return image.convert("RGB")


def centre(image: Image.Image, side: int) -> Image.Image:
    """Return the centre of an image as the published ImageNet-C was cut.

    The short side becomes side x 256/224 (bilinear), then a square is cropped.
    """
    short = side * 256 // 224
    width, height = image.size
    if width <= height:
        size = (short, int(short * height / width))
    else:
        size = (int(short * width / height), short)
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
    return image.crop((left, top, left + side, top + side))


@lru_cache(maxsize=8)
def _preprocess(preprocessing: Preprocessing) -> Preprocess:
    from ace_ray.models.preprocess import Preprocess

    return Preprocess(preprocessing)


def _fitted(image: Image.Image | ImageArray, preprocessing: Preprocessing) -> ImageArray:
    """Return an image at the network's input size; no torch where it has that size already."""
    height, width = image.shape[:2] if isinstance(image, np.ndarray) else image.size[::-1]
    if preprocessing.crop_pct == 1 and (height, width) == preprocessing.input_size:
        return np.asarray(image)
    picture = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    return _preprocess(preprocessing)(picture)


def load_images(
    items: Sequence[Item],
    preprocessing: Preprocessing,
    corrupted: Corrupted | None = None,
    seeds: Sequence[int] = (),
    *,
    digests: bool = True,
) -> Loaded:
    """Decode, corrupt and resize a shard; what cannot be used is named, all else is kept.

    Args:
        items: What the reader returned.
        preprocessing: The network's.
        corrupted: How to corrupt, if at all.
        seeds: One per item, for the corruption.
        digests: Whether to take digests of the source bytes.
    """
    kept: list[int] = []
    bad: list[Bad] = []
    seen = bytearray()
    pixels: list[ImageArray] = []
    for i, item in enumerate(items):
        image = decode(item) if isinstance(item, bytes) else item
        if isinstance(image, Unreadable):
            bad.append(Bad(i, image.reason))
            continue
        if corrupted and corrupted.side:
            picture = Image.fromarray(image) if isinstance(image, np.ndarray) else image
            image = np.asarray(centre(picture, corrupted.side))
        if digests and not isinstance(item, Unreadable):
            seen += source_digest(item)
        kept.append(i)
        pixels.append(np.asarray(image) if corrupted else _fitted(image, preprocessing))
    if corrupted and pixels:
        shifted = corrupt(
            np.stack(pixels),
            corrupted.name,
            corrupted.severity,
            [seeds[i] for i in kept],
            constant_set=corrupted.constant_set,
            textures=corrupted.textures,
        )
        pixels = [_fitted(image, preprocessing) for image in shifted]
    empty = np.empty((0, *preprocessing.input_size, 3), np.uint8)
    return Loaded(np.stack(pixels) if pixels else empty, kept, bytes(seen), bad)
