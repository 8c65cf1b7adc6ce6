"""One file per image, in a folder per class; and whether all published images are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import Field

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import position, positions
from ace_ray.benchmarks.registry import Request
from ace_ray.benchmarks.split import Role, Samples, Split
from ace_ray.errors import DataError, nearest

Flag: TypeAlias = Annotated[bool, Field(strict=True)]
Seed: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
_LAYOUT = "image-file-1"


class Images(NamedTuple):
    """Labelled image files below a root."""

    root: str
    ids: list[str]
    labels: list[int]
    sizes: list[int]
    sources: list[str]  # paths below the root; often the ids themselves

    def where(self, kept: Iterable[bool]) -> Images:
        """Return the images that are kept."""
        return self.take([i for i, keep in enumerate(kept) if keep])

    def take(self, rows: Sequence[int]) -> Images:
        """Return the images at these rows."""
        ids = [self.ids[i] for i in rows]
        return Images(
            self.root,
            ids,
            [self.labels[i] for i in rows],
            [self.sizes[i] for i in rows],
            ids if self.sources is self.ids else [self.sources[i] for i in rows],
        )

    def split(
        self,
        request: Request,
        name: str,
        role: Role,
        classes: tuple[str, ...],
        *,
        subset: tuple[int, ...] | None = None,
        shift: tuple[str, int] | None = None,
    ) -> Split:
        """Return these images as a split."""
        if not self.ids:
            raise DataError(
                f"{request.name}: no image for {name} in {self.root}; a split needs at least one"
            )
        ids = pa.array(self.ids, pa.string())
        sources = ids if self.sources is self.ids else pa.array(self.sources, pa.string())
        samples = Samples(ids, np.asarray(self.labels, np.int32), sources)
        return Split(
            benchmark=request.name,
            name=name,
            role=role,
            samples=samples,
            classes=classes,
            digest=samples.digest(_LAYOUT, self.sizes),
            reader=roots.read_files,
            root=self.root,
            subset=subset,
            shift=shift,
        )


def root_of(request: Request, origin: str) -> str:
    """Return where a benchmark's data lie.

    Raises:
        DataError: If nobody said, or there is nothing; with where to get it.
    """
    remedy = f"set `data_root` or `path`; get it from {origin}"
    if request.root is None:
        raise DataError(f"{request.name}: where is it? {remedy}")
    root = roots.absolute(request.root)  # workers have another working directory
    if not roots.exists(root):
        raise DataError(f"{request.name}: there is no {root}; {remedy}")
    return root


def place_of(request: Request, origin: str, places: Sequence[str]) -> str:
    """Return the first of some places below a benchmark's root that is there; "" is the root."""
    root = root_of(request, origin)
    return next((at for p in places if roots.exists(at := roots.below(root, p))), root)


def read_folder(label: str, root: str, classes: Sequence[str]) -> Images:
    """Return the images of a folder with a sub-folder per class, which may be empty or nested.

    Args:
        label: The benchmark, for errors.
        root: The folder.
        classes: Names of the sub-folders by label; "" for labels that the set does not have.

    Raises:
        DataError: If an image lies in no class folder, or in one that is no class.
    """
    known = positions(classes)
    known.pop("", None)
    files = roots.files(root)
    labels: dict[str, int] = {}
    for folder in dict.fromkeys(file.path.partition("/")[0] for file in files):
        label_of = position(folder, known)
        if label_of is None and any(file.path == folder for file in files):
            raise DataError(
                f"{label}: {root}/{folder} lies in no class folder; move it into one, "
                f"as in {root}/{next(iter(known), '<class>')}/{folder}"
            )
        if label_of is None:
            raise DataError(
                f"{label}: {root}/{folder}: {folder!r} is none of the {len(known):,} classes; "
                f"{_few(nearest(folder, known))}; rename or move the folder"
            )
        labels[folder] = label_of
    ids = [file.path for file in files]
    sizes = [file.size for file in files]
    return Images(root, ids, [labels[path.partition("/")[0]] for path in ids], sizes, ids)


def _few(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most].rpartition(",")[0] + ", ..."


class Published(NamedTuple):
    """A set of images as its authors published it."""

    images: int
    origin: str
    each: int | None = None  # images per class, where all classes have as many

    def check(
        self, label: str, images: Images, classes: Sequence[str], *, partial: bool, gap: str = ""
    ) -> None:
        """Raise unless all images are there, or part of them is enough.

        Args:
            label: The benchmark, for errors.
            images: What was found.
            classes: Names by label; "" for labels that the set does not have.
            partial: Whether any number of images will do.
            gap: What is missing first; "" to say which class.
        """
        found = len(images.ids)
        if partial or found == self.images:
            return
        more = found > self.images
        remedy = "remove the others" if more else f"copy the rest from {self.origin}"
        raise DataError(
            f"{label}: {found:,} of {self.images:,} images in {images.root}; "
            f"{gap or self._gap(images, classes)}; {remedy}, or set `partial: true`"
        )

    def _gap(self, images: Images, classes: Sequence[str]) -> str:
        counts = np.bincount(images.labels, minlength=len(classes))
        known = [i for i, name in enumerate(classes) if name]
        missing = next((i for i in known if not counts[i]), None)
        if missing is not None:
            return f"class {classes[missing]} is missing"
        odd = [i for i in known if self.each and counts[i] != self.each]
        first = odd[0] if odd else min(known, key=lambda i: counts[i])
        of = f" of {self.each}" if self.each else ", the fewest"
        return f"class {classes[first]} has {counts[first]:,}{of}"
