"""The watchlist: which models are watched, on what, and when somebody is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ace_ray.config import Config, load_plain, read_yaml
from ace_ray.errors import ConfigError, nearest
from ace_ray.models.config import CHECKPOINTS, ModelConfig, parse_model
from ace_ray.progress import say
from ace_ray.store import Store

_SETTINGS: Final = tuple(f.name for f in fields(Config) if f.name != "models")
_KEYS: Final = ("models", "config", "regression", *_SETTINGS)
_NAMES: Final = "watch/names.json"  # what a wildcard matched, by version of timm
_Amount = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """How much higher an ECE may be, as a fraction, before it is a regression; None: any."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    ece: _Amount | None = 0.01  # than the last run of the same model
    fleet: _Amount | None = 0.05  # than the median of the other models


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchlist:
    """What a file says, validated; wildcards and folders are not looked at yet."""

    path: str
    models: tuple[Any, ...]
    settings: Mapping[str, Any]  # of an ordinary configuration, without its models
    thresholds: Thresholds

    @property
    def where(self) -> str:
        """How errors name the file."""
        return f"watchlist {self.path}"

    def config(self, model: ModelConfig) -> Config:
        """Return the configuration of one model's run."""
        return load_plain({**self.settings, "models": [model]}, self.where)


def read_watchlist(path: str, overrides: Mapping[str, Any]) -> Watchlist:
    """Read and validate a watchlist; `overrides` are settings from the command line.

    Raises:
        ConfigError: With the key, what was found and what would be right.
    """
    data = read_yaml(path, "watchlist")
    where = f"watchlist {path}"
    for key in data:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(str(key), _KEYS)}")
    models = data.get("models")
    if not isinstance(models, list) or not models:
        got = "an empty list" if models == [] else f"{models!r}"
        raise ConfigError(f"{where}: models: expected a list of names and folders, got {got}")
    base: dict[str, Any] = {}
    if "config" in data:
        if not isinstance(data["config"], str):
            raise ConfigError(f"{where}: config: expected the path of a configuration")
        base = read_yaml(data["config"], "config")
        load_plain(base, f"config {data['config']}")  # its own mistakes carry its own name
        base.pop("models", None)
    settings = {**base, **{k: v for k, v in data.items() if k in _SETTINGS}, **overrides}
    load_plain(settings, where)
    for i, entry in enumerate(models):
        _check(entry, f"{where}: models[{i}]")
    return Watchlist(
        path=path,
        models=tuple(models),
        settings=settings,
        thresholds=_thresholds(data.get("regression", {}), where),
    )


def _thresholds(data: Any, where: str) -> Thresholds:
    known = [f.name for f in fields(Thresholds)]
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: regression: expected a mapping, as in {{ece: 0.01}}")
    for key in data:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key 'regression.{key}'; {nearest(str(key), known)}"
            )
    try:
        return TypeAdapter(Thresholds).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        expected = str(first["msg"]).replace("Input should be", "expected")
        raise ConfigError(
            f"{where}: regression.{first['loc'][0]}: {expected}, got {first['input']!r}; "
            "an ECE of 1 % is 0.01"
        ) from None


def _check(entry: Any, where: str) -> None:
    """Check an entry as far as that needs no folder and no list of names."""
    if _is_folder(entry):
        _folder_model(entry, "x", "x", where)
    elif not _is_pattern(entry):
        parse_model(entry, where)


def _is_folder(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        return "folder" in entry
    if not isinstance(entry, str) or entry.startswith(("hf-hub:", "local-dir:")):
        return False
    return entry.startswith(("/", "./", "../", "~")) or entry.endswith("/")


def _is_pattern(entry: Any) -> bool:
    plain = isinstance(entry, str) and ":" not in entry
    return plain and any(letter in entry for letter in "*?[")


def expand(watchlist: Watchlist, store: Store) -> list[ModelConfig]:
    """Return the models that the entries mean now, each label once.

    Raises:
        ConfigError: If a folder is missing, or two models have the same label.
    """
    found: dict[str, ModelConfig] = {}
    for i, entry in enumerate(watchlist.models):
        where = f"{watchlist.where}: models[{i}]"
        if _is_folder(entry):
            models = _in_folder(entry, where)
        elif _is_pattern(entry):
            models = [parse_model(name, where) for name in _matching(entry, store, where)]
        else:
            models = [parse_model(entry, where)]
        for model in models:
            if found.setdefault(model.name, model) != model:
                raise ConfigError(
                    f"{where}: {model.name!r} is already another model; rename one, or give the "
                    "folder a `prefix:`"
                )
    return list(found.values())


def _in_folder(entry: Any, where: str) -> list[ModelConfig]:
    """Return every checkpoint file of a folder, and every folder of timm's in it."""
    place = entry["folder"] if isinstance(entry, Mapping) else entry
    folder = Path(place).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{where}: {place}: no such folder")
    models = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file() and path.suffix in CHECKPOINTS:
            models.append(_folder_model(entry, path.stem, str(path), where))
        elif (path / "config.json").is_file():
            given = {"name": path.name, "architecture": f"local-dir:{path}"}
            models.append(parse_model(given, where))
    if not models:
        # Not an error: the first checkpoint may come tonight. A wrong mount looks the same.
        say(f"warning: {where}: {place} holds no checkpoint")
    return models


def _folder_model(entry: Any, stem: str, path: str, where: str) -> ModelConfig:
    given = dict(entry) if isinstance(entry, Mapping) else {"folder": entry}
    if not isinstance(given.pop("folder"), str):
        raise ConfigError(f"{where}: folder: expected a path")
    prefix = given.pop("prefix", "")
    if "name" in given or "checkpoint" in given or not isinstance(prefix, str):
        raise ConfigError(f"{where}: models of a folder are named by their files, after `prefix:`")
    return parse_model({**given, "name": prefix + stem, "checkpoint": path}, where)


def _matching(pattern: str, store: Store, where: str) -> list[str]:
    """Return timm's pretrained names that match; remembered, so that torch can stay away."""
    known: dict[str, Any] = {"timm": version("timm"), "patterns": {}}
    if store.exists and store.has(_NAMES):
        kept = store.read_document(_NAMES, {"timm": str, "patterns": dict})
        known = kept if kept["timm"] == known["timm"] else known
    if pattern not in known["patterns"]:
        from timm import list_pretrained

        names = [name for name in list_pretrained() if fnmatchcase(name, pattern)]
        if not names:
            raise ConfigError(
                f"{where}: timm {known['timm']} has no pretrained model like {pattern!r}; "
                "its names are those of `timm.list_pretrained()`"
            )
        known["patterns"][pattern] = names
        store.create().write_json(_NAMES, known)
    return [str(name) for name in known["patterns"][pattern]]
