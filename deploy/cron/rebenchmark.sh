#!/usr/bin/env bash
# Every night from cron, on the cluster's head or a machine that reaches it:
#   15 2 * * * /srv/ace_ray/deploy/cron/rebenchmark.sh >>/var/log/ace-ray.log 2>&1
# Exit code: 0 nothing worse, 1 anything else (`ray job submit` knows no other); `exit_code` in the
# JSON of the log tells which: 1 some models failed, 2 bad input, 3 a regression.
# Two at once are harmless: the second finds the first's lease, says so and exits 0.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${ADDRESS:=http://127.0.0.1:8265}"                # EDIT: the cluster's dashboard
: "${STORE:=s3://BUCKET/ace-store}"                  # EDIT
: "${WATCHLIST:=configs/watchlist.yaml}"             # EDIT
export PATH="$PWD/.venv/bin:$PATH"
# A day's id: Ray refuses a second job of the same name, should cron start one twice.
exec ray job submit --address "$ADDRESS" --working-dir . \
  --submission-id "ace-ray-nightly-$(date -u +%Y-%m-%d)" \
  --runtime-env-json '{"excludes": [".git", ".venv", ".venv-moto", "ace-store", ".env"]}' \
  -- python jobs/rebenchmark.py "$WATCHLIST" --store "$STORE" --json
