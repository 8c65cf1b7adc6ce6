"""Where weights come from: a local checkpoint, or timm's own from a folder or the hub."""

from __future__ import annotations

import logging
import pickle
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from timm.data import resolve_data_config
from timm.models import (
    get_pretrained_cfg,
    load_model_config_from_hf,
    parse_model_name,
    split_model_name_tag,
)
from timm.models._hub import load_model_config_from_path
from timm.models._pretrained import PretrainedCfg
from torch import nn

from ace_ray.errors import DataError, UsageError
from ace_ray.models.checkpoint import canonical, count_classes, fill, is_safetensors, load_state
from ace_ray.models.config import ModelConfig
from ace_ray.models.network import build, check_architecture
from ace_ray.models.registry import Preprocessing


class Prepared(NamedTuple):
    """What an entry turned out to mean."""

    architecture: str
    arguments: dict[str, Any]
    classes: int
    data: bytes  # the weights
    preprocessing: Preprocessing


class _Source(NamedTuple):
    """An architecture as timm describes it."""

    architecture: str
    settings: dict[str, Any]  # timm's pretrained_cfg: where its weights are, preprocessing, classes
    arguments: dict[str, Any]


def prepare(config: ModelConfig) -> Prepared:
    """Find architecture, weights and preprocessing of a single model, and check that they fit."""
    source = _find(config)
    preprocessing = _preprocessing(config, source.settings)
    source = source._replace(arguments=_arguments(config, source, preprocessing))
    data = _read(config, source)
    classes = (
        _check_checkpoint(config, source, data)
        if config.checkpoint
        else int(source.settings["num_classes"])
    )
    return Prepared(source.architecture, source.arguments, classes, data, preprocessing)


def read_weights(config: ModelConfig) -> bytes:
    """Return the weights of a single model: the file as it is, or safetensors of timm's own."""
    source = _find(config)
    arguments = _arguments(config, source, _preprocessing(config, source.settings))
    return _read(config, source._replace(arguments=arguments))


def _find(config: ModelConfig) -> _Source:
    label = config.name
    # A line for each of its attempts; what comes of them is said once, by us.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        kind, identifier = parse_model_name(config.source)
    except ValueError as error:
        raise UsageError(f"{label}: {_line(error)}") from None
    if kind is None:
        check_architecture(config.source, label)
        settings = (get_pretrained_cfg(config.source) or PretrainedCfg()).to_dict()
        return _Source(split_model_name_tag(config.source)[0], settings, {})
    try:
        load = load_model_config_from_hf if kind == "hf-hub" else load_model_config_from_path
        settings, architecture, arguments = load(identifier)
    except (OSError, ValueError, LookupError) as error:  # JSON's errors are ValueErrors
        raise _unavailable(config, kind, error) from None
    check_architecture(architecture, label)
    # Not every folder says all: what it leaves out has timm's default.
    settings = {**PretrainedCfg().to_dict(), **settings}
    return _Source(architecture, settings, dict(arguments))


def _preprocessing(config: ModelConfig, settings: dict[str, Any]) -> Preprocessing:
    if settings["input_size"][0] != 3:
        raise UsageError(
            f"{config.name}: takes {settings['input_size'][0]} colour channels, expected 3"
        )
    names = ("crop_pct", "crop_mode", "interpolation", "mean", "std")
    wanted: dict[str, Any] = {name: getattr(config, name) for name in names}
    if config.input_size:
        wanted["input_size"] = (3, config.input_size, config.input_size)
    found = resolve_data_config(wanted, pretrained_cfg=settings)
    red, green, blue = found["mean"]
    return Preprocessing(
        input_size=(int(found["input_size"][1]), int(found["input_size"][2])),
        interpolation=str(found["interpolation"]),
        crop_pct=float(found["crop_pct"]),
        crop_mode=str(found["crop_mode"]),
        mean=(float(red), float(green), float(blue)),
        std=(float(found["std"][0]), float(found["std"][1]), float(found["std"][2])),
    )


def _arguments(
    config: ModelConfig, source: _Source, preprocessing: Preprocessing
) -> dict[str, Any]:
    arguments = {k: v for k, v in source.arguments.items() if k != "num_classes"}
    if source.settings.get("fixed_input_size") or "img_size" in arguments:
        arguments["img_size"] = list(preprocessing.input_size)
    if config.drop_rate:
        arguments["drop_rate"] = config.drop_rate
    return arguments


def _read(config: ModelConfig, source: _Source) -> bytes:
    if config.checkpoint is None:
        return canonical(_pretrained(config, source).state_dict())
    try:
        return Path(config.checkpoint).expanduser().read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{config.name}: checkpoint {config.checkpoint}: no such file") from None
    except OSError as error:
        raise UsageError(
            f"{config.name}: checkpoint {config.checkpoint}: cannot be read: {error.strerror}"
        ) from None


def _pretrained(config: ModelConfig, source: _Source) -> nn.Module:
    """Return the network with timm's own weights."""
    settings, label = source.settings, config.name
    if not any(settings.get(key) for key in ("hf_hub_id", "url", "file")):
        raise UsageError(
            f"{label}: timm has no weights of {source.architecture!r}; give a local file as "
            "`checkpoint:`"
        )
    classes = int(settings["num_classes"])
    if classes < 2 or config.num_classes not in (None, classes):
        raise UsageError(
            f"{label}: num_classes {config.num_classes}, but the weights have {classes} classes; "
            "give weights that were trained for yours as `checkpoint:`"
        )
    try:
        return build(
            source.architecture,
            source.arguments,
            classes,
            label,
            pretrained=True,
            pretrained_cfg=settings,
        )
    except OSError as error:
        raise _unavailable(config, str(settings.get("source") or "hf-hub"), error) from None
    except (RuntimeError, SafetensorError, pickle.UnpicklingError, LookupError) as error:
        raise DataError(f"{label}: the weights cannot be loaded: {_line(error)}") from None


def _check_checkpoint(config: ModelConfig, source: _Source, data: bytes) -> int:
    """Return the number of classes of a checkpoint that fits the architecture."""
    where = f"{config.name}: checkpoint {config.checkpoint}"
    state = load_state(data, where)
    if config.remap and is_safetensors(data):
        # Sorted by name, a bias and a mean of the same shape would silently change places.
        raise UsageError(f"{where}: safetensors keeps no order; `remap` needs the original .pth")
    classes = config.num_classes or int(source.settings["num_classes"]) or 1000
    network = build(source.architecture, source.arguments, classes, config.name)
    if config.num_classes is None:
        layer = source.settings.get("classifier")
        found = count_classes(network, state, layer, remap=config.remap)
        if found not in (None, classes):
            classes = found
            network = build(source.architecture, source.arguments, classes, config.name)
    fill(network, state, remap=config.remap, where=where)
    return classes


def _unavailable(config: ModelConfig, kind: str, error: Exception) -> UsageError:
    if kind == "local-dir":
        return UsageError(
            f"{config.name}: not a folder of timm's ({_line(error)}); it needs config.json and "
            "model.safetensors, as `timm.models.save_for_hf` writes them"
        )
    said = textwrap.shorten(_line(error), 100, placeholder=" ...")
    return UsageError(
        f"{config.name}: the hub cannot be reached or lacks these weights ({said}); "
        "give a local file as `checkpoint:`, or a filled cache in HF_HOME"
    )


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
