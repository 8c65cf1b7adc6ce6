"""The configuration: one YAML file, validated once. Precedence: command line, file, default."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ace_ray.benchmarks.registry import BENCHMARKS, load_benchmarks
from ace_ray.calibration import CALIBRATORS
from ace_ray.calibration.base import load_plugins
from ace_ray.errors import ConfigError, nearest
from ace_ray.identity import BENCHMARK_RUNTIME, content_key
from ace_ray.models.config import ModelConfig, parse_model
from ace_ray.models.config import as_plain as plain_model

# Tables, and figures by the prefix `fig_`: docs/studies.md.
Study: TypeAlias = Literal[
    "table1", "table2", "table3", "quartiles", "metrics", "ttest", "welch", "severity", "alpha",
    "estimation", "same_size", "weak_models", "wilds", "combination", "domains", "fig_nll",
    "fig_difficulty", "fig_id", "fig_size", "fig_d", "fig_weighting", "fig_alpha", "fig_batch",
]  # fmt: skip
STUDIES: Final[tuple[Study, ...]] = get_args(Study)
# What the plain grid already gives: no study of these adds a trial.
FREE_STUDIES: Final[tuple[Study, ...]] = (
    "severity", "table1", "metrics", "ttest", "welch", "quartiles", "alpha", "fig_id",
)  # fmt: skip
_STRICT: Final = ConfigDict(extra="forbid")

# Strict: "10" is not a number and 1 is not a name. A float may be written as a whole number.
Name: TypeAlias = Annotated[str, Field(strict=True, min_length=1)]
Whole: TypeAlias = Annotated[int, Field(strict=True)]
Positive: TypeAlias = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeConfig:
    """Where a value is drawn from: as Tune's `uniform` or `loguniform`."""

    __pydantic_config__ = _STRICT

    type: Literal["uniform", "loguniform"] = "uniform"
    low: Positive
    high: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Difficulties drawn at random, beside the listed ones."""

    __pydantic_config__ = _STRICT

    difficulty: RangeConfig
    samples: Annotated[Whole, Field(ge=1, le=10_000)] = 10
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0  # the same seed, the same difficulties


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """What Ray Tune sweeps."""

    __pydantic_config__ = _STRICT

    calibrators: tuple[Name, ...] = ("temperature",)
    difficulty: tuple[Positive, ...] = (10.0,)  # wrong : right of the hard set
    seeds: tuple[Annotated[Whole, Field(ge=0, lt=2**63)], ...] = (1, 2, 3, 4, 5)
    bins: Annotated[Whole, Field(ge=1, le=1000)] = 25  # of the ECE
    clip_alpha: Annotated[bool, Field(strict=True)] = True  # keep alpha in [0, 1]
    # Resamples of the test samples behind the intervals of ttest and welch; None: no intervals.
    bootstrap: Annotated[Whole, Field(ge=2, le=10_000)] | None = 200
    callbacks: tuple[Literal["mlflow", "wandb"], ...] = ()  # trackers that Tune also reports to
    search: SearchConfig | None = None  # None: the listed difficulties alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionConfig:
    """How logits are made and stored."""

    __pydantic_config__ = _STRICT

    dtype: Literal["float32", "float16"] = "float32"  # of the stored logits
    precision: Literal["float32", "mixed"] = "float32"  # of the network; mixed: float16 on GPUs
    features: Annotated[bool, Field(strict=True)] = False  # store the penultimate layer too
    batch_size: Annotated[Whole, Field(ge=1)] | None = None  # None: chosen; halved if too large
    compile: Annotated[bool, Field(strict=True)] = False  # torch.compile
    # Share of a split's images that may be unusable before the split fails.
    quarantine: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesConfig:
    """What the job may use. Never changes a result."""

    __pydantic_config__ = _STRICT

    cpus: Annotated[Whole, Field(ge=1)] | None = None  # of a local Ray; None: all
    loaders: Annotated[Whole, Field(ge=1)] | None = None  # tasks that decode; None: as CPUs allow
    predictors: Annotated[Whole, Field(ge=1)] | None = None  # actors; None: one per GPU or CPU
    # None: 1 if the cluster has a GPU now; a number is asked for, so that an autoscaler brings it.
    gpus_per_predictor: Annotated[float, Field(strict=True, ge=0, le=8)] | None = None
    # Whole CPUs for predictors can leave none for the loaders that feed them.
    cpus_per_predictor: Annotated[Positive, Field(le=64)] = 0.5
    cpus_per_loader: Annotated[Positive, Field(le=64)] = 0.5
    memory_per_predictor: Annotated[Whole, Field(ge=1)] | None = None  # bytes that Ray sets aside
    cpus_per_trial: Annotated[Positive, Field(le=64)] = 1.0  # and per fit and measurement
    # Bytes that all processes of the sweep may add to their start; larger tables wait in a file.
    sweep_memory: Annotated[Whole, Field(ge=1 << 24)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """A benchmark with its own options, under a label."""

    name: str  # the label: its name in the store and in results
    type: str  # the registered benchmark; the label where none was given
    options: Any  # the benchmark's frozen options dataclass; None for imported logits

    def as_plain(self) -> dict[str, Any]:
        """Return the label, the type where it differs, and all options as plain data."""
        kind = {} if self.type == self.name else {"type": self.type}
        return {"name": self.name, **kind, **(plain(self.options) if self.options else {})}

    @property
    def explicit(self) -> bool:
        """Whether more than the name was given: a type, a place, or an option of its own."""
        placed = getattr(self.options, "path", None) is not None
        return self.options is not None and (
            self.type != self.name or placed or self.variant != self.name
        )

    @property
    def variant(self) -> str:
        """The name under which its logits are stored: other options never replace these.

        The plain name with default options, `<name>~<digest of the options>` with others. Where
        the data lie is not an option in this sense.
        """
        if self.options is None:
            return self.name
        defaults = {f.name: f.default for f in fields(self.options)}
        chosen = {
            name: value
            for name, value in plain(self.options).items()
            if name not in BENCHMARK_RUNTIME and value != _listed(defaults[name])
        }
        if not chosen:
            return self.name
        known = {n: v for n, v in plain(self.options).items() if n not in BENCHMARK_RUNTIME}
        return f"{self.name}~{content_key(known)[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A run, complete: everything has a default."""

    __pydantic_config__ = _STRICT

    models: tuple[Any, ...] = ("test_resnet.glyphs",)
    benchmarks: tuple[Any, ...] = ("glyphs",)
    data_root: Name | None = None  # folder that holds the data sets; a local path or a URI
    store: Name = "./ace-store"
    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    studies: tuple[Study, ...] = FREE_STUDIES
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)

    def model_configs(self) -> tuple[ModelConfig, ...]:
        """Return the models, validated."""
        return tuple(parse_model(e, f"models[{i}]") for i, e in enumerate(self.models))

    def model_names(self) -> tuple[str, ...]:
        """Return the models' labels."""
        return tuple(model.name for model in self.model_configs())

    def benchmark_configs(self) -> tuple[BenchmarkConfig, ...]:
        """Return the benchmarks with validated options."""
        return tuple(_benchmark(entry, i) for i, entry in enumerate(self.benchmarks))

    def as_plain(self) -> dict[str, Any]:
        """Return the whole configuration as plain data, defaults filled in."""
        value = plain(self)
        value["models"] = [plain_model(model) for model in self.model_configs()]
        value["benchmarks"] = [b.as_plain() for b in self.benchmark_configs()]
        return value


def plain(value: Any) -> dict[str, Any]:
    """Return a dataclass as lists, dicts and scalars, ready for YAML and JSON."""
    converted = _listed(asdict(value))
    assert isinstance(converted, dict)
    return converted


def _listed(item: Any) -> Any:
    """Return a value with lists for tuples, at every depth."""
    if isinstance(item, dict):
        return {key: _listed(v) for key, v in item.items()}
    return [_listed(v) for v in item] if isinstance(item, tuple | list) else item


def field_paths(cls: type[Any] = Config, prefix: str = "") -> set[str]:
    """Return every configuration field as a dotted path."""
    paths: set[str] = set()
    for f in fields(cls):
        nested = _SECTIONS.get(f.name) if cls is Config else None
        if nested is not None:
            paths |= field_paths(nested, f"{prefix}{f.name}.")
        else:
            paths.add(prefix + f.name)
    return paths


_SECTIONS: Final[Mapping[str, type[Any]]] = {
    "sweep": SweepConfig,
    "extraction": ExtractionConfig,
    "resources": ResourcesConfig,
}

_NESTED: Final[Mapping[str, type[Any]]] = {
    **_SECTIONS,
    "sweep.search": SearchConfig,
    "sweep.search.difficulty": RangeConfig,
}


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"line {line}: a key must be a plain word")
            if key_node.value in seen:
                raise ConfigError(f"key {key_node.value!r} is given twice (line {line}); keep one")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def load(path: str | None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read and validate a YAML file (None: the embedded benchmark), command-line values on top.

    Raises:
        ConfigError: With the file, the field, what was found and what would be right.
    """
    data = {} if path is None else read_yaml(path, "config")
    return load_plain({**data, **(overrides or {})}, f"config {path or 'defaults'}")


def read_yaml(path: str, what: str) -> dict[str, Any]:
    """Return a YAML file's mapping; `what` names the file's kind in errors.

    Raises:
        ConfigError: If there is no such file, or it is not a mapping.
    """
    where = f"{what} {path}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
    try:
        # A subclass of SafeLoader: no Python object can be built from a tag.
        data = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(f"{where}{line}: not valid YAML: {problem}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:  # an impossible date, say, or deep nesting
        raise ConfigError(f"{where}: not valid YAML: {error}") from None
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected a mapping of keys, got {_shown(data)}")
    return data


def load_plain(data: Mapping[str, Any], where: str) -> Config:
    """Validate a configuration that is plain data; `where` names its origin in errors."""
    return _checked(_validated(Config, data, f"{where}: "), where)


def _checked(config: Config, where: str) -> Config:
    """Check what a type cannot say: names exist, lists are neither empty nor repeat."""
    lists: dict[str, tuple[Any, ...]] = {
        "models": config.models,
        "benchmarks": config.benchmarks,
        "studies": config.studies,
        "sweep.calibrators": config.sweep.calibrators,
        "sweep.difficulty": config.sweep.difficulty,
        "sweep.seeds": config.sweep.seeds,
        "sweep.callbacks": config.sweep.callbacks,
    }
    for name, values in lists.items():
        if not values and name != "sweep.callbacks":
            raise ConfigError(f"{where}: {name} is empty; give at least one or leave it out")
        if len({repr(v) for v in values}) < len(values):
            raise ConfigError(f"{where}: {name} repeats a value: {list(values)}")
    _check_search(config.sweep.search, where)
    for name in config.sweep.calibrators:
        if name not in CALIBRATORS:
            load_plugins()
        if name not in CALIBRATORS:
            raise ConfigError(
                f"{where}: sweep.calibrators: unknown {name!r}; {nearest(name, CALIBRATORS)}"
            )
    try:
        labels = {
            "models": config.model_names(),
            "benchmarks": tuple(b.name for b in config.benchmark_configs()),
        }
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    for name, given in labels.items():
        if len(set(given)) < len(given):
            raise ConfigError(f"{where}: {name} repeats a name: {list(given)}")
    return config


def _check_search(search: SearchConfig | None, where: str) -> None:
    if search is not None and search.difficulty.low >= search.difficulty.high:
        found = search.difficulty
        raise ConfigError(
            f"{where}: sweep.search.difficulty: low must be below high, "
            f"got {found.low:g} and {found.high:g}"
        )


def _benchmark(entry: Any, position: int) -> BenchmarkConfig:
    """Read an entry: a name, `{name, type, options...}`, or `{name, corrupt: {base, ...}}`."""
    load_benchmarks()
    given = {"name": entry} if isinstance(entry, str) else entry
    if isinstance(given, Mapping) and isinstance(given.get("corrupt"), Mapping):
        given = _spelled_out(given, position)
    named = isinstance(given, Mapping) and isinstance(given.get("name"), str) and given["name"]
    if not named or not all(isinstance(key, str) for key in given):
        raise ConfigError(
            f"benchmarks[{position}]: expected a name or a mapping with `name`, got {_shown(entry)}"
        )
    given = dict(given)
    name = given.pop("name")
    kind = given.pop("type", name)
    if kind not in BENCHMARKS:
        # It may be the name of imported logits, which only the store knows.
        if given or kind != name:
            hint = nearest(str(kind), BENCHMARKS)
            raise ConfigError(f"benchmarks: unknown {kind!r}; {hint}")
        return BenchmarkConfig(name=name, type=name, options=None)
    options = BENCHMARKS[kind].options
    checked = _validated(options, given, f"benchmarks.{name}: ")
    return BenchmarkConfig(name=name, type=kind, options=checked)


def _spelled_out(entry: Mapping[str, Any], position: int) -> dict[str, Any]:
    """Return `{corrupt: {base: shop/test, ...}}` as an entry of type `corrupt`."""
    how = dict(entry["corrupt"])
    other = entry.keys() - {"name", "corrupt"}
    if other:
        raise ConfigError(
            f"benchmarks[{position}]: {', '.join(sorted(map(str, other)))} beside `corrupt`; "
            "its options go inside it"
        )
    name = entry.get("name", f"{str(how.get('base', '')).partition('/')[0]}-c")
    return {"name": name, "type": "corrupt", **how}


def _validated(cls: type[Any], data: Mapping[str, Any], prefix: str) -> Any:
    try:
        return TypeAdapter(cls).validate_python(data)
    except ValidationError as error:
        raise ConfigError(prefix + _explain(error, cls)) from None


def _explain(error: ValidationError, cls: type[Any]) -> str:
    """Return pydantic's first complaint as one line; a mistyped key before the one it lacks."""
    found = error.errors(include_url=False)
    first = next((e for e in found if e["type"] == "unexpected_keyword_argument"), found[0])
    path = [str(part) for part in first["loc"]]
    if first["type"] == "unexpected_keyword_argument":
        inside = ".".join(path[:-1])
        owner = _NESTED.get(inside, cls) if cls is Config else cls
        known = [f.name for f in fields(owner)]
        return f"unknown key {'.'.join(path)!r}; {nearest(path[-1], known)}"
    known_values = first.get("ctx", {}).get("expected")
    if first["type"] == "literal_error" and isinstance(first["input"], str) and known_values:
        names = [n.strip(" '") for n in known_values.replace(" or ", ",").split(",")]
        place = ".".join(part for part in path if not part.isdigit())
        return f"{place}: unknown {first['input']!r}; {nearest(first['input'], names)}"
    return f"{'.'.join(path)}: {_expected(first)}, got {_shown(first['input'])}"


def _expected(problem: Any) -> str:
    """Return pydantic's complaint in the words of a YAML file."""
    kind, value = problem["type"], problem["input"]
    if kind == "dataclass_type":
        return "expected a mapping of keys (leave it out for the defaults)"
    if kind == "tuple_type":
        return "expected a list, as in [a, b]"
    if kind == "float_type" and isinstance(value, str):
        return "expected a number (YAML reads 1e3 as text: write 1000 or 1.0e+3)"
    return str(problem["msg"]).replace("Input should be", "expected")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
