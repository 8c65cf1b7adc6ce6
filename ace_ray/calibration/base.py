"""What a calibrator is: parameters, fit with a report, prediction in row blocks, and a registry."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ace_ray.arrays import BoolArray, FloatArray, IntArray
from ace_ray.calibration.arguments import as_labels, as_logits, as_unit, as_weights
from ace_ray.calibration.blocks import block_of, row_blocks
from ace_ray.calibration.softmax import log_softmax, softmax, top1_confidence, true_class
from ace_ray.errors import DataError, UsageError, nearest

Space: TypeAlias = Literal["logits", "probs", "confidence", "geometric"]
# A subset of rows is copied up to this size; above it, unused rows are carried with weight 0.
_COPY_BYTES: Final = 1 << 28


class Fit(NamedTuple):
    """What an optimiser says of itself; NLLs that it knows for free need not be computed again."""

    converged: bool = True
    iterations: int = 0
    bound_hit: bool = False
    nll_before: float | None = None
    nll_after: float | None = None


class FitReport(NamedTuple):
    """How a fit went. An NLL is None where it is infinite."""

    converged: bool
    iterations: int
    bound_hit: bool
    nll_before: float | None
    nll_after: float | None


class Calibrator(ABC):
    """A post-hoc map from logits to calibrated confidence, fitted on labelled logits.

    Subclasses take only keyword parameters in `__init__`, store them under their own names, and
    set fitted attributes that end in an underscore.

    Attributes:
        space: What ACE mixes by default for this family (paper's code; see docs/ace.md).
        report_: How the last fit went.
    """

    space: ClassVar[Space]
    name: ClassVar[str] = ""
    report_: FitReport

    def fit(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Fit on (N, C) logits and N labels; a sample of weight 0 is as if absent."""
        z = as_logits(logits)
        y = as_labels(labels, z)
        w = as_weights(weights, len(z))
        used = w > 0
        if not used.all() and int(used.sum()) * z.shape[1] * z.itemsize <= _COPY_BYTES:
            z, y, w = z[used], y[used], w[used]
        w = w / w.sum()
        fit = self._fit(z, y, w)
        before = _plain_nll(z, y, w) if fit.nll_before is None else fit.nll_before
        after = self._nll(z, y, w) if fit.nll_after is None else fit.nll_after
        finite = [float(v) if np.isfinite(v) else None for v in (before, after)]
        self.report_ = FitReport(fit.converged, fit.iterations, fit.bound_hit, *finite)
        return self

    @abstractmethod
    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        """Set the fitted attributes; weights sum to one."""

    @abstractmethod
    def _proba(self, z: FloatArray) -> FloatArray:
        """Return calibrated probabilities of a block."""

    def _confidence(self, z: FloatArray) -> FloatArray:
        """Return calibrated top-1 confidences of a block."""
        return np.asarray(self._proba(z).max(axis=1))

    def _nll(self, z: FloatArray, y: IntArray, w: FloatArray) -> float:
        total = 0.0
        with np.errstate(divide="ignore"):
            for rows in row_blocks(*z.shape):
                p = true_class(self._proba(block_of(z, rows, np.float64)), y[rows])
                total -= float(w[rows] @ np.log(p)) if p.all() else -np.inf
        return total

    def predict_proba(self, logits: ArrayLike, out: FloatArray | None = None) -> FloatArray:
        """Return calibrated probabilities (N, C), block by block.

        Args:
            logits: (N, C).
            out: Where to write them (a memory map, say); a new float64 array if None.
        """
        z = as_logits(logits)
        self._check_fitted(z)
        out = np.empty(z.shape) if out is None else out
        fits = isinstance(out, np.ndarray) and out.shape == z.shape
        if not fits or not np.issubdtype(out.dtype, np.floating):
            raise DataError(f"out: expected a floating array of shape {z.shape}")
        for rows in row_blocks(*z.shape):
            out[rows] = self._proba(block_of(z, rows, np.float64))
        return out

    def predict_confidence(self, logits: ArrayLike) -> FloatArray:
        """Return the calibrated confidence of the top-1 prediction (N,)."""
        z = as_logits(logits)
        self._check_fitted(z)
        out = np.empty(len(z))
        for rows in row_blocks(*z.shape):
            out[rows] = self._confidence(block_of(z, rows, np.float64))
        return out

    def predict(self, logits: ArrayLike) -> IntArray:
        """Return the class whose confidence `predict_confidence` states."""
        return np.asarray(self.predict_proba(logits).argmax(axis=1))

    def is_fitted(self) -> bool:
        """Return whether `fit` was called."""
        return hasattr(self, "report_")

    def _check_fitted(self, z: FloatArray) -> None:
        if not self.is_fitted():
            raise UsageError(f"{type(self).__name__} is not fitted; call fit(logits, labels) first")
        classes = self._classes()
        if classes is not None and z.shape[1] != classes:
            raise DataError(
                f"logits: {z.shape[1]} classes, but {type(self).__name__} was fitted on {classes}"
            )

    def _classes(self) -> int | None:
        """Return the number of classes that the fit is bound to, or None if any will do."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of `__init__`, as scikit-learn does."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of `__init__`; an unknown one is an error."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise UsageError(
                    f"{type(self).__name__}: unknown parameter {name!r}; {nearest(name, known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items())
        return f"{type(self).__name__}({params})"

    def save(self, path: str) -> None:
        """Write `calibrator.json` and `calibrator.safetensors` into the folder `path`."""
        from ace_ray.calibration.persistence import save

        save(self, path)

    def fitted(self) -> dict[str, Any]:
        """Return the fitted attributes, by name, without the report."""
        return {k: v for k, v in vars(self).items() if k.endswith("_") and k != "report_"}


def _plain_nll(z: FloatArray, y: IntArray, w: FloatArray) -> float:
    return sum(
        -float(w[rows] @ true_class(log_softmax(z[rows]), y[rows])) for rows in row_blocks(*z.shape)
    )


class LogitCalibrator(Calibrator):
    """A calibrator that maps logits to logits."""

    @abstractmethod
    def _map_logits(self, z: FloatArray) -> FloatArray:
        """Return calibrated logits of a block."""

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Return calibrated logits (N, C) in float64."""
        z = as_logits(logits)
        self._check_fitted(z)
        out = np.empty(z.shape)
        for rows in row_blocks(*z.shape):
            out[rows] = self._map_logits(block_of(z, rows, np.float64))
        return out

    def _proba(self, z: FloatArray) -> FloatArray:
        return softmax(self._map_logits(z))

    def _confidence(self, z: FloatArray) -> FloatArray:
        return top1_confidence(self._map_logits(z))


class ConfidenceCalibrator(Calibrator):
    """A calibrator of the top-1 confidence alone.

    The full vector keeps the calibrated confidence on the predicted class and rescales the other
    probabilities in proportion, so it sums to one. A confidence below theirs leaves the predicted
    class no longer the largest; `predict_confidence` is what was calibrated.
    """

    space: ClassVar[Space] = "confidence"

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        confidence, correct = np.empty(len(z)), np.empty(len(z), bool)
        for rows in row_blocks(*z.shape):
            block = block_of(z, rows, np.float64)
            correct[rows] = block.argmax(axis=1) == y[rows]
            confidence[rows] = top1_confidence(block)
        used = w > 0
        return self._fit_confidence(confidence[used], correct[used], w[used])

    @abstractmethod
    def _fit_confidence(self, confidence: FloatArray, correct: BoolArray, w: FloatArray) -> Fit:
        """Set the fitted attributes from top-1 confidences and whether they were right."""

    @abstractmethod
    def _map(self, confidence: FloatArray) -> FloatArray:
        """Return calibrated confidences, of any shape."""

    def map_confidence(self, confidence: ArrayLike) -> FloatArray:
        """Return calibrated confidences of uncalibrated ones."""
        if not self.is_fitted():
            raise UsageError(f"{type(self).__name__} is not fitted; call fit(logits, labels) first")
        return self._map(as_unit(confidence))

    def predict(self, logits: ArrayLike) -> IntArray:
        """Return the network's own prediction, whose confidence was calibrated."""
        z = as_logits(logits)
        self._check_fitted(z)
        return np.asarray(z.argmax(axis=1))

    def _confidence(self, z: FloatArray) -> FloatArray:
        return self._map(top1_confidence(z))

    def _proba(self, z: FloatArray) -> FloatArray:
        return with_top(softmax(z), self._map(top1_confidence(z)))


def with_top(p: FloatArray, confidence: FloatArray) -> FloatArray:
    """Put `confidence` on each row's largest probability and rescale the others in proportion."""
    each, top = np.arange(len(p)), p.argmax(axis=1)
    out = p.copy()
    out[each, top] = 0
    rest = out.sum(axis=1)
    # Where (almost) nothing is left to rescale, what is missing is spread evenly.
    lost = rest < 1e-290
    out *= np.divide(1 - confidence, rest, out=np.zeros(len(p)), where=~lost)[:, None]
    out[lost] = ((1 - confidence[lost]) / (p.shape[1] - 1))[:, None]
    out[each, top] = confidence
    return out


CALIBRATORS: Final[dict[str, Callable[[], Calibrator]]] = {}
_C = TypeVar("_C", bound=type[Calibrator])


def register_calibrator(name: str) -> Callable[[_C], _C]:
    """Make a calibrator class available under a name in configs and on the command line."""

    def add(cls: _C) -> _C:
        CALIBRATORS[name] = cls
        cls.name = name
        return cls

    return add


def load_plugins() -> None:
    """Import third-party calibrators: modules named by the entry point `ace_ray.calibrators`."""
    for point in entry_points(group="ace_ray.calibrators"):
        point.load()


def make_calibrator(name: str) -> Calibrator:
    """Return a fresh calibrator with its default settings."""
    if name not in CALIBRATORS:
        load_plugins()
    if name not in CALIBRATORS:
        raise UsageError(f"unknown calibrator {name!r}; {nearest(name, CALIBRATORS)}")
    return CALIBRATORS[name]()


@register_calibrator("identity")
class Identity(LogitCalibrator):
    """Change nothing: plain softmax, for the uncalibrated rows."""

    space: ClassVar[Space] = "logits"

    def __init__(self) -> None:
        pass

    def _fit(self, z: FloatArray, y: IntArray, w: FloatArray) -> Fit:
        return Fit()

    def _map_logits(self, z: FloatArray) -> FloatArray:
        return z
