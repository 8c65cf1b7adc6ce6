"""What a corruption is: a function of a batch, its constants and one generator per sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ace_ray.arrays import FloatArray

Generators: TypeAlias = Sequence[np.random.Generator]
# (N, H, W, 3) float32 in [0, 1], constants, generators -> the same shape, clipped by the caller
Corruption: TypeAlias = Callable[[FloatArray, tuple[float, ...], Generators], FloatArray]
