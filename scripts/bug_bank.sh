#!/bin/sh
# Plants known bugs of other servers in the production cores, one after the other, and lets the
# simulation look for each: prints the table "seeds to detection" of docs/RELIABILITY.md.
# Takes some minutes; not part of CI.
#   scripts/bug_bank.sh [BUILD_FOLDER] [options of baton_bug_bank]
set -eu
build=${1:-build/release}
[ $# -gt 0 ] && shift
cmake --build "$build" --target baton_bug_bank
exec "$build/tests/sim/baton_bug_bank" "$@"
