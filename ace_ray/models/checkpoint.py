"""From the bytes of a checkpoint to weights in a network, without running what it carries.

A pickle is read with `weights_only`: it may build tensors and plain containers, nothing else.
"""

from __future__ import annotations

import argparse
import io
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from timm.models import clean_state_dict
from torch import nn

from ace_ray.errors import DataError

State: TypeAlias = dict[str, torch.Tensor]

# Where training scripts keep the weights; averaged ones first, as timm has it.
_WRAPPERS: Final = ("state_dict_ema", "model_ema", "state_dict", "model")
# What torch.load raises on damaged bytes.
_DAMAGE: Final = (
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    AssertionError,
)
_COUNTER: Final = "num_batches_tracked"  # used in training only; old checkpoints lack it


def load_state(data: bytes, where: str) -> State:
    """Return the weights in a safetensors or PyTorch checkpoint.

    Raises:
        DataError: If it is something else, damaged, or asks for code to run.
    """
    start = data[:512].lstrip().lower()
    if not data:
        raise DataError(f"{where}: is empty; copy or download the checkpoint again")
    if b"<html" in start or start.startswith(b"<!doctype html"):
        raise DataError(
            f"{where}: is an HTML page, not a checkpoint: the download was probably a login or "
            "error page"
        )
    if start.startswith(b"version https://git-lfs"):
        raise DataError(
            f"{where}: is a git-lfs pointer, not a checkpoint; run `git lfs pull` where it is from"
        )
    if is_safetensors(data):
        try:
            return _tensors(load_safetensors(data), where)
        except SafetensorError as error:
            raise DataError(
                f"{where}: is a damaged safetensors file ({_line(error)}); copy it again"
            ) from None
    if data.startswith(b"PK\x03\x04"):
        _check_zip(data, where)
    elif not data.startswith(b"\x80"):  # the mark of a binary pickle
        kind = "a tar archive" if data[257:262] == b"ustar" else f"it starts with {data[:12]!r}"
        raise DataError(f"{where}: is not a checkpoint ({kind}); give safetensors or .pth")
    return _tensors(_unpickle(data, where), where)


def is_safetensors(data: bytes) -> bool:
    """Return whether bytes start as safetensors do: the length of a header, then JSON."""
    return data[8:9] == b"{" and int.from_bytes(data[:8], "little") < 2**32


def canonical(state: Mapping[str, torch.Tensor]) -> bytes:
    """Return the one safetensors serialisation of weights."""
    # Cloned: safetensors refuses tensors that share memory, as tied weights do.
    return bytes(save_safetensors({k: state[k].detach().cpu().clone() for k in sorted(state)}))


def fill(network: nn.Module, state: State, *, remap: bool, where: str) -> None:
    """Put weights into a network; all must fit.

    Args:
        network: Is changed.
        state: The weights.
        remap: Match by order and shape instead of by name.
        where: Names the weights in errors.
    """
    own: State = network.state_dict()
    if remap:
        state = _by_order(own, state, where)
    for name in own:
        if name not in state and not name.endswith(_COUNTER):
            raise DataError(
                f"{where}: has no {name!r}, which the architecture needs; check `architecture`, "
                "or, of a .pth, set `remap: true` if only the names differ"
            )
    for name in state:
        if name not in own:
            raise DataError(
                f"{where}: has {name!r}, which the architecture does not; check `architecture`, "
                "or, of a .pth, set `remap: true` if only the names differ"
            )
    for name, weight in own.items():
        if name in state and weight.shape != state[name].shape:
            raise DataError(
                f"{where}: {name!r} is {_shape(state[name])}, the architecture needs "
                f"{_shape(weight)}; check `architecture`, `num_classes` and `input_size`"
            )
    network.load_state_dict({**own, **state})


def count_classes(network: nn.Module, state: State, classifier: Any, *, remap: bool) -> int | None:
    """Return how many classes the weights of the classifier have; None: it cannot be told.

    Args:
        network: Of the architecture, with any number of classes.
        state: The weights.
        classifier: The name of the last layer in timm's settings, or several.
        remap: Match by order instead of by name.
    """
    names = [classifier] if isinstance(classifier, str) else list(classifier or ())
    for name in names:
        key = f"{name}.weight"
        if remap:
            own, given = _weights(network.state_dict()), _weights(state)
            key = given[own.index(key)] if key in own and len(own) == len(given) else ""
        if key in state and state[key].ndim >= 2:
            return int(state[key].shape[0])
    return None


def _by_order(own: State, state: State, where: str) -> State:
    names, given = _weights(own), _weights(state)
    if len(names) != len(given):
        raise DataError(
            f"{where}: has {len(given)} weights, the architecture {len(names)}; remap matches by "
            "order: check `architecture`"
        )
    for name, other in zip(names, given, strict=True):
        if own[name].shape != state[other].shape:
            raise DataError(
                f"{where}: {other!r} is {_shape(state[other])}, but {name!r} in its place is "
                f"{_shape(own[name])}; remap matches by order: check `architecture`, `num_classes`"
            )
    return {name: state[other] for name, other in zip(names, given, strict=True)}


def _weights(state: State) -> list[str]:
    """Return the names without those of counters, whatever these are called."""
    return [name for name, value in state.items() if value.ndim or value.is_floating_point()]


def _check_zip(data: bytes, where: str) -> None:
    """Refuse a zip that is not PyTorch's."""
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except zipfile.BadZipFile:
        raise DataError(f"{where}: is damaged or cut off; copy the checkpoint again") from None
    if any(name.endswith("/constants.pkl") for name in names):
        raise DataError(f"{where}: is a TorchScript program; save its state_dict() as safetensors")
    if not any(name.endswith("/data.pkl") for name in names):
        first = names[0] if names else "nothing"
        raise DataError(f"{where}: is a zip archive of something else ({first}); give a checkpoint")


def _unpickle(data: bytes, where: str) -> Any:
    try:
        # timm's training script stores its arguments as a Namespace, which is plain data.
        with (
            torch.serialization.safe_globals([argparse.Namespace]),
            warnings.catch_warnings(),
        ):
            # A newer pickle than torch writes: either it is read or refused below.
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)|(?:class|function) ([\w.]+)", str(error))
        wanted = found[1] or found[2] if found else _first_global(data)
        if not wanted:
            raise DataError(f"{where}: is not a checkpoint ({_line(error)})") from None
        raise DataError(
            f"{where}: refused, the pickle wants {wanted}, which could run code; "
            "convert it to safetensors where you trust it"
        ) from None
    except _DAMAGE as error:
        raise DataError(f"{where}: is damaged ({_line(error)}); copy it again") from None


def _first_global(data: bytes) -> str | None:
    """Return the first name that a pickle asks for, by reading its opcodes; nothing is run.

    Newer pickles than torch can read (protocol 4 on) do not get as far as naming it.
    """
    texts: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in ("GLOBAL", "INST"):
                return str(argument).replace(" ", ".")
            if opcode.name == "STACK_GLOBAL":
                return ".".join(texts[-2:])
            if isinstance(argument, str):
                texts.append(argument)
    except ValueError:  # cut off, or no pickle at all
        return None
    return None


def _tensors(content: Any, where: str) -> State:
    """Return the tensors by name, unwrapped."""
    if isinstance(content, Mapping):
        for wrapper in _WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
                break
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{where}: holds {type(content).__name__}, expected weights by name")
    for name, value in content.items():
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"{where}: {name!r} is {type(value).__name__}, expected a tensor; save the "
                "state_dict() alone"
            )
    cleaned: State = clean_state_dict(dict(content))
    return cleaned


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
