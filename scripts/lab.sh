#!/usr/bin/env bash
# A cluster on six hosts made of network namespaces: two routers, two prefill and two decode workers with the demo
# model, mutual TLS between routers and workers (tests/lab). Workers are killed, links cut by black holes and slowed,
# certificates changed, strangers knock, routers and workers restart, and what is on the control port is captured.
# Root only; three minutes; nothing is left, also after SIGTERM or SIGKILL.
#   scripts/lab.sh [--baton FILE]        all cases; build/release/baton if not told
#   scripts/lab.sh --slice               those of scripts/test.sh: half a minute
#   scripts/lab.sh --requests 5000 Lab.test_workers_are_upgraded_one_by_one   restarts until so many are answered
#   scripts/lab.sh --old FILE            two builds, an older one and this one: workers are exchanged under load
#   scripts/lab.sh Lab.test_...          some of them: further arguments are unittest's
# Ends with 77 where it cannot run, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh

not_run() {
  echo "lab did not run: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || not_run "its hosts are network namespaces, which need root"
for tool in ip tc bridge tcpdump openssl python3 unshare setpriv; do
  command -v "$tool" >/dev/null || not_run "no $tool here; run scripts/packages.sh"
done
spaces=(unshare --mount --net --pid --fork --kill-child --mount-proc)
why=$("${spaces[@]}" sh -c 'mount -t tmpfs lab /run && ip netns add host && ip link add lan0 type bridge &&
  ip link add to-host type veth peer name eth0 netns host && tc -n host qdisc add dev eth0 clsact &&
  tc -n host qdisc add dev eth0 root tbf rate 1gbit burst 128kb latency 50ms && ip netns exec host true' 2>&1) ||
  not_run "no network namespaces with bridges and tc here: $why"

# All processes, networks and files of the lab are in namespaces of its own, whose first process is the test: they end
# with it. It ends with the shell, and the shell at a signal.
setpriv --pdeathsig KILL "${spaces[@]}" sh -c 'mount -t tmpfs lab /run && ip link set lo up && mkdir /run/lab &&
  exec python3 -B tests/lab/lab_test.py --folder /run/lab --baton "$@"' sh "$baton" "${arguments[@]}" &
lab=$!
trap 'kill -KILL $lab 2>/dev/null || true' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
wait $lab
echo "lab: all cases have passed"
