#!/usr/bin/env bash
# Calls of Python's gRPC client against `baton serve --demo --grpc-port` (tests/grpc). The client comes
# from PyPI, once per change of a pin, into the folder grpc beside the binary.
#   scripts/grpc_test.sh [--baton FILE]           all tests; build/release/baton if not told
#   scripts/grpc_test.sh test_calls.py -k slow    some of them: the arguments are pytest's
set -euo pipefail
cd "$(dirname "$0")/.."
baton=$PWD/build/release/baton
if [ "${1:-}" = --baton ]; then
  baton=$(realpath "$2")
  shift 2
fi
[ -x "$baton" ] || { echo "no $baton; build it: ninja -C build/release baton" >&2; exit 1; }
command -v python3 >/dev/null || { echo "no python3; run scripts/packages.sh" >&2; exit 1; }
client=$(dirname "$baton")/grpc

pins() {
  python3 --version
  cat tests/grpc/requirements.txt
}
if ! pins | cmp -s - "$client/pins"; then
  rm -rf "$client"
  mkdir -p "$client"
  python3 -m venv "$client/venv"
  "$client/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r tests/grpc/requirements.txt || {
    echo "grpc_test: the client could not be installed from PyPI (see above), so nothing was tested" >&2
    exit 1
  }
  "$client/venv/bin/pip" check
  pins >"$client/pins"
fi
cd tests/grpc
exec "$client/venv/bin/python" -B -m pytest -p no:cacheprovider --rootdir=. -q --tb=short "--baton=$baton" "$@"
