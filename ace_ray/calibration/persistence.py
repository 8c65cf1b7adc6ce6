"""Saving and loading: a folder with one JSON file and one safetensors file. No pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from ace_ray.calibration.base import CALIBRATORS, Calibrator, FitReport, make_calibrator
from ace_ray.errors import IntegrityError, StoreError, UsageError, nearest

if TYPE_CHECKING:
    from ace_ray.calibration.ace import ACE

FORMAT: Final = 1
_NAMES: Final = ("ace", "calibrator")  # stems of the two files: an ACE, a single calibrator


def save(fitted: Calibrator | ACE, path: str | Path) -> None:
    """Write a fitted calibrator or ACE into the folder `path`; `load` gives it back bit for bit."""
    from ace_ray.calibration.ace import ACE

    tensors: dict[str, np.ndarray[Any, Any]] = {}
    if isinstance(fitted, ACE):
        stem, body = "ace", _describe_ace(fitted, tensors)
    else:
        stem, body = "calibrator", _describe(fitted, "", tensors)
    data = safetensors.numpy.save(tensors)
    body |= {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(body, indent=1, sort_keys=True, allow_nan=False, default=_plain) + "\n"
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The JSON names the tensors' digest and comes last: a crash in between is noticed.
        _replace(folder / f"{stem}.safetensors", data)
        _replace(folder / f"{stem}.json", text.encode())
        # What the folder held before of the other kind is no longer what it is.
        for other in (name for name in _NAMES if name != stem):
            (folder / f"{other}.json").unlink(missing_ok=True)
            (folder / f"{other}.safetensors").unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error


def load(path: str | Path) -> Calibrator | ACE:
    """Return what `save` wrote.

    Raises:
        StoreError: If there is nothing to load.
        IntegrityError: If the two files do not belong together or are damaged.
    """
    folder = Path(path)
    stem = next((s for s in _NAMES if (folder / f"{s}.json").is_file()), None)
    if stem is None:
        raise StoreError(f"{folder}: holds neither ace.json nor calibrator.json")
    try:
        body = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        data = (folder / f"{stem}.safetensors").read_bytes()
        if body["format"] != FORMAT:
            raise IntegrityError(
                f"{folder}: format {body['format']!r}, this version reads {FORMAT}"
            )
        if hashlib.sha256(data).hexdigest() != body["sha256"]:
            raise IntegrityError(f"{folder}: {stem}.safetensors is not the file {stem}.json names")
        tensors = safetensors.numpy.load(data)
        return _restore_ace(body, tensors) if stem == "ace" else _restore(body, "", tensors)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise IntegrityError(
            f"{folder}: damaged ({type(error).__name__}: {error}); save it again"
        ) from error


def _describe(
    fitted: Calibrator, prefix: str, tensors: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Any]:
    if not fitted.is_fitted():
        raise UsageError(f"{type(fitted).__name__} is not fitted; call fit(logits, labels) first")
    if fitted.name not in CALIBRATORS:
        raise UsageError(f"{type(fitted).__name__} is not registered; see register_calibrator")
    scalars: dict[str, Any] = {}
    for name, value in fitted.fitted().items():
        if isinstance(value, np.ndarray):
            tensors[prefix + name] = np.ascontiguousarray(value)
        else:
            scalars[name] = value
    return {
        "calibrator": fitted.name,
        "params": fitted.get_params(),
        "fitted": scalars,
        "report": fitted.report_._asdict(),
    }


def _restore(
    body: dict[str, Any], prefix: str, tensors: dict[str, np.ndarray[Any, Any]]
) -> Calibrator:
    name = body["calibrator"]
    if name not in CALIBRATORS:
        raise IntegrityError(f"unknown calibrator {name!r}; {nearest(name, CALIBRATORS)}")
    calibrator = make_calibrator(name)
    known = calibrator.get_params()
    # JSON has no tuples: a parameter takes the type that its default has.
    params = {k: tuple(v) if isinstance(known[k], tuple) else v for k, v in body["params"].items()}
    calibrator.set_params(**params)
    vars(calibrator).update(body["fitted"])
    for key, value in tensors.items():
        if key.startswith(prefix) and "." not in key[len(prefix) :]:
            setattr(calibrator, key[len(prefix) :], value)
    calibrator.report_ = FitReport(**body["report"])
    return calibrator


def _describe_ace(ace: ACE, tensors: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    ace._check_fitted()
    params = ace.get_params()
    del params["calibrator"]
    if ace.classes is not None:
        params["classes"] = [int(i) for i in ace.classes]
    tensors["hard_mask_"] = ace.hard_mask_
    return {
        "params": params,
        "difficulty_": ace.difficulty_,
        "avg_confidence_": ace.avg_confidence_,
        "width_": ace.width_,
        "easy": _describe(ace.easy_, "easy.", tensors),
        "hard": _describe(ace.hard_, "hard.", tensors),
    }


def _restore_ace(body: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> ACE:
    from ace_ray.calibration.ace import ACE

    easy = _restore(body["easy"], "easy.", tensors)
    hard = _restore(body["hard"], "hard.", tensors)
    family = make_calibrator(easy.name).set_params(**easy.get_params())
    ace = ACE(family, **body["params"])
    ace.easy_, ace.hard_, ace.hard_mask_ = easy, hard, tensors["hard_mask_"]
    ace.difficulty_, ace.avg_confidence_ = body["difficulty_"], body["avg_confidence_"]
    ace.width_ = body["width_"]
    return ace


def _plain(value: Any) -> Any:
    """Return a numpy scalar or array as what JSON knows."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise UsageError(f"cannot save a parameter of type {type(value).__name__}: {value!r}")


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
