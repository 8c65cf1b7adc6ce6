"""The aggregation actor: reads committed records, writes `results.parquet` and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from ace_ray.aggregate.diagrams import diagrams
from ace_ray.aggregate.results import encode_results, results_rows
from ace_ray.aggregate.tables import STUDIES, Results, Series, summary
from ace_ray.session import unwrapped
from ace_ray.store import Store
from ace_ray.sweep.records import read_record, recorded
from ace_ray.sweep.trial import TrialSpec


class Aggregator:
    """Aggregates runs of a store. Every call starts from the records: a restart is harmless."""

    def __init__(self, store_uri: str) -> None:
        self.store = Store.open(store_uri)

    def aggregate(
        self, run_id: str, specs: dict[str, dict[str, Any]], studies: Sequence[str]
    ) -> int:
        """Write results and tables of a run; return how many of its trials have no record."""
        done = recorded(self.store, run_id)
        records = [read_record(self.store, run_id, key) for key in specs if key in done]
        rows = results_rows(run_id, records)
        series = [_series(TrialSpec(**spec)) for spec in specs.values()]
        seeds = len({spec["seed"] for spec in specs.values() if spec["method"] == "alone"})
        results = Results.arrange(rows, list(dict.fromkeys(series)), seeds)
        folder = f"runs/{run_id}"
        for study in studies:
            table = STUDIES[study](results)
            self.store.write_json(f"{folder}/tables/{study}.json", table.as_plain())
        warnings = sorted({f"{_title(r)}: {w}" for r in records for w in r["warnings"]})
        self.store.write_json(
            f"{folder}/summary.json",
            {
                "sentences": summary(results),
                "warnings": warnings,
                "missing": [str(TrialSpec(**s)) for k, s in specs.items() if k not in done],
                "diagrams": [d._asdict() for d in diagrams(results, records)],
            },
            indent=False,
        )
        self.store.write(f"{folder}/results.parquet", encode_results(rows))
        return len(specs) - len(records)


def _series(spec: TrialSpec) -> Series:
    return Series(spec.model, spec.calibrator, spec.method, spec.difficulty)


def _title(record: dict[str, Any]) -> str:
    return str(TrialSpec(**record["spec"]))


def aggregate(
    store: Store, run_id: str, specs: dict[str, TrialSpec], studies: Sequence[str]
) -> int:
    """Run the actor once and return how many trials have no record."""
    remote: Any = ray.remote(Aggregator)
    actor = remote.options(max_restarts=3, max_task_retries=3, num_cpus=0).remote(store.uri)
    plain = {key: spec.as_plain() for key, spec in specs.items()}
    with unwrapped():
        missing: int = ray.get(actor.aggregate.remote(run_id, plain, studies))
    return missing
