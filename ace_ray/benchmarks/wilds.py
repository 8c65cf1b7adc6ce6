"""iWildCam of WILDS: animals at camera traps that calibration has seen, and at others."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import csv
from pydantic import ConfigDict

from ace_ray.benchmarks import roots
from ace_ray.benchmarks.classes import Classes, given_classes, position, positions
from ace_ray.benchmarks.image_folder import Flag, Images, place_of
from ace_ray.benchmarks.registry import Benchmark, Request, register_benchmark
from ace_ray.benchmarks.split import Role, Split
from ace_ray.errors import DataError, nearest

_ORIGIN: Final = "https://wilds.stanford.edu/datasets/#iwildcam (iwildcam_v2.0)"
_CLASSES: Final = 182
_PARTS: Final[dict[str, tuple[str, Role]]] = {
    "id_val": ("calibration", "calibration"),
    "id_test": ("test", "id"),
    "test": ("ood", "ood"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WildCamOptions:
    """Where, and what the network's outputs are."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    path: str | None = None
    classes: Classes | None = None  # names as in categories.csv; None: the 182 in WILDS's order
    partial: Flag = False  # fewer images than metadata.csv lists will do


def _table(label: str, root: str, path: str, types: dict[str, pa.DataType]) -> pa.Table:
    try:
        options = csv.ConvertOptions(include_columns=list(types), column_types=types)
        return csv.read_csv(io.BytesIO(roots.read(root, path)), convert_options=options)
    except OSError as error:
        raise DataError(
            f"{label}: {root}/{path}: cannot be read: {roots.why(error)}; get it from {_ORIGIN}"
        ) from error
    except (pa.ArrowInvalid, KeyError) as error:
        reason = str(error).strip("'\"").splitlines()[0]
        raise DataError(f"{label}: {root}/{path}: {reason}; expected {', '.join(types)}") from error


def _names(label: str, root: str) -> tuple[str, ...]:
    """Return the names of the 182 classes; numbers where categories.csv is not there."""
    names = [str(i) for i in range(_CLASSES)]
    if roots.exists(roots.below(root, "categories.csv")):
        types = {"y": pa.int64(), "name": pa.string()}
        for row in _table(label, root, "categories.csv", types).to_pylist():
            # Categories that WILDS left out have a label beyond the others.
            if row["y"] is not None and 0 <= row["y"] < _CLASSES:
                names[row["y"]] = row["name"]
    return tuple(names)


def _outputs(request: Request, root: str) -> tuple[tuple[str, ...], list[int | None]]:
    """Return the names of the network's outputs, and the output of each WILDS label."""
    options: WildCamOptions = request.options
    names = _names(request.name, root)
    if options.classes is None:
        return names, list(range(_CLASSES))
    classes = given_classes(request.name, options.classes, root)
    known = positions(classes)
    return classes, [position(name, known) for name in names]


def _splits(request: Request) -> list[Split]:
    options: WildCamOptions = request.options
    root = place_of(request, _ORIGIN, ["iwildcam_v2.0", ""])
    types = {"split": pa.string(), "filename": pa.string(), "y": pa.int64()}
    listed = _table(request.name, root, "metadata.csv", types).to_pydict()
    folder = roots.below(root, "train")
    sizes = {file.path: file.size for file in roots.files(folder, recursive=False)}
    rows = sorted(
        (name, part, y)
        for part, name, y in zip(listed["split"], listed["filename"], listed["y"], strict=True)
        if part in _PARTS
    )
    missing = [name for name, _, _ in rows if name not in sizes]
    if missing and not options.partial:
        raise DataError(
            f"{request.name}: {len(rows) - len(missing):,} of {len(rows):,} images in {folder}; "
            f"{missing[0]} is missing; copy the rest from {_ORIGIN}, or set `partial: true`"
        )
    classes, outputs = _outputs(request, root)
    names = _names(request.name, root)
    made = []
    for part, (split, role) in _PARTS.items():
        kept = [(name, y) for name, p, y in rows if p == part and name in sizes]
        labels = []
        for name, y in kept:
            if y is None or not 0 <= y < _CLASSES:
                raise DataError(
                    f"{request.name}: metadata.csv: {name} has the label {y}, not 0-181"
                )
            output = outputs[y]
            if output is None:
                raise DataError(
                    f"{request.name}: classes: {names[y]!r} ({name}) is not among them; "
                    f"{nearest(names[y], classes)}"
                )
            labels.append(output)
        ids = [name for name, _ in kept]
        images = Images(folder, ids, labels, [sizes[name] for name in ids], ids)
        made.append(images.split(request, split, role, classes))
    return made


register_benchmark(
    Benchmark(
        name="iwildcam",
        about="iWildCam-WILDS: 182 animals; camera traps that calibration has seen, and others",
        options=WildCamOptions,
        splits=_splits,
        folder="iwildcam_v2.0",
        origin=_ORIGIN,
    )
)
