"""A trial: what is tried, on what, and what comes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ace_ray.arrays import FloatArray, IntArray
from ace_ray.calibration.base import Space
from ace_ray.identity import CALIBRATION_CODE, RECORD_SCHEMA, content_key

Method: TypeAlias = Literal["uncalibrated", "alone", "ace", "hard", "estimation"]
# As the domain of a trial: one ACE per calibration split, ensembled. No split has this name:
# several of them are called <domain>/calibration.
EVERY_DOMAIN: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """What is tried.

    `uncalibrated`, a calibrator `alone` (f_o), the calibrator in an `ace`, its `hard` half alone
    (f_h), or the calibrator fitted anew per test set at its estimated difficulty (`estimation`).
    """

    model: str
    method: Method
    calibrator: str | None = None
    difficulty: float | None = None
    seed: int | None = None
    bins: int = 25
    clip_alpha: bool = True
    # What a study adds; None and False are the plain method.
    fixed_alpha: float | None = None  # a fixed weight of f_o instead of the adaptive one
    batch: int | None = None  # alpha from test batches of this size
    space: Space | None = None  # what ACE mixes: logits, probs, confidence, geometric
    size: int | None = None  # f_o is fitted on so many random samples of the calibration set
    hard_size: int | None = None  # f_h is fitted on so many random samples of the hard set
    same_size: bool = False  # f_o is fitted on as many samples as the hard set has
    domain: str | None = None  # calibrate on this split alone, or `EVERY_DOMAIN`
    bootstrap: int | None = None  # resamples whose ECE the record keeps beside the measurements

    @property
    def needs_calibration(self) -> bool:
        """Whether the trial needs the calibration set while it is measured."""
        return self.method == "estimation" or self.domain == EVERY_DOMAIN

    def as_plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)

    def key(self, logits_keys: list[str]) -> str:
        """Return the content key, given the keys of all tables of the model."""
        return content_key(
            {
                "code": CALIBRATION_CODE,
                "record": RECORD_SCHEMA,
                "spec": self.as_plain(),
                "logits": sorted(logits_keys),
            }
        )

    def __str__(self) -> str:
        if self.method == "uncalibrated":
            return f"{self.model} uncalibrated"
        method = "" if self.method == "alone" else f"+{self.method}"
        difficulty = "" if self.difficulty is None else f" d={self.difficulty:g}"
        added = "".join(
            f" {name}={value}"
            for name in ADDED
            if (value := getattr(self, name)) is not None and value is not False
        )
        return f"{self.model} {self.calibrator}{method}{difficulty}{added} seed {self.seed}"


# Fields of a spec that studies add; columns of the results.
ADDED: Final = ("fixed_alpha", "batch", "space", "size", "hard_size", "same_size", "domain")


class EvaluationSplit(NamedTuple):
    """A committed split in memory."""

    benchmark: str
    split: str
    corruption: str | None
    severity: int | None
    role: str
    label: IntArray
    logits: FloatArray
    subset: tuple[int, ...] | None = None  # classes that the split has; None: all


class TrialResult(NamedTuple):
    """One measurement per split, the reliability diagram behind each, and what was odd."""

    measurements: list[dict[str, Any]]
    diagrams: list[dict[str, list[float]]]
    warnings: list[str]
