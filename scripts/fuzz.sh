#!/usr/bin/env bash
# Lets libFuzzer try inputs on all that reads bytes of strangers (tests/fuzz), two targets at a time.
# Fails on any finding; the input that shows it is then in build/fuzz/findings/TARGET.
#   scripts/fuzz.sh [SECONDS] [TARGET...]   without arguments: 30 s of each target
#   scripts/fuzz.sh 300 grammar             goes on from what earlier runs have kept
#   scripts/fuzz.sh keep kv_wire            writes tests/fuzz/corpus/kv_wire.txt of what they have kept
#   build/fuzz/tests/fuzz/grammar_fuzz build/fuzz/findings/grammar/crash-...   repeats a finding
set -euo pipefail
cd "$(dirname "$0")/.."

keeps=
if [ "${1:-}" = keep ]; then
  keeps=1
  shift
fi
seconds=30
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
scripts/packages.sh fuzz
cmake --preset fuzz -DCMAKE_MESSAGE_LOG_LEVEL=WARNING
ninja -C build/fuzz --quiet fuzz_targets
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for file in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$file" _fuzz.cc)"); done
fi

TMPDIR=$(mktemp -d)  # of the files that inputs are
trap 'rm -rf "$TMPDIR"' EXIT
export TMPDIR seconds

# Runs one target and prints one line. -seed: from an empty corpus a run tries nearly the same again.
# An input may take 10 s and 2 GB; most targets have bounds of their own, which are smaller. Leaks are
# looked for at the end: caches of the code make libFuzzer look after each input, which takes 5 ms.
try() {
  local target=$1 program=build/fuzz/tests/fuzz/$1_fuzz status=0
  local run=build/fuzz/runs/$1 corpus=build/fuzz/corpus/$1 findings=build/fuzz/findings/$1
  mkdir -p "$corpus" "$findings"
  rm -f "$findings"/*
  "$program" --seeds "$run"
  ASAN_OPTIONS=malloc_context_size=4 ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-19 || true) UBSAN_OPTIONS=print_stacktrace=1 \
    timeout -k 10 $((seconds + 120)) "$program" "$corpus" "$run/inputs" -dict="$run/words" -seed=1 \
    -max_total_time="$seconds" -detect_leaks=0 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$findings/" \
    -print_final_stats=1 >"$run/log" 2>&1 || status=$?
  local tried edges
  tried=$(sed -n 's/^stat::number_of_executed_units: *//p' "$run/log")
  edges=$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$run/log" | tail -1)
  if [ "$status" -eq 0 ]; then
    echo "$target: ${tried:-0} inputs, ${edges:-0} edges, no finding"
    [ -n "$tried" ] && [ -n "$edges" ]
  else
    echo "$target: FINDING, see $run/log; the input: $(ls "$findings"/* 2>/dev/null | head -1)"
    grep -E 'CHECK failed|ERROR: |SUMMARY: |runtime error' "$run/log" | head -5 | sed 's/^/  /'
    return 1
  fi
}
export -f try

if [ -n "$keeps" ]; then  # the smallest inputs that lead everywhere
  for target in "${targets[@]}"; do
    program=build/fuzz/tests/fuzz/${target}_fuzz
    run=build/fuzz/runs/$target
    "$program" --seeds "$run"
    mkdir -p tests/fuzz/corpus "$TMPDIR/$target"
    "$program" -merge=1 "$TMPDIR/$target" "$run/inputs" "build/fuzz/corpus/$target" 2>"$run/log"
    "$program" --pack "$TMPDIR/$target" "tests/fuzz/corpus/$target.txt"
  done
  exit
fi
printf '%s\n' "${targets[@]}" | xargs -P 2 -I '{}' bash -c 'set -euo pipefail; try "$@"' try '{}'
