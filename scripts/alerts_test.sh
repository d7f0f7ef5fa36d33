#!/usr/bin/env bash
# Each alert of deploy/ fires under the fault that it is for, with Debian's Prometheus on real processes (tests/watch),
# and all are silent without one. Ten minutes.
#   scripts/alerts_test.sh [--baton FILE]    all faults; build/release/baton if not told
#   scripts/alerts_test.sh --slice           those of scripts/test.sh: a minute
#   scripts/alerts_test.sh Alerts.test_...   some of them: the arguments are unittest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require prometheus promtool openssl cc
exec /usr/bin/python3 -B tests/watch/alerts_test.py --baton "$baton" "${arguments[@]}"
