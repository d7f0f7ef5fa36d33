#!/usr/bin/env bash
# A collector of traces on a running `baton serve --demo` (tests/watch).
#   scripts/tracing_test.sh [--baton FILE]      all tests; build/release/baton if not told
#   scripts/tracing_test.sh Traced.test_...     some of them: the arguments are unittest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
exec /usr/bin/python3 -B tests/watch/tracing_test.py --baton "$baton" "${arguments[@]}"
