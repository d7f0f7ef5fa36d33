#!/usr/bin/env bash
# What is around a running Baton fails: Prometheus, a name server, the API server of Kubernetes (tests/watch).
#   scripts/outage_test.sh [--baton FILE]       all tests; build/release/baton if not told
#   scripts/outage_test.sh Outages.test_...     some of them: the arguments are unittest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require prometheus promtool openssl
exec /usr/bin/python3 -B tests/watch/outage_test.py --baton "$baton" "${arguments[@]}"
