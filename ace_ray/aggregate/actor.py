"""The aggregation actor: reads committed records, writes `results.parquet` and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from ace_ray.aggregate.arrange import Results
from ace_ray.aggregate.diagrams import diagrams
from ace_ray.aggregate.results import encode_results, results_rows
from ace_ray.aggregate.studies import STUDIES
from ace_ray.aggregate.study import output_path
from ace_ray.aggregate.summary import summary
from ace_ray.session import unwrapped
from ace_ray.store import Store
from ace_ray.sweep.records import read_failures, read_record, recorded
from ace_ray.sweep.trial import TrialSpec


class Aggregator:
    """Aggregates runs of a store. Every call starts from the records: a restart is harmless."""

    def __init__(self, store_uri: str) -> None:
        self.store = Store.open(store_uri)

    def aggregate(
        self,
        run_id: str,
        specs: dict[str, dict[str, Any]],
        studies: Sequence[str],
        difficulties: Sequence[float],
    ) -> int:
        """Write results, tables and figures; return how many trials of the run have no record."""
        done = recorded(self.store, run_id)
        records = [read_record(self.store, run_id, key) for key in specs if key in done]
        rows = results_rows(run_id, records)
        results = Results.arrange(records, specs.values(), difficulties)
        folder = f"runs/{run_id}"
        for study in studies:
            made = STUDIES[study].show(results)
            self.store.write_json(f"{folder}/{output_path(study)}", made.as_plain())
        warnings = sorted({f"{_title(r)}: {w}" for r in records for w in r["warnings"]})
        missing = [str(TrialSpec(**spec)) for key, spec in specs.items() if key not in done]
        reasons = read_failures(self.store, run_id) if missing else {}
        self.store.write_json(
            f"{folder}/summary.json",
            {
                "sentences": summary(results),
                "warnings": warnings,
                "missing": {trial: reasons.get(trial, "") for trial in missing},
                "diagrams": [d._asdict() for d in diagrams(results, records)],
            },
            indent=False,
        )
        self.store.write(f"{folder}/results.parquet", encode_results(rows))
        return len(specs) - len(records)


def _title(record: dict[str, Any]) -> str:
    return str(TrialSpec(**record["spec"]))


def aggregate(
    store: Store,
    run_id: str,
    specs: dict[str, TrialSpec],
    studies: Sequence[str],
    difficulties: Sequence[float],
) -> int:
    """Run the actor once and return how many trials have no record.

    Args:
        store: Where the records are, and where the results go.
        run_id: The run.
        specs: All its trials, by key.
        studies: What to make.
        difficulties: Of the plain grid; trials with another one belong to a study.
    """
    remote: Any = ray.remote(Aggregator)
    actor = remote.options(max_restarts=3, max_task_retries=3, num_cpus=0).remote(store.uri)
    plain = {key: spec.as_plain() for key, spec in specs.items()}
    with unwrapped():
        missing: int = ray.get(actor.aggregate.remote(run_id, plain, studies, difficulties))
    return missing
