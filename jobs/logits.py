r"""The logit tables of a run that are not committed yet, as a Ray job.

    ray job submit --address http://head:8265 --working-dir . -- \
        python jobs/logits.py --config configs/glyphs-small.yaml --store s3://bucket/ace-store

The exit code is the job's, as of `benchmark.py`.
"""

from __future__ import annotations

from arguments import run_job

if __name__ == "__main__":
    run_job("logits", __doc__)
