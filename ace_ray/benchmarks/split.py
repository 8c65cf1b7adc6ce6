"""A split: a manifest of samples with one role, and all that a worker needs to make its images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ace_ray.arrays import ImageArray, IntArray
from ace_ray.benchmarks.corruptions import ENGINE, ConstantSet, constants
from ace_ray.benchmarks.corruptions.textures import DRAWN, textures_identity
from ace_ray.identity import digest_lines

Role: TypeAlias = Literal["calibration", "id", "ood"]


class Unreadable(NamedTuple):
    """Stands where an image could not be read, and says why."""

    reason: str


# An encoded image, pixels (H, W, 3) uint8, or why there is neither.
Item: TypeAlias = bytes | ImageArray | Unreadable
# (root, sources) -> one item per source. An importable function: workers call it.
Reader: TypeAlias = Callable[[str, Sequence[str]], Sequence[Item]]


class Samples(NamedTuple):
    """One row per sample; splits over the same images share it."""

    sample_id: pa.StringArray
    label: IntArray
    source: pa.StringArray  # what the reader is given

    @classmethod
    def of(
        cls, sample_id: Sequence[str], label: Sequence[int] | IntArray, source: Sequence[str]
    ) -> Samples:
        """Return the samples as compact columns."""
        return cls(
            pa.array(sample_id, pa.string()),
            np.asarray(label, np.int32),
            pa.array(source, pa.string()),
        )

    @classmethod
    def none(cls) -> Samples:
        """Return no samples: of a split whose logits were not made here."""
        return cls.of([], [], [])

    def rows(self) -> int:
        """Return the number of samples."""
        return len(self.label)

    def slice(self, start: int, stop: int) -> Samples:
        """Return a run of samples."""
        rows = slice(start, stop)
        return Samples(self.sample_id[rows], self.label[rows], self.source[rows])

    def digest(self, content: str, sizes: Sequence[int] | None = None) -> str:
        """Return the digest of ids, labels and what is known of the content behind them.

        Args:
            content: Version of whatever makes or lays out the images.
            sizes: Bytes of each image file. A change that keeps the size is noticed by
                `ace-ray validate`, which reads every image: a plan must not.
        """
        known = [""] * self.rows() if sizes is None else [f" {size}" for size in sizes]
        rows = zip(self.sample_id.to_pylist(), self.label.tolist(), known, strict=True)
        return digest_lines([content, *(f"{i} {y}{size}" for i, y, size in rows)])


class Corrupted(NamedTuple):
    """How a split's images are corrupted after loading."""

    name: str
    severity: int
    constant_set: ConstantSet = "cifar10-c"
    textures: str = DRAWN  # of frost; a reference that a worker can resolve
    side: int | None = None  # images are first cropped to this size; None: they all have one size

    def identity(self) -> dict[str, Any]:
        """Return what changes the corrupted pixels."""
        known = {
            "name": self.name,
            "severity": self.severity,
            "constants": list(constants(self.name, self.severity, self.constant_set)),
            "engine": ENGINE,
            "side": self.side,
        }
        if self.name == "frost":
            known["textures"] = textures_identity(self.textures)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A named set of samples with one role."""

    benchmark: str
    name: str  # corruption splits: `<corruption>/<severity>`
    role: Role
    samples: Samples
    classes: tuple[str, ...]  # of the network's outputs, in their order
    digest: str  # of ids, labels, and what is known of the content behind the sources
    reader: Reader
    root: str = ""  # given to the reader: where the data lies, never part of an identity
    subset: tuple[int, ...] | None = None  # classes that the split has; None: all
    corrupted: Corrupted | None = None  # by this package, while loading
    shift: tuple[str, int] | None = None  # corruption and severity of images corrupted by others
    side: int | None = None  # of every image, where all are square and of one size
    drawn: bool = False  # images are computed, there are no source bytes to look after

    @property
    def rows(self) -> int:
        """The number of samples."""
        return self.samples.rows()

    @property
    def corruption(self) -> str | None:
        """The corruption's name, whoever applied it."""
        return self.corrupted.name if self.corrupted else self.shift[0] if self.shift else None

    @property
    def severity(self) -> int | None:
        """The corruption's severity, whoever applied it."""
        return self.corrupted.severity if self.corrupted else self.shift[1] if self.shift else None
