#!/usr/bin/env bash
# Checks a fabric between two hosts in five minutes: RDMA devices, their links, limits, the bandwidth of raw RDMA and of
# UCX by RDMA and by TCP, and a request whose KV goes over this host's address of that network. Prints what was found and
# what to change; ends with 1 if something must be changed. Nothing is installed or left behind. KV takes RDMA where
# kvtransfer.transport lets it (docs/TUNING.md).
#   tools/rdma_check.sh                          this host alone: devices, links, limits
#   tools/rdma_check.sh serve ADDRESS            on the first host: answers the second one; Ctrl-C ends it
#   tools/rdma_check.sh run ADDRESS [BATON]      on the second host: measures against the first one's ADDRESS of the
#                                                fast network; BATON: the binary, build/release/baton if not told
set -uo pipefail

bad=0
say() { printf '%-4s  %-12s %s\n' "$1" "$2" "$3"; if [ "$1" = BAD ]; then bad=1; fi; }
have() { command -v "$1" >/dev/null; }
read_file() { cat "$1" 2>/dev/null || true; }

# --- this host ---
# RDMA_ROOT, RDMA_NET_ROOT and RDMA_MEMLOCK stand in for the host's own, for the test.
check_devices() {
  local root=${RDMA_ROOT:-/sys/class/infiniband} device port state rate layer n=0
  for device in "$root"/*; do
    [ -d "$device/ports" ] || continue
    for port in "$device"/ports/*; do
      state=$(read_file "$port/state"); rate=$(read_file "$port/rate"); layer=$(read_file "$port/link_layer")
      n=$((n + 1))
      if [[ $state == *ACTIVE* ]]; then
        say ok "device" "$(basename "$device") port $(basename "$port"): $layer, $rate, ${state#*: }"
      else
        say BAD "device" "$(basename "$device") port $(basename "$port"): $layer, state ${state:-unknown}: cable, switch \
port, or a subnet manager that lacks (systemctl status opensm)"
      fi
      check_gids "$device" "$port" "$layer"
    done
  done
  if [ "$n" -eq 0 ]; then
    say BAD "device" "none in $root: no RDMA card, or its driver is not loaded (modprobe mlx5_ib; rdma link)"
  fi
}

# RoCE needs a version 2 GID of an IPv4 address; its index is what tools are told by -x.
check_gids() {
  [ "$3" = Ethernet ] || return 0
  local type index gid
  for type in "$2"/gid_attrs/types/*; do
    [[ $(read_file "$type") == *"RoCE v2"* ]] || continue
    index=$(basename "$type"); gid=$(read_file "$2/gids/$index")
    if [[ $gid == 0000:0000:0000:0000:0000:ffff:* ]]; then
      say ok "gid" "$(basename "$1"): index $index is RoCE v2 over IPv4 ($gid)"
      return 0
    fi
  done
  say BAD "gid" "$(basename "$1"): no RoCE v2 GID over IPv4: give the card an IPv4 address, and ask for RoCE v2"
}

check_limits() {
  local memlock=${RDMA_MEMLOCK:-$(ulimit -l)}
  if [ "$memlock" = unlimited ]; then
    say ok "memlock" "unlimited"
  else
    say BAD "memlock" "$memlock KiB: RDMA registers the whole KV pool; LimitMEMLOCK=infinity in the unit, ulimit -l \
unlimited, rdma.ipcLock in the chart"
  fi
  local mtu device
  for device in "${RDMA_NET_ROOT:-/sys/class/net}"/*; do
    [ -d "$device/device/infiniband" ] || continue
    mtu=$(read_file "$device/mtu")
    if [ "${mtu:-0}" -ge 4000 ]; then
      say ok "mtu" "$(basename "$device"): $mtu"
    else
      say note "mtu" "$(basename "$device"): $mtu; 9000 (RoCE) or 4092 (IPoIB) on cards and switches carries more"
    fi
  done
}

check_tools() {
  local tool
  for tool in ib_write_bw ucx_perftest; do
    if have "$tool"; then say ok "tool" "$tool"; else
      say note "tool" "$tool is missing: apt-get install perftest ucx-utils, on both hosts, to measure RDMA"
    fi
  done
}

# --- between two hosts ---
# measured COMMAND...: its output; a few tries, since the other host's end starts anew after each client.
measured() {
  local text
  for _ in 1 2 3; do
    text=$(timeout 30 "$@" 2>/dev/null) && { printf '%s\n' "$text"; return; }
    sleep 1
  done
}
# The average that perftest prints for the largest message, in Gbit/s.
write_bandwidth() {
  measured ib_write_bw -R -F -D 3 --report_gbits -p 18515 "$1" | awk '$1 ~ /^[0-9]+$/ { rate = $4 } END { print rate }'
}
# MiB/s, overall, of UCX active messages by a set of transports.
ucx_bandwidth() {
  UCX_TLS=$2 measured ucx_perftest "$1" -p 18516 -t ucp_am_bw -s 1048576 -n 2000 | awk '$1 == "Final:" { print $7 }'
}

# RDMA in Gbit/s, UCX by RDMA and by tcp in MiB/s; empty: not measured.
compare_rates() {
  awk -v wire="$1" -v rdma="$2" -v tcp="$3" 'BEGIN {
    gbit = 8 * 1048576 / 1e9
    if (wire + 0 == 0) {
      print "note  rdma         not measured: run serve on the other host, with perftest on both"
    } else {
      printf "ok    rdma         ib_write_bw %.1f Gbit/s\n", wire
    }
    if (wire + 0 > 0 && rdma + 0 > 0) {
      part = rdma * gbit / wire
      if (part >= 0.8) {
        printf "ok    ucx rdma     %.1f Gbit/s, %.0f %% of ib_write_bw\n", rdma * gbit, 100 * part
      } else {
        printf "note  ucx rdma     %.1f Gbit/s, %.0f %% of ib_write_bw: look at UCX_NET_DEVICES, at the GID index, and at " \
          "the PCIe lanes of the card (lspci -vv, LnkSta)\n", rdma * gbit, 100 * part
      }
    }
    if (tcp + 0 > 0) printf "ok    ucx tcp      %.1f Gbit/s: what KV takes by kvtransfer.transport tcp\n", tcp * gbit
    if (tcp + 0 > 0 && wire + 0 > 0) printf "ok    gain         RDMA carries %.1f times that\n", wire / (tcp * gbit)
  }'
}

serve() {
  local address=$1 pids=()
  check_devices; check_limits; check_tools
  set -m  # each loop is a process group of its own, which ends as a whole
  trap 'kill -- "${pids[@]/#/-}" 2>/dev/null' EXIT
  trap 'exit 0' INT TERM
  if have ib_write_bw; then
    (while :; do ib_write_bw -R -F -D 3 --report_gbits -p 18515 || sleep 1; done) >/dev/null 2>&1 &
    pids+=($!)
  fi
  if have ucx_perftest; then
    (while :; do ucx_perftest -p 18516 || sleep 1; done) >/dev/null 2>&1 &
    pids+=($!)
  fi
  if [ ${#pids[@]} -eq 0 ]; then return; fi
  echo "answering at $address; on the other host: tools/rdma_check.sh run $address"
  wait
}

run() {
  local address=$1 baton=${2:-build/release/baton} wire='' rdma='' tcp=''
  check_devices; check_limits; check_tools
  if ! have ping; then
    say note "reach" "not tried: apt-get install iputils-ping"
  elif ping -c 3 -q "$address" >/dev/null 2>&1; then
    say ok "reach" "$address answers"
  else
    say BAD "reach" "$address does not answer: is it the address of the fast network, and is that routed?"
  fi
  if have ib_write_bw; then wire=$(write_bandwidth "$address"); fi
  if have ucx_perftest; then
    rdma=$(ucx_bandwidth "$address" rc,ud,self)
    tcp=$(ucx_bandwidth "$address" tcp,self)
  fi
  compare_rates "$wire" "$rdma" "$tcp"
  serve_request "$address" "$baton"
}

# One request whose KV is handed over on this host's own address of the fast network.
serve_request() {
  local address=$1 baton=$2 own folder pid port='' text=''
  if [ ! -x "$baton" ]; then say note "request" "no $baton: give the binary to serve a request"; return; fi
  own=$(ip -o route get "$address" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  folder=$(mktemp -d)
  "$baton" serve --demo --port 0 --cluster.worker_host "${own:-127.0.0.1}" >"$folder/log" 2>&1 &
  pid=$!
  for _ in $(seq 300); do
    port=$(sed -n 's|^ready *http://127.0.0.1:\([0-9]*\).*|\1|p' "$folder/log")
    if [ -n "$port" ] || ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if [ -n "$port" ]; then
    text=$(curl -s -m 30 "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
      -d '{"model":"demo","prompt":"2 + 3 =","max_tokens":4}')
  fi
  if [[ $text == *'"text"'* ]]; then
    say ok "request" "served, KV by ${own:-127.0.0.1}"
  else
    say BAD "request" "not served: $(tail -3 "$folder/log" | tr '\n' ' ')"
  fi
  kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null
  rm -r "$folder"
}

case ${1:-} in
  '') check_devices; check_limits; check_tools ;;
  serve | run) [ -n "${2:-}" ] || { echo "give the ADDRESS of the first host on the fast network" >&2; exit 2; }
    "$1" "${@:2}" ;;
  compare) compare_rates "${2:-}" "${3:-}" "${4:-}" ;;
  *) sed -n '2,9p' "$0" | cut -c3- >&2; exit 2 ;;
esac
exit "$bad"
