#!/usr/bin/env bash
# Calls of the pinned SDKs of OpenAI and Anthropic against `baton serve --demo` (tests/sdk). The SDKs
# come from PyPI and npm, once per change of a pin, into the folder sdk beside the binary.
#   scripts/sdk_test.sh [--baton FILE]             all tests; build/release/baton if not told
#   scripts/sdk_test.sh test_agents.py -k turns    some of them: the arguments are pytest's
set -euo pipefail
cd "$(dirname "$0")/.."
baton=$PWD/build/release/baton
if [ "${1:-}" = --baton ]; then
  baton=$(realpath "$2")
  shift 2
fi
[ -x "$baton" ] || { echo "no $baton; build it: ninja -C build/release baton" >&2; exit 1; }
for tool in python3 node npm; do
  command -v "$tool" >/dev/null || { echo "no $tool; run scripts/packages.sh" >&2; exit 1; }
done
sdk=$(dirname "$baton")/sdk

no_registry() {
  echo "sdk_test: the SDKs could not be installed from $1 (see above), so nothing was tested" >&2
  exit 1
}
pins() {
  python3 --version && node --version
  cat tests/sdk/requirements.txt tests/sdk/package-lock.json
}
if ! pins | cmp -s - "$sdk/pins"; then
  rm -rf "$sdk"
  mkdir -p "$sdk"
  python3 -m venv "$sdk/venv"
  "$sdk/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    -r tests/sdk/requirements.txt || no_registry PyPI
  "$sdk/venv/bin/pip" check
  cp tests/sdk/package.json tests/sdk/package-lock.json "$sdk"
  npm ci --prefix "$sdk" --ignore-scripts --no-audit --no-fund --loglevel error || no_registry npm
  pins >"$sdk/pins"
fi
cd tests/sdk
exec "$sdk/venv/bin/python" -B -m pytest -p no:cacheprovider --rootdir=. -q --tb=short \
  "--baton=$baton" "--node-modules=$sdk/node_modules" "$@"
