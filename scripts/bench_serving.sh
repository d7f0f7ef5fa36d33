#!/usr/bin/env bash
# The serving figures of the README, each against servers started here and stopped afterwards:
#   scripts/bench_serving.sh trace         300 requests of a real trace: --demo and --colocated
#   scripts/bench_serving.sh interference  ITL of 4 streams while 4,000-token prompts arrive (125M shape)
#   scripts/bench_serving.sh gap           gap between tokens 1 and 2 after a 1,000-token prompt (125M shape)
# Needs the release build (scripts/demo.sh or scripts/test.sh makes it) and two free cores.
set -euo pipefail
cd "$(dirname "$0")/.."
baton=build/release/baton
[ -x "$baton" ] || { echo "build first: cmake --preset release && ninja -C build/release baton" >&2; exit 1; }
shape_125m=random:configs/shapes/llama-125m.json
log=$(mktemp)
server=0
stop() {
  [ "$server" -eq 0 ] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  server=0
}
trap 'stop; rm -f "$log"' EXIT

# Starts `baton serve ARGS...` on a free port and sets $url.
start() {
  stop
  "$baton" serve "$@" --port 0 >"$log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    url=$(sed -n 's/^ready *\(http:[^ ]*\).*/\1/p' "$log" | head -1)
    [ -n "$url" ] && return
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  echo "no ready line:" >&2
  cat "$log" >&2
  exit 1
}

trace() {
  local replay=(bench load --trace bench/traces/mooncake_conversation_400.jsonl --requests 300
                --scale-lengths 0.03125 --max-context 4096)
  start --demo
  "$baton" "${replay[@]}" --url "$url" --label "disaggregated, 2 prefill + 1 decode"
  start --demo --colocated --prefill 0 --decode 2
  "$baton" "${replay[@]}" --url "$url" --label "colocated, 2 workers"
}

interference() {
  local probe=(bench interference --long-prompt-tokens 4000 --vocab 32000)
  # The long prompts repeat, so reuse of KV would leave nothing to compute.
  local compute_all=(--prefill.reuse_kv=false --decode.reuse_kv=false)
  start "$shape_125m" --prefill 1 --decode 1 --prefill.cpus=1 --decode.cpus=0 "${compute_all[@]}"
  "$baton" "${probe[@]}" --url "$url" --label "disaggregated, 1 prefill + 1 decode, a core each"
  start "$shape_125m" --colocated --prefill 0 --decode 1 "${compute_all[@]}"
  "$baton" "${probe[@]}" --url "$url" --label "colocated, 1 worker on both cores"
}

gap() {
  start "$shape_125m" --prefill 1 --decode 1 --prefill.cpus=1 --decode.cpus=0
  "$baton" bench load --url "$url" --requests 20 --prompt-tokens 1000 --output-tokens 32 \
    --vocab 32000 --max-concurrency 1 --label "one request at a time, 1,000-token prompts"
}

case "${1:-}" in
  trace | interference | gap) "$1" ;;
  *) sed -n '2,6p' "$0"; exit 2 ;;
esac
