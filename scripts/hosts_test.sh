#!/usr/bin/env bash
# A cluster of four hosts on one machine: network namespaces on a bridge, a router, a prefill and two
# decode workers with the demo model, mutual TLS between them. It chats, kills workers, changes all
# certificates, cuts a link and heals it, lets strangers knock, and looks for the prompt's tokens in
# what it captured of the control port. About half a minute; root only.
#   scripts/hosts_test.sh [--baton FILE]      build/release/baton if not told
# Ends with 77 where it cannot run, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
baton=$PWD/build/release/baton
[ "${1:-}" = --baton ] && baton=$(realpath "$2")

not_run() {
  echo "hosts_test did not run: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || not_run "it makes network namespaces, which needs root"
for tool in ip tcpdump openssl curl python3; do
  command -v "$tool" >/dev/null || not_run "no $tool here; run scripts/packages.sh"
done
[ -x "$baton" ] || not_run "no $baton; build it: ninja -C build/release baton"

# --- the lab -------------------------------------------------------------------------------------

space=bh$$
folder=$(mktemp -d)
started=()  # process ids
declare -A pid_of=()

clean() {
  local status=$? host
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then tail -n 25 "$folder"/*.log >&2 || true; fi
  for pid in "${started[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for host in switch router prefill0 decode0 decode1; do ip netns del "$space-$host" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM

ip netns add "$space-switch" 2>"$folder/why" || not_run "no network namespaces here: $(cat "$folder/why")"
ip -n "$space-switch" link add lan0 type bridge 2>"$folder/why" || not_run "no bridges here: $(cat "$folder/why")"
ip -n "$space-switch" link set lan0 up
number=0
for host in router prefill0 decode0 decode1; do
  number=$((number + 1))
  ip netns add "$space-$host"
  ip -n "$space-$host" link add eth0 type veth peer name "to-$host" netns "$space-switch"
  ip -n "$space-switch" link set "to-$host" master lan0 up
  ip -n "$space-$host" addr add "10.77.0.$number/24" dev eth0
  ip -n "$space-$host" link set lo up
  ip -n "$space-$host" link set eth0 up
done
address_of() { ip -n "$space-$1" -4 -o addr show dev eth0 | awk '{ sub("/.*", "", $4); print $4 }'; }
router=$(address_of router)

on() {  # on HOST COMMAND...
  ip netns exec "$space-$1" "${@:2}"
}
start() {  # start NAME HOST COMMAND...: in the background, with a log of its own
  # Namespaces share memory, by which UCX would go round the network.
  ip netns exec "$space-$2" env UCX_TLS=tcp "${@:3}" >>"$folder/$1.log" 2>&1 &
  pid_of[$1]=$!
  started+=($!)
}
stop_hard() {
  kill -9 "${pid_of[$1]}"
  wait "${pid_of[$1]}" 2>/dev/null || true
}
fail() {
  echo "hosts_test: $1" >&2
  exit 1
}
await() {  # await WHAT COMMAND...: until the command succeeds, at most 60 s
  local end=$((SECONDS + 60))
  until "${@:2}" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "waited in vain: $1"
    sleep 0.1
  done
}

# --- certificates: docs/SECURITY.md says the same -----------------------------------------------------

authority() {  # authority NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" \
    -keyout "$folder/$1.key" -out "$folder/$1.pem" 2>/dev/null
}
certificate() {  # certificate AUTHORITY CLUSTER ROLE FILE
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$3" \
    -keyout "$folder/new.key" -out "$folder/new.csr" 2>/dev/null
  openssl x509 -req -in "$folder/new.csr" -CA "$folder/$1.pem" -CAkey "$folder/$1.key" -CAcreateserial -days 30 \
    -extfile <(echo "subjectAltName=URI:baton://$2/$3") -out "$folder/new.pem" 2>/dev/null
  chmod 600 "$folder/new.key"
  mv "$folder/new.key" "$folder/$4.key"
  mv "$folder/new.pem" "$folder/$4.pem"
}
tls() {  # tls FILE: the flags
  echo --cluster.tls_cert "$folder/$1.pem" --cluster.tls_key "$folder/$1.key" --cluster.tls_ca "$folder/trusted.pem"
}
authority first
cp "$folder/first.pem" "$folder/trusted.pem"
for role in router prefill decode; do certificate first blue "$role" "$role"; done
certificate first green decode stranger
(umask 077 && openssl rand -hex 32 >"$folder/key")

# --- the cluster -----------------------------------------------------------------------------------

common=(--demo --cluster.key_file "$folder/key" --model.weight_cache "$folder/cache" --decode.threads 1
  --prefill.threads 1 --router.worker_silence 2s)
start_worker() {  # start_worker ROLE NAME
  # shellcheck disable=SC2046
  start "$2" "$2" "$baton" "$1" "${common[@]}" $(tls "$1") --cluster.router "$router:7001" \
    --cluster.worker_name "$2" --cluster.worker_host "$(address_of "$2")"
}
api() {  # api PATH [CURL ARGUMENT...]
  on router curl -sS --fail --max-time 30 "http://127.0.0.1:8000$1" "${@:2}"
}
metric() { api /metrics | awk -v name="$1" 'index($1, name) == 1 { sum += $NF } END { print sum + 0 }'; }
workers_are() { [ "$(metric baton_workers\{)" = "$1" ]; }
log_has() { grep -q "$2" "$folder/$1.log"; }

prompt='Zanzibar 7351 crosses the quiet harbour while eleven violet lanterns burn. Tell what happens:'
ask() {  # ask: prints the answer's tokens
  api /v1/completions -H 'Content-Type: application/json' \
    -d "{\"prompt\": \"$prompt\", \"max_tokens\": 400, \"temperature\": 0, \"ignore_eos\": true, \"return_token_ids\": true}" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["token_ids"])'
}
keep_asking() {  # until the file "enough" is there; counts answers that are not `expected`
  local asked=0 wrong=0 answer
  until [ -e "$folder/enough" ]; do
    answer=$(ask 2>&1) || true
    asked=$((asked + 1))
    [ "$answer" = "$expected" ] || { wrong=$((wrong + 1)); echo "$answer" >>"$folder/wrong.log"; }
  done
  echo "$asked $wrong" >"$folder/asked"
}
step() { printf '%5.1f s  %s\n' "$(awk -v a="$EPOCHREALTIME" -v b="$begin" 'BEGIN { print a - b }')" "$1"; }
begin=$EPOCHREALTIME

start capture router tcpdump -i eth0 -Z root --immediate-mode -U -w "$folder/control.pcap" tcp port 7001
# shellcheck disable=SC2046
start router router "$baton" router "${common[@]}" $(tls router) --router.control "$router:7001" --port 8000 \
  --prefill 1 --decode 2
start_worker prefill prefill0
start_worker decode decode0
start_worker decode decode1
await "three workers" workers_are 3
step "three workers joined over mutual TLS"

expected=$(ask)
[ ${#expected} -gt 800 ] || fail "no answer: $expected"
step "an answer of 400 tokens"

keep_asking &
asking=$!
started+=("$asking")
for victim in decode0 decode1; do
  sleep 0.3
  stop_hard "$victim"
  await "$victim is lost" workers_are 2
  start_worker decode "$victim"
  await "$victim is back" workers_are 3
done
step "two workers killed and started again under requests"

# All get new certificates of a new authority: first both are trusted, then the new certificates come.
authority second
cat "$folder/first.pem" "$folder/second.pem" >"$folder/both.pem"
mv "$folder/both.pem" "$folder/trusted.pem"
await "the router reads the authorities" log_has router "certificate .* read again"
for role in router prefill decode; do certificate second blue "$role" "$role"; done
cp "$folder/second.pem" "$folder/only.pem"
mv "$folder/only.pem" "$folder/trusted.pem"
stop_hard decode1
await "decode1 is lost" workers_are 2
start_worker decode decode1
await "decode1 joins with the new authority alone" workers_are 3
workers_are 3 || fail "streams were lost by new certificates"
step "certificates and authority changed under requests"

ip -n "$space-decode0" link set eth0 down
await "decode0 is lost" workers_are 2
ip -n "$space-decode0" link set eth0 up
await "decode0 is back" workers_are 3
step "a link cut and healed under requests"

touch "$folder/enough"
wait "$asking"
read -r asked wrong <"$folder/asked"
[ "$asked" -gt 4 ] || fail "only $asked requests went through the faults"
[ "$wrong" -eq 0 ] || fail "$wrong of $asked answers were not the same: $(head -c 300 "$folder/wrong.log")"
step "$asked requests meanwhile, all with the same answer"

# --- strangers ---------------------------------------------------------------------------------------

certificate second green decode stranger
# shellcheck disable=SC2046
start stranger decode1 "$baton" decode "${common[@]}" $(tls stranger) --cluster.router "$router:7001" \
  --cluster.worker_name stranger --cluster.worker_host "$(address_of decode1)"
on decode1 openssl s_client -connect "$router:7001" -alpn h2 </dev/null >/dev/null 2>&1 || true
refused() { [ "$(metric "baton_workers_refused_total{reason=\"$1\"")" -ge 1 ]; }
await "a worker of another cluster is counted" refused other_cluster
await "a peer without a certificate is counted" refused no_certificate
log_has router "(other_cluster).*green, not blue" || fail "the router's log does not name the stranger"
workers_are 3 || fail "a stranger joined, or a worker was lost"
[ "$(ask)" = "$expected" ] || fail "a stranger changed the answer"
step "a worker of another cluster and one without a certificate refused by name"

# --- the capture ---------------------------------------------------------------------------------------

# The same request over a plain control stream, which must be readable: else this test could not fail.
start plain_capture router tcpdump -i lo -Z root --immediate-mode -U -w "$folder/plain.pcap" tcp port 7002
# shellcheck disable=SC2046
start plain_router router "$baton" router "${common[@]}" --router.control 127.0.0.1:7002 --port 8001
start plain_worker router "$baton" decode "${common[@]}" --colocated --cluster.router 127.0.0.1:7002 \
  --cluster.worker_name plain
plain_ask() {
  on router curl -sS --fail --max-time 30 http://127.0.0.1:8001/v1/completions -H 'Content-Type: application/json' \
    -d "{\"prompt\": \"$prompt\", \"max_tokens\": 4, \"temperature\": 0}"
}
await "an answer over plain text" plain_ask
api /tokenize -H 'Content-Type: application/json' -d "{\"prompt\": \"$prompt\"}" >"$folder/tokens.json"
sleep 0.5
for name in capture plain_capture; do
  kill "${pid_of[$name]}"
  wait "${pid_of[$name]}" 2>/dev/null || true
done
python3 - "$folder" <<'PYTHON'
import json, sys

folder = sys.argv[1]
tokens = json.load(open(folder + "/tokens.json"))["tokens"]

def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])

# Any six tokens in a row, as the control wire packs them, and the names of the wire's calls.
marks = [b"".join(map(varint, tokens[i : i + 6])) for i in range(len(tokens) - 5)]
def found(name):
    data = open(f"{folder}/{name}.pcap", "rb").read()
    return len(data), sum(mark in data for mark in marks), b"baton.wire.Control" in data

plain, control = found("plain"), found("control")
print(f"{'':9}{len(marks)} marks of the prompt: {plain[1]} in {plain[0]:,} plain bytes, "
      f"{control[1]} in {control[0]:,} bytes of the TLS control port")
assert plain[1] > 0, "the plain capture shows no token: this test cannot fail"
assert control[0] > 100_000, "nothing was captured of the control port"
assert control[1] == 0 and not control[2], "plain text on the control port"
PYTHON
step "no token of the prompt on the control port"
echo "hosts_test passed"
