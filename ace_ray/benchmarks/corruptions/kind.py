"""What a corruption is: a function of a batch, its constants and the batch's random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ace_ray.arrays import ImageArray
from ace_ray.benchmarks.corruptions.draws import Draws

# (N, H, W, 3), either finished uint8 or float32 grey levels that the caller clips and truncates
Levels: TypeAlias = NDArray[np.floating[Any]] | ImageArray
# (N, H, W, 3) uint8, constants, draws -> levels of the same shape
Corruption: TypeAlias = Callable[[ImageArray, tuple[float, ...], Draws], Levels]
