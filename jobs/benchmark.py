"""The whole run as a Ray job.

    ray job submit --address http://head:8265 --working-dir . -- \
        python jobs/benchmark.py --config configs/glyphs-small.yaml --store s3://bucket/ace-store

The exit code is the job's: 0 done, 1 some trials failed, 2 bad input.
"""

from __future__ import annotations

import argparse

from ace_ray.cli import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", help="YAML file; without it the embedded benchmark runs")
    parser.add_argument("--store", help="where the cluster's nodes can all read and write")
    parser.add_argument("--data-root", help="where they can all read the data sets")
    args = parser.parse_args()
    config = [args.config] if args.config else []
    store = ["--store", args.store] if args.store else []
    data = ["--data-root", args.data_root] if args.data_root else []
    main(["run", *config, *store, *data])
