"""The engine of a sweep, without Ray: fit everything once, then measure all trials split by split.

A direct call (`sweep`) and the Ray shell (`tuner`) go through the same functions, on one thread of
the linear algebra library each: the records are the same to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from threadpoolctl import threadpool_limits

from ace_ray.calibration import ACE, Estimation, make_calibrator
from ace_ray.errors import AceRayError, ConfigError
from ace_ray.sweep.ensemble import measure_ensemble
from ace_ray.sweep.evaluate import Job, evaluate
from ace_ray.sweep.fits import Domains, FitSpec, Fitted, each_domain, fit, fits_of, needed_fits
from ace_ray.sweep.splits import pooled
from ace_ray.sweep.trial import EVERY_DOMAIN, EvaluationSplit, TrialResult, TrialSpec
from ace_ray.sweep.view import View

DEFAULT_MEMORY: Final = 1 << 30
# One trial on one split, ready for JSON: row, diagram and warnings, or the error.
Piece: TypeAlias = dict[str, Any]


def sweep(
    specs: Mapping[str, TrialSpec], splits: Sequence[EvaluationSplit], memory: int | None = None
) -> dict[str, TrialResult | str]:
    """Run trials (key -> spec) of one model; return a result each, or why there is none."""
    calibration = [split for split in splits if split.role == "calibration"]
    domains = pooled(need_calibration(calibration, next(iter(specs.values())).model))
    needed = needed_fits(specs.values(), domains.rows)
    fits = dict(zip(needed, fit_many(needed, domains), strict=True))
    pieces = [measure_split(specs, split, fits, domains, memory) for split in splits]
    return {key: assemble(spec, [p[key] for p in pieces]) for key, spec in specs.items()}


def need_calibration(calibration: Sequence[Any], model: str) -> Sequence[Any]:
    """Return the calibration splits, of which there must be one."""
    if not calibration:
        raise ConfigError(f"{model}: need a calibration split, got none")
    return calibration


def fit_many(specs: Iterable[FitSpec], domains: Domains) -> list[Fitted]:
    """Make several fits."""
    with threadpool_limits(1):
        return [fit(spec, domains) for spec in specs]


def measure_split(
    specs: Mapping[str, TrialSpec],
    split: EvaluationSplit,
    fits: Mapping[FitSpec, Fitted],
    domains: Domains | None,
    memory: int | None,
) -> dict[str, Piece]:
    """Measure all trials on one split.

    Args:
        specs: Trials by key.
        split: The split.
        fits: Every fit that the trials need.
        domains: The calibration set, where a trial needs it here (`TrialSpec.needs_calibration`).
        memory: Bytes that the process may use; None: no bound.
    """
    with threadpool_limits(1):
        share = (DEFAULT_MEMORY if memory is None else memory) // 8
        view = View(split, share)
        jobs: dict[str, Job] = {}
        pieces: dict[str, Piece] = {}
        notes: dict[str, list[str]] = {}
        for key, spec in specs.items():
            try:
                if spec.domain == EVERY_DOMAIN:
                    pieces[key] = _ensembled(spec, view, fits, domains)
                else:
                    jobs[key], notes[key] = _job(spec, view, fits, domains)
            except AceRayError as error:
                pieces[key] = {"error": str(error)}
        measured = evaluate(view, list(jobs.values()), share)
        for key, (row, diagram) in zip(jobs, measured, strict=True):
            pieces[key] = {"row": row, "diagram": diagram, "warnings": notes[key]}
    return pieces


def _ensembled(
    spec: TrialSpec, view: View, fits: Mapping[FitSpec, Fitted], domains: Domains | None
) -> Piece:
    """Measure one ACE per calibration split, ensembled."""
    assert domains is not None
    found = [_job(member, view, fits, domains) for member in each_domain(spec, domains.rows)]
    row, diagram = measure_ensemble(spec, view, [job for job, _ in found])
    notes = {message for _, messages in found for message in messages}
    return {"row": row, "diagram": diagram, "warnings": sorted(notes)}


def _job(
    spec: TrialSpec, view: View, fits: Mapping[FitSpec, Fitted], domains: Domains | None
) -> tuple[Job, list[str]]:
    if spec.method == "estimation":
        assert domains is not None
        return _estimated(spec, view, domains)
    easy, hard = (None if name is None else _found(fits[name]) for name in fits_of(spec))
    notes = {message for f in (easy, hard) if f is not None for message in f.warnings}
    weight = None
    if easy is not None and hard is not None:
        assert easy.calibrator is not None
        ACE(easy.calibrator, space=spec.space)._check_params(view.z.shape[1], None)
        weight = view.weight(spec, easy.avg_confidence)
    f_o, f_h = (None if f is None else f.calibrator for f in (easy, hard))
    return Job(spec, f_o, f_h, weight), sorted(notes)


def _found(fitted: Fitted) -> Fitted:
    if fitted.calibrator is None:
        raise AceRayError(fitted.error)
    return fitted


def _estimated(spec: TrialSpec, view: View, domains: Domains) -> tuple[Job, list[str]]:
    """Fit at the difficulty that the split seems to have."""
    assert spec.calibrator is not None
    calibration = domains[spec.domain]
    estimation = Estimation(make_calibrator(spec.calibrator))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        difficulty = estimation.difficulty_from(
            calibration.confidence, calibration.correct, view.whole_confidence
        )
    name = FitSpec(spec.calibrator, spec.domain, "hard", difficulty, spec.seed)
    fitted = _found(fit(name, domains))
    return Job(spec, None, fitted.calibrator, None), sorted(
        {str(w.message) for w in caught} | set(fitted.warnings)
    )


def assemble(spec: TrialSpec, pieces: Sequence[Piece]) -> TrialResult | str:
    """Return a trial's result from its pieces, in the order of the splits, or what went wrong."""
    for piece in pieces:
        if "error" in piece:
            return f"{spec}: {piece['error']}"
    return TrialResult(
        [piece["row"] for piece in pieces],
        [piece["diagram"] for piece in pieces],
        sorted({message for piece in pieces for message in piece["warnings"]}),
    )
