r"""Results, tables and page of a run from its records, as a Ray job.

    ray job submit --address http://head:8265 --working-dir . -- \
        python jobs/aggregate.py --run 3f9a21c07b4e --store s3://bucket/ace-store

The exit code is the job's, as of `benchmark.py`.
"""

from __future__ import annotations

from arguments import run_job

if __name__ == "__main__":
    run_job("report", __doc__)
