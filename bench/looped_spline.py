"""Spline calibration as published, one sample at a time: the witness of `ace_ray.Spline`."""

from __future__ import annotations

import numpy as np


def looped_spline(
    confidence: np.ndarray,
    right: np.ndarray,
    at: np.ndarray,
    knots: int = 6,
    *,
    swapped: bool = False,
) -> np.ndarray:
    """Fit on `confidence` and `right`, return the calibrated confidences `at`.

    `swapped` exchanges the two interpolation weights, as the published code does.
    """
    order = np.argsort(confidence, kind="stable")
    s, hit = confidence[order], right[order].astype(float)
    n, h = len(s), 1 / (knots - 1)
    # Second derivatives at the knots from their values (natural: zero at both ends).
    a = 4 * np.eye(knots - 2) + np.eye(knots - 2, k=1) + np.eye(knots - 2, k=-1)
    b = np.zeros((knots - 2, knots))
    for i in range(knots - 2):
        b[i, i : i + 3] = 6 / h**2 * np.array([1, -2, 1])
    second = np.vstack([np.zeros(knots), np.linalg.solve(a, b), np.zeros(knots)])

    def row(t: float, slope: bool) -> np.ndarray:
        j = min(int(t / h), knots - 2)
        x = t - j * h
        if slope:
            m0, m1, y0, y1 = -(x**2) / (2 * h) + x - h / 3, x**2 / (2 * h) - h / 6, -1 / h, 1 / h
        else:
            m0 = -(x**3) / (6 * h) + x**2 / 2 - h * x / 3
            m1, y0, y1 = x**3 / (6 * h) - h * x / 6, 1 - x / h, x / h
        out = m0 * second[j] + m1 * second[j + 1]
        out[j] += y0
        out[j + 1] += y1
        return np.asarray(out)

    gap, total = [], 0.0
    for i in range(n):
        total += (hit[i] - s[i]) / n
        gap.append(total)
    rank = [i / (n - 1) for i in range(n)]
    values = np.linalg.lstsq(np.array([row(t, False) for t in rank]), np.array(gap), rcond=None)[0]
    calibrated = [s[i] + row(rank[i], True) @ values for i in range(n)]
    out = []
    for x in at:
        if x >= s[-1]:
            v = calibrated[-1]
        elif x <= s[0]:
            v = calibrated[0]
        else:
            k = int(np.searchsorted(s, x))
            past, ahead = x - s[k - 1], s[k] - x
            if swapped:
                past, ahead = ahead, past
            v = (ahead * calibrated[k - 1] + past * calibrated[k]) / (past + ahead)
        out.append(min(max(v, 0.0), 1.0))
    return np.array(out)
