"""Labels of the flat ImageNet validation folder, in whichever file they come.

| lines | known as |
|---|---|
| `<name> <index>`, index in sorted synsets | `val.txt` (Caffe) |
| `<name> <wnid>`; `<name>,<wnid> <box> ...` | Kaggle's `LOC_val_solution.csv` |
| `<wnid>`, in the order of the image numbers | `imagenet_2012_validation_synset_labels.txt` |
| `<1..1000>`, likewise, in the devkit's order | the devkit's ground truth, `meta.mat` beside it |
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import imagenet_classes, placed, read_text
from ace_ray.benchmarks.halves import official_number
from ace_ray.errors import DataError

_TRUTH: Final = "ILSVRC2012_validation_ground_truth.txt"
_USUAL: Final = (
    "val.txt",
    "caffe_ilsvrc12/val.txt",
    "val_labels.txt",
    "imagenet_2012_validation_synset_labels.txt",
    "LOC_val_solution.csv",
    _TRUTH,
    f"data/{_TRUTH}",
    f"ILSVRC2012_devkit_t12/data/{_TRUTH}",
)
_WNID: Final = re.compile(r"n\d{8}")


def find_labels(label: str, roots_: Sequence[str], given: str | None) -> str:
    """Return the place of the labels file: as given, or the first with a usual name."""
    if given is not None:
        return placed(given, roots_[0])
    places = [roots.below(root, name) for root in roots_ for name in _USUAL]
    found = next((place for place in places if roots.exists(place)), None)
    if found is None:
        raise DataError(
            f"{label}: images without class folders and no labels file in {roots_[0]}; "
            f"add one of {', '.join(name for name in _USUAL if '/' not in name)}, or set `labels`"
        )
    return found


def read_labels(label: str, place: str, names: Sequence[str]) -> list[int]:
    """Return the class index of each image.

    Args:
        label: The benchmark, for errors.
        place: The labels file.
        names: File names of the images, sorted.

    Raises:
        DataError: If the file is of no known kind, or lacks an image.
    """
    text = read_text(label, "labels", place)
    rows = [re.split(r"[\s,]+", line.strip()) for line in text.splitlines() if line.strip()]
    if rows and rows[0][0] == "ImageId":
        rows = rows[1:]
    if not rows:
        raise DataError(f"{label}: {place} is empty; get it again or set `labels`")
    if len(rows[0]) > 1:
        return _by_name(label, place, rows, names)
    return _by_order(label, place, [row[0] for row in rows], names)


def _index(label: str, place: str, line: int, word: str, known: dict[str, int]) -> int:
    if word in known:
        return known[word]
    raise DataError(
        f"{label}: {place}, line {line}: {word!r} is no class; expected a WordNet id of "
        f"ImageNet-1k or a number ({min(known.values())} to {max(known.values())})"
    )


def _by_name(label: str, place: str, rows: list[list[str]], names: Sequence[str]) -> list[int]:
    classes = imagenet_classes()
    known = {wnid: i for i, wnid in enumerate(classes)} | {str(i): i for i in range(len(classes))}
    labels: dict[str, int] = {}
    for line, row in enumerate(rows, 1):
        if len(row) == 1:
            raise DataError(f"{label}: {place}, line {line}: {row[0]!r} has no label")
        labels[_stem(row[0])] = _index(label, place, line, row[1], known)
    missing = next((name for name in names if _stem(name) not in labels), None)
    if missing is not None:
        raise DataError(f"{label}: {place} has no label for {missing}; set `labels` to another")
    return [labels[_stem(name)] for name in names]


def _stem(name: str) -> str:
    return PurePosixPath(name).stem if "." in name else PurePosixPath(name).name


def _by_order(label: str, place: str, words: list[str], names: Sequence[str]) -> list[int]:
    if _WNID.fullmatch(words[0]):
        known = {wnid: i for i, wnid in enumerate(imagenet_classes())}
    else:
        known = _devkit(label, place)
    lines = [_index(label, place, line, word, known) for line, word in enumerate(words, 1)]
    numbers = [official_number(name) for name in names]
    if None in numbers and len(lines) != len(names):
        raise DataError(
            f"{label}: {place} has {len(lines):,} lines for {len(names):,} images whose names "
            "carry no number; use a file with a name on each line"
        )
    at = range(1, len(names) + 1) if None in numbers else [n for n in numbers if n is not None]
    last = max(at, default=0)
    if last > len(lines):
        raise DataError(f"{label}: {place} has {len(lines):,} lines, but there is image {last:,}")
    return [lines[number - 1] for number in at]


def _devkit(label: str, place: str) -> dict[str, int]:
    """Return the class index by the devkit's number, which is not the sorted order."""
    folder = place.rpartition("/")[0]
    try:
        data = roots.read(folder, "meta.mat")
    except OSError:
        raise DataError(
            f"{label}: {place} numbers classes in the devkit's own order, and {folder}/meta.mat is "
            "missing; copy it from ILSVRC2012_devkit_t12/data, or use a file with WordNet ids"
        ) from None
    from scipy.io import loadmat

    index = {wnid: i for i, wnid in enumerate(imagenet_classes())}
    try:
        synsets = loadmat(io.BytesIO(data), squeeze_me=True)["synsets"]
        rows = zip(synsets["ILSVRC2012_ID"].tolist(), synsets["WNID"].tolist(), strict=True)
        return {str(int(number)): index[str(wnid)] for number, wnid in rows if str(wnid) in index}
    except (ValueError, KeyError, TypeError, IndexError, NotImplementedError) as error:
        raise DataError(
            f"{label}: {folder}/meta.mat is not the devkit's: {error}; copy it again"
        ) from error
