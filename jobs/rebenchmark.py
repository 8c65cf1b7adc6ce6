"""Scheduled re-benchmarking as a Ray job.

    ray job submit --address http://head:8265 --working-dir . -- \
        python jobs/rebenchmark.py configs/watchlist.yaml --store s3://bucket/ace-store

The exit code is the job's: 0 nothing worse, 1 some models failed, 2 bad input, 3 a regression.
"""

from __future__ import annotations

import sys

from ace_ray.cli import main

if __name__ == "__main__":
    main(["rebenchmark", *sys.argv[1:]])
