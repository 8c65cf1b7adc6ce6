"""Content keys: the sha256 of everything that changes a result, and of nothing else.

Same key: reuse. Different key: never mixed. What is not part of a key is named in `RUNTIME`, and
a test fails until every configuration field stands in exactly one of the two lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Layout of the logit table. Raise it when the columns or their meaning change.
TABLE_SCHEMA: Final = 1
# Behaviour of the code that makes logits. Raise it when the same inputs give other bytes.
EXTRACTION_CODE: Final = "extraction-2"
# Behaviour of the import of foreign logits; also marks such tables.
IMPORT_CODE: Final = "import-1"
# Behaviour of calibrators, ACE and metrics. Raise it when the same logits give other numbers.
CALIBRATION_CODE: Final = "calibration-4"
# Layout of a trial's record. Raise it when its fields change.
RECORD_SCHEMA: Final = 3

# Configuration fields that change a result; they enter the run's key.
RESULT: Final = frozenset(
    {
        "models",
        "benchmarks",
        "extraction.dtype",
        "extraction.precision",
        "extraction.features",
        "sweep.calibrators",
        "sweep.difficulty",
        "sweep.seeds",
        "sweep.bins",
        "sweep.clip_alpha",
        "sweep.bootstrap",
        "sweep.search",
        "studies",
    }
)
# Configuration fields that change where and how fast, never what. Batch size and compilation move
# a logit by rounding only (docs/extraction.md); what they were is recorded.
RUNTIME: Final = frozenset(
    {
        "store",
        "data_root",
        "extraction.batch_size",
        "extraction.compile",
        "extraction.quarantine",
        "sweep.callbacks",
        "resources.cpus",
        "resources.cpus_per_loader",
        "resources.cpus_per_predictor",
        "resources.cpus_per_trial",
        "resources.memory_per_predictor",
        "resources.loaders",
        "resources.predictors",
        "resources.gpus_per_predictor",
        "resources.sweep_memory",
    }
)
# Options of a benchmark, and keys of a model, that say where something lies. What lies there enters
# the content keys by its digest.
BENCHMARK_RUNTIME: Final = frozenset({"path", "textures", "labels"})
MODEL_RUNTIME: Final = frozenset({"checkpoint"})


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_key(fields: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of the fields."""
    return digest(canonical_json(fields).encode())


def digest(data: bytes) -> str:
    """Return the sha256 (hex) of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_lines(lines: Iterable[str]) -> str:
    """Return the sha256 (hex) of lines, each closed by a newline."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(line.encode())
        sha.update(b"\n")
    return sha.hexdigest()


def sample_seed(sample_id: str, corruption: str, severity: int) -> int:
    """Return the 64-bit seed of one corrupted sample, the same on every worker."""
    text = f"{sample_id}\n{corruption}\n{severity}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
