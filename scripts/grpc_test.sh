#!/usr/bin/env bash
# Calls of Python's gRPC client against `baton serve --demo --grpc-port` (tests/grpc). The client comes
# from PyPI, once per change of a pin, into the folder grpc beside the binary.
#   scripts/grpc_test.sh [--baton FILE]           all tests; build/release/baton if not told
#   scripts/grpc_test.sh test_calls.py -k slow    some of them: the arguments are pytest's
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require python3
client=$(dirname "$baton")/grpc

pins() {
  python3 --version
  cat tests/grpc/requirements.txt
}
if ! pins | cmp -s - "$client/pins"; then
  install_python "$client" tests/grpc/requirements.txt
  pins >"$client/pins"
fi
run_pytest "$client" tests/grpc "${arguments[@]}"
