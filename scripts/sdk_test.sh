#!/usr/bin/env bash
# Calls of the pinned SDKs of OpenAI and Anthropic against `baton serve --demo` (tests/sdk). The SDKs
# come from PyPI and npm, once per change of a pin, into the folder sdk beside the binary.
#   scripts/sdk_test.sh [--baton FILE]             all tests; build/release/baton if not told
#   scripts/sdk_test.sh test_agents.py -k turns    some of them: the arguments are pytest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require python3 node npm
sdk=$(dirname "$baton")/sdk

pins() {
  python3 --version && node --version
  cat tests/sdk/requirements.txt tests/sdk/package-lock.json
}
if ! pins | cmp -s - "$sdk/pins"; then
  install_python "$sdk" tests/sdk/requirements.txt
  cp tests/sdk/package.json tests/sdk/package-lock.json "$sdk"
  npm ci --prefix "$sdk" --ignore-scripts --no-audit --no-fund --loglevel error || no_registry npm
  pins >"$sdk/pins"
fi
run_pytest "$sdk" tests/sdk "--node-modules=$sdk/node_modules" "${arguments[@]}"
