"""The Ray Tune shell: trials share one copy of the logits and leave a record each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune
from ray.tune.logger import JsonLoggerCallback

from ace_ray.errors import AceRayError
from ace_ray.progress import Progress
from ace_ray.store import Store
from ace_ray.sweep.records import write_record
from ace_ray.sweep.trial import EvaluationSplit, TrialSpec, fit_trial


class _Trial(tune.Trainable):
    """One trial; the actor is kept and given the next one (`reuse_actors`)."""

    def setup(
        self,
        config: dict[str, Any],
        tables: Mapping[str, list[EvaluationSplit]],
        store_uri: str,
        run_id: str,
    ) -> None:
        """Keep what all trials share."""
        self.tables, self.run_id = tables, run_id
        self.store = Store.open(store_uri)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial."""
        self.key = new_config["trial"]["key"]
        self.spec = TrialSpec(**new_config["trial"]["spec"])
        return True

    def step(self) -> dict[str, Any]:
        """Fit, measure and record; a trial that cannot be fitted says why instead."""
        outcome: dict[str, Any] = {"done": True, "key": self.key, "error": ""}
        try:
            result = fit_trial(self.spec, self.tables[self.spec.model])
            write_record(self.store, self.run_id, self.key, self.spec, result)
        except AceRayError as error:
            return {**outcome, "error": f"{self.spec}: {error}"}
        return outcome


class _Watch(tune.Callback):
    """Moves the progress line."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self.advance = advance

    def on_trial_complete(self, **_: Any) -> None:
        """Count a finished trial."""
        self.advance()

    def on_trial_error(self, **_: Any) -> None:
        """Count a lost trial too: it is done with."""
        self.advance()


def run_trials(
    store: Store,
    run_id: str,
    specs: Mapping[str, TrialSpec],
    tables: Mapping[str, list[EvaluationSplit]],
    progress: Progress,
) -> list[str]:
    """Run the trials (key -> spec) and return one line per trial that failed."""
    grid = [{"key": key, "spec": spec.as_plain()} for key, spec in specs.items()]
    trainable = tune.with_parameters(_Trial, tables=tables, store_uri=store.uri, run_id=run_id)
    # Tune's own state is not needed after the sweep: the records are the result.
    with tempfile.TemporaryDirectory(prefix="ace-ray-tune-") as scratch:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"trial": tune.grid_search(grid)},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                name=run_id,
                storage_path=scratch,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=3),
                callbacks=[JsonLoggerCallback(), _Watch(progress.advance)],
            ),
        )
        results = tuner.fit()
    failed = []
    for result in results:
        if result.error is not None:
            spec = specs[result.config["trial"]["key"]]
            failed.append(f"{spec}: {str(result.error).strip().splitlines()[-1]}")
        elif result.metrics and result.metrics.get("error"):
            failed.append(result.metrics["error"])
    return sorted(failed)
