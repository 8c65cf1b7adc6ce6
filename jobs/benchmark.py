r"""The whole run as a Ray job.

    ray job submit --address http://head:8265 --working-dir . -- \
        python jobs/benchmark.py --config configs/glyphs-small.yaml --store s3://bucket/ace-store

The exit code is the job's: 0 done, 1 some trials failed or time is up, 2 bad input, 143 stopped.
"""

from __future__ import annotations

from arguments import run_job

if __name__ == "__main__":
    run_job("run", __doc__)
