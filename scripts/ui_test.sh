#!/usr/bin/env bash
# The page /ui of `baton serve --demo` in Debian's headless Chromium (tests/ui), and `baton top`.
# Pictures of the page are left in the folder ui beside the binary.
#   scripts/ui_test.sh [--baton FILE]        all tests; build/release/baton if not told
#   scripts/ui_test.sh Page.test_...         some of them: the arguments are unittest's
#   scripts/ui_test.sh --cost                what an open page costs the router; 50 s, with nothing beside it
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require chromium chromedriver
test=page_test.py
if [ "${arguments[0]:-}" = --cost ]; then
  test=page_cost.py
  arguments=("${arguments[@]:1}")
fi
exec /usr/bin/python3 -B "tests/ui/$test" --baton "$baton" --pictures "$(dirname "$baton")/ui" "${arguments[@]}"
