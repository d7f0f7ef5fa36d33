#!/usr/bin/env bash
# Installs missing packages, builds everything and runs all tests: the release build with every
# test, the licences of what it links, then selected tests under AddressSanitizer + UBSan and under
# ThreadSanitizer, then every fuzz target for 30 s, then the chart on Kubernetes: with nodes where their programs are in
# the cache and the machine can, else on an API server alone; where neither can be had, the end says so. CUDA's compiler
# comes from PyPI; where that does not answer, the CUDA side is neither built nor checked, and the end says so.
# scripts/test.sh quick  stops after the release tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/stages.sh

format() {  # checks that clang-format 14 changes nothing
  git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror
}
build() {  # preset, targets...
  local preset=$1
  shift
  cmake --preset "$preset" -DCMAKE_MESSAGE_LOG_LEVEL=WARNING
  ninja -C "build/$preset" --quiet "$@"
}
run_tests() {  # preset, arguments of ctest; tells what failed again at the end, where one looks
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure -j 2 "$@" && return
  awk '/^[0-9]+\/[0-9]+ Testing: / { output = "" }
       { output = output $0 "\n" }
       /^Test Failed/ { printf "== failed:\n%s", substr(output, length(output) - 8000) }' \
    "build/$preset/Testing/Temporary/LastTest.log"
  return 1
}

cuda_tools() {
  scripts/cuda_tools.sh && return
  [ $? -eq 3 ] || return 1
  without_cuda=1
}
without_cuda=
cluster() {  # leaves in cluster_said what of Kubernetes ran; a machine without programs or rights is no failure
  local log=build/cluster_test.log rc=0
  scripts/cluster_test.sh --any 2>&1 | tee "$log" || rc=$?
  cluster_said=$(grep '^cluster_test[: ]' "$log" | tail -1)
  case $rc in
    0) ;;
    3 | 77) cluster_said="THE CHART WAS NOT TESTED ON ANY: $cluster_said" ;;
    *) return $rc ;;
  esac
}
cluster_said=

stage "packages" scripts/packages.sh
stage "CUDA's compiler" cuda_tools
stage "format" format
stage "build release" build release all
stage "test release" run_tests release
stage "licences" scripts/licences.sh
if [ "${1:-}" != quick ]; then
  stage "build asan" build asan sanitize_tests
  stage "test asan" run_tests asan -L sanitize
  stage "build tsan" build tsan tsan_tests
  stage "test tsan" run_tests tsan -L tsan
  stage "fuzz" scripts/fuzz.sh
  stage "Kubernetes" cluster
  echo "== Kubernetes: $cluster_said"
fi
if [ -n "$without_cuda" ]; then
  echo "== CUDA: NOT BUILT AND NOT CHECKED, its compiler did not come from PyPI (see stage \"CUDA's compiler\")"
fi
