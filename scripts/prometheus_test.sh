#!/usr/bin/env bash
# Debian's Prometheus on a running `baton serve --demo` (tests/watch): panels, values, alerts under faults.
#   scripts/prometheus_test.sh [--baton FILE]   all tests; build/release/baton if not told
#   scripts/prometheus_test.sh --quiet          nothing else runs on the machine: also judges small times
#   scripts/prometheus_test.sh Watched.test_... some of them: the arguments are unittest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require prometheus promtool
exec /usr/bin/python3 -B tests/watch/prometheus_test.py --baton "$baton" "${arguments[@]}"
