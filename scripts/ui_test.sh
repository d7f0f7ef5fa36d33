#!/usr/bin/env bash
# The page /ui of `baton serve --demo` in Debian's headless Chromium (tests/ui), and `baton top`.
# Pictures of the page are left in the folder ui beside the binary.
#   scripts/ui_test.sh [--baton FILE]        all tests; build/release/baton if not told
#   scripts/ui_test.sh Page.test_...         some of them: the arguments are unittest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require chromium chromedriver
exec /usr/bin/python3 -B tests/ui/page_test.py --baton "$baton" --pictures "$(dirname "$baton")/ui" "${arguments[@]}"
