"""Building networks: timm's registry, with ours and third-party architectures in it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import timm
from timm.models import get_pretrained_cfg, is_model, split_model_name_tag
from torch import nn

from ace_ray.errors import UsageError
from ace_ray.models.registry import MODELS


@cache
def load_plugins() -> None:
    """Import third-party architectures: modules named by the entry point `ace_ray.models`.

    Importing one calls timm's `register_model`.
    """
    for point in entry_points(group="ace_ray.models"):
        point.load()


def check_architecture(name: str, label: str) -> None:
    """Make sure that timm knows an architecture, with its tag if it has one."""
    import_module("ace_ray.models.cifar_resnet")
    architecture, tag = split_model_name_tag(name)
    if not is_model(architecture):
        load_plugins()
    if not is_model(architecture):
        known = timm.list_models()
        raise UsageError(f"{label}: unknown architecture {architecture!r}; {_close(name, known)}")
    try:
        get_pretrained_cfg(name)
    except RuntimeError:  # how timm says that there is no such tag
        known = [*MODELS, *timm.list_models(f"{architecture}*", include_tags=True)]
        raise UsageError(
            f"{label}: {architecture!r} has no weights tagged {tag!r}; {_close(name, known)}"
        ) from None


def build(
    architecture: str, arguments: Mapping[str, Any], classes: int, label: str, **more: Any
) -> nn.Module:
    """Return a network of an architecture; `more` goes to `timm.create_model`."""
    check_architecture(architecture, label)
    try:
        return timm.create_model(architecture, num_classes=classes, **arguments, **more)
    except TypeError as error:
        raise UsageError(f"{label}: {architecture} cannot be built: {error}") from None


def _close(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
    found = f"did you mean {', '.join(close)}? " if close else ""
    return f"{found}`timm.list_models()` has all"
