"""A model as a configuration names it. Loads neither torch nor timm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ace_ray.errors import ConfigError, nearest

Interpolation: TypeAlias = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
CropMode: TypeAlias = Literal["center", "squash", "border"]

# Strict: "10" is not a number and 1 is not a name. A float may be written as a whole number.
_Text: TypeAlias = Annotated[str, Field(strict=True, min_length=1)]
_Whole: TypeAlias = Annotated[int, Field(strict=True)]
_Real: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Scale: TypeAlias = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]

DEFAULT_PASSES: Final = 10  # of `mc:NAME`
CHECKPOINTS: Final = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".tar")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A network with its weights and preprocessing, or several of them."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: _Text  # the label: folder name in the store, column in results
    architecture: _Text | None = None  # timm's name; None: the label
    checkpoint: _Text | None = None  # a local file; None: timm's own weights
    num_classes: Annotated[_Whole, Field(ge=2)] | None = None  # None: as the weights say
    remap: Annotated[bool, Field(strict=True)] = False  # match weights by order, not by name
    # Preprocessing; None: as timm's data config of the architecture says.
    input_size: Annotated[_Whole, Field(ge=1, le=4096)] | None = None
    crop_pct: Annotated[_Scale, Field(le=1)] | None = None
    crop_mode: CropMode | None = None
    interpolation: Interpolation | None = None
    mean: tuple[_Real, _Real, _Real] | None = None
    std: tuple[_Scale, _Scale, _Scale] | None = None
    ensemble: tuple[ModelConfig, ...] = ()  # mean probability of several
    mc: Annotated[_Whole, Field(ge=2, le=1000)] | None = None  # stochastic passes, mean probability
    drop_rate: Annotated[_Scale, Field(lt=1)] | None = None  # of the network's dropout, for `mc`

    @property
    def source(self) -> str:
        """The name that timm knows the architecture by."""
        return self.architecture or self.name


_FIELDS: Final = tuple(f.name for f in fields(ModelConfig))
_ADAPTER: Final = TypeAdapter(ModelConfig)


def parse_model(entry: Any, where: str) -> ModelConfig:
    """Validate an entry of `models:`, a name or a mapping; `where` names it in errors.

    Raises:
        ConfigError: With the field, what was found and what would be right.
    """
    if isinstance(entry, ModelConfig):
        return entry
    if isinstance(entry, Mapping) and set(entry) == {"name"}:
        entry = entry["name"]
    if isinstance(entry, str):
        return _from_text(entry, where)
    if not isinstance(entry, Mapping) or "name" not in entry:
        raise ConfigError(f"{where}: expected a name or a mapping with `name`, got {_shown(entry)}")
    return _from_mapping(entry, where)


def as_plain(config: ModelConfig) -> str | dict[str, Any]:
    """Return only what was set, ready for YAML: a bare name stays text."""
    given: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        if field.name == "ensemble":
            value = [as_plain(member) for member in value]
        given[field.name] = list(value) if isinstance(value, tuple) else value
    return config.name if set(given) == {"name"} else given


def _from_text(text: str, where: str) -> ModelConfig:
    kind, _, rest = text.partition(":")
    if kind == "ensemble":
        names = [part.strip() for part in rest.split(",")]
        return _from_mapping({"name": text, "ensemble": names}, where)
    if kind == "mc":
        if not rest:
            raise ConfigError(f"{where}: {text!r} names no model; write mc:NAME")
        return _from_mapping({"name": text, "architecture": rest, "mc": DEFAULT_PASSES}, where)
    if kind not in ("hf-hub", "local-dir") and (
        text.startswith(("/", "./", "../", "~")) or PurePath(text).suffix in CHECKPOINTS
    ):
        raise ConfigError(
            f"{where}: {text!r} is a path; write "
            f"{{name: mine, architecture: resnet50, checkpoint: {text}}}"
        )
    return _from_mapping({"name": text}, where)


def _from_mapping(entry: Mapping[Any, Any], where: str) -> ModelConfig:
    given = dict(entry)
    for key in given:
        if key not in _FIELDS:
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(str(key), _FIELDS)}")
    if "ensemble" in given:
        given["ensemble"] = _members(given, where)
    try:
        config = _ADAPTER.validate_python(given)
    except ValidationError as error:
        raise ConfigError(f"{where}.{_explain(error)}") from None
    for dependent, on in (("remap", "checkpoint"), ("drop_rate", "mc")):
        if getattr(config, dependent) and getattr(config, on) is None:
            raise ConfigError(f"{where}.{dependent}: needs `{on}`; give it or leave this out")
    return config


def _members(given: Mapping[str, Any], where: str) -> tuple[ModelConfig, ...]:
    """Return the members of an ensemble: plain models, at least two, none twice."""
    entries = given["ensemble"]
    if not isinstance(entries, list | tuple):
        raise ConfigError(f"{where}.ensemble: expected a list of models, got {_shown(entries)}")
    members = [parse_model(e, f"{where}.ensemble[{i}]") for i, e in enumerate(entries)]
    if len(members) < 2:
        raise ConfigError(f"{where}.ensemble: expected at least two models, got {len(members)}")
    names = [member.name for member in members]
    for i, member in enumerate(members):
        if member.ensemble or member.mc:
            raise ConfigError(
                f"{where}.ensemble[{i}]: {member.name!r} is itself a mean of several; "
                "list plain models"
            )
        if member.name in names[:i]:
            raise ConfigError(f"{where}.ensemble: {member.name!r} is listed twice; keep one")
    for key in given:
        if key not in ("name", "ensemble"):
            raise ConfigError(f"{where}.{key}: not for an ensemble; set it on the members")
    return tuple(members)


def _explain(error: ValidationError) -> str:
    """Return pydantic's first complaint as one line."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    expected = str(first["msg"]).replace("Input should be", "expected")
    return f"{path}: {expected}, got {_shown(first['input'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
