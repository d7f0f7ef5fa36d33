#!/usr/bin/env bash
# Installs missing packages, builds everything and runs all tests: the release build with every
# test, then selected tests under AddressSanitizer + UBSan and under ThreadSanitizer, then every fuzz
# target for 30 s.
# scripts/test.sh quick  stops after the release tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/stages.sh

format() {  # checks that clang-format 14 changes nothing
  git ls-files '*.cc' '*.h' | xargs clang-format-14 --dry-run --Werror
}
build() {  # preset, targets...
  local preset=$1
  shift
  cmake --preset "$preset" -DCMAKE_MESSAGE_LOG_LEVEL=WARNING
  ninja -C "build/$preset" --quiet "$@"
}

stage "packages" scripts/packages.sh
stage "format" format
stage "build release" build release all
stage "test release" ctest --test-dir build/release --output-on-failure -j 2
if [ "${1:-}" != quick ]; then
  stage "build asan" build asan sanitize_tests
  stage "test asan" ctest --test-dir build/asan -L sanitize --output-on-failure -j 2
  stage "build tsan" build tsan tsan_tests
  stage "test tsan" ctest --test-dir build/tsan -L tsan --output-on-failure -j 2
  stage "fuzz" scripts/fuzz.sh
fi
