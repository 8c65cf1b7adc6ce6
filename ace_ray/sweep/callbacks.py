"""Experiment trackers, through Ray Tune's own callbacks: each trial is a run there.

Where they report to and with which credentials is their own business, from their environment:
`MLFLOW_TRACKING_URI`, `WANDB_API_KEY`, `WANDB_MODE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ace_ray.errors import ConfigError

if TYPE_CHECKING:
    from ray import tune

_PROJECT: Final = "ace-ray"


def check_callbacks(names: Sequence[str]) -> None:
    """Raise if a tracker's package is not installed, before anything is computed."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"sweep.callbacks: {name} is not installed here; "
                f"pip install 'ace-ray[{name}]', or leave it out"
            )


def made_callbacks(names: Sequence[str]) -> list[tune.Callback]:
    """Return Tune's callback of each tracker."""
    made: list[tune.Callback] = []
    for name in names:
        if name == "mlflow":
            from ray.air.integrations.mlflow import MLflowLoggerCallback

            made.append(MLflowLoggerCallback(experiment_name=_PROJECT))
        else:
            from ray.air.integrations.wandb import WandbLoggerCallback

            made.append(WandbLoggerCallback(project=_PROJECT))
    return made
