"""ACE in straight lines: numpy and scipy alone, in double precision, a cell at a time.

Written from the paper as one would in a notebook; nothing here is shared with the package but the
draw of the hard set. It is the witness of the tests and what the sweep is measured against.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, logsumexp, softmax


class Cell(NamedTuple):
    """What a calibrator is worth on one split."""

    ece: float
    accuracy: float
    nll: float


def top1(z: np.ndarray) -> np.ndarray:
    """Return the confidence of each row."""
    return softmax(z, axis=1).max(axis=1)


def plain_ece(confidence: np.ndarray, correct: np.ndarray, bins: int = 25) -> float:
    """Return the ECE with bins of equal width, open on the left."""
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    total = 0.0
    for b in range(bins):
        inside = index == b
        if inside.any():
            gap = abs(confidence[inside].mean() - correct[inside].mean())
            total += inside.sum() / len(index) * gap
    return float(total)


def inverse_temperature(z: np.ndarray, y: np.ndarray) -> float:
    """Return the zero of the slope of the NLL in 1/T."""

    def slope(beta: float) -> float:
        p = softmax(beta * z, axis=1)
        return float(((p * z).sum(axis=1) - z[np.arange(len(y)), y]).mean())

    return float(brentq(slope, 0.05, 20, xtol=1e-15, rtol=1e-15))


def vector_scaling(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weight and bias of each class, by scipy's L-BFGS as it comes."""
    n, c = z.shape
    rows = np.arange(n)

    def nll_and_slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
        mapped = theta[:c] * z + theta[c:]
        residual = softmax(mapped, axis=1)
        residual[rows, y] -= 1
        nll = (logsumexp(mapped, axis=1) - mapped[rows, y]).mean()
        return nll, np.concatenate([(residual * z).mean(axis=0), residual.mean(axis=0)])

    start = np.concatenate([np.ones(c), np.zeros(c)])
    theta = minimize(nll_and_slope, start, jac=True, method="L-BFGS-B").x
    return theta[:c], theta[c:]


def natural_basis(t: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return natural cubic splines by truncated powers (Hastie et al., Eq. 5.4), and slopes."""
    last = knots[-1]

    def d(k: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = np.maximum(t - knots[k], 0), np.maximum(t - last, 0)
        return (a**3 - b**3) / (last - knots[k]), 3 * (a**2 - b**2) / (last - knots[k])

    value, slope = [np.ones_like(t), t], [np.zeros_like(t), np.ones_like(t)]
    end, end_slope = d(len(knots) - 2)
    for k in range(len(knots) - 2):
        v, s = d(k)
        value.append(v - end)
        slope.append(s - end_slope)
    return np.stack(value, 1), np.stack(slope, 1)


def spline_map(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points between which the calibrated confidence is interpolated."""
    order = np.argsort(confidence, kind="stable")
    s, hit = confidence[order], correct[order].astype(float)
    gap = np.cumsum(hit - s) / len(s)
    value, slope = natural_basis(np.linspace(0, 1, len(s)), np.linspace(0, 1, 6))
    return s, s + slope @ np.linalg.lstsq(value, gap, rcond=None)[0]


def fitted(family: str, z: np.ndarray, y: np.ndarray) -> Any:
    """Fit a family."""
    if family == "temperature":
        return inverse_temperature(z, y)
    if family == "spline":
        return spline_map(top1(z), z.argmax(axis=1) == y)
    return vector_scaling(z, y)


def measured(family: str, f_o: Any, f_h: Any, alpha: float, z: np.ndarray, y: np.ndarray) -> Cell:
    """Mix two fits by alpha and measure."""
    rows = np.arange(len(y))
    if family == "spline":
        confidence = top1(z)
        c_o, c_h = (np.clip(np.interp(confidence, *f), 0, 1) for f in (f_o, f_h))
        correct = z.argmax(axis=1) == y
        nll = -float(log_softmax(z, axis=1)[rows, y].mean())
        return Cell(plain_ece(alpha * c_o + (1 - alpha) * c_h, correct), correct.mean(), nll)
    if family == "temperature":
        p = softmax((alpha * f_o + (1 - alpha) * f_h) * z, axis=1)
    else:
        p_o, p_h = (softmax(weight * z + bias, axis=1) for weight, bias in (f_o, f_h))
        p = alpha * p_o + (1 - alpha) * p_h
    correct = p.argmax(axis=1) == y
    return Cell(plain_ece(p.max(axis=1), correct), correct.mean(), -np.log(p[rows, y]).mean())


def cell(
    family: str,
    hard: np.ndarray,
    calibration: tuple[np.ndarray, np.ndarray],
    splits: list[tuple[np.ndarray, np.ndarray]],
) -> list[Cell]:
    """Fit ACE and measure it on every split.

    Args:
        family: The calibrator.
        hard: Which calibration samples are in the hard set.
        calibration: Logits and labels.
        splits: Logits and labels of each.
    """
    z, y = calibration
    f_o, f_h = fitted(family, z, y), fitted(family, z[hard], y[hard])
    mean = top1(z).mean()
    return [
        measured(family, f_o, f_h, min(float(top1(test).mean() / mean), 1.0), test, truth)
        for test, truth in splits
    ]
