#!/usr/bin/env bash
# The Helm chart on a real Kubernetes: etcd, control plane, DNS and nodes with containerd run in boxes of namespaces on
# this machine (tests/cluster); the chart is installed there, workers are scaled, restarted and killed under load. The
# programs are built once from the Go module proxy, six minutes on two cores, and kept in the user's cache folder.
# Root only; five minutes; nothing is left.
#   scripts/cluster_test.sh [--baton FILE]           all cases; build/release/baton if not told
#   scripts/cluster_test.sh --light                  the chart against etcd and API server alone: no pod runs; any user
#   scripts/cluster_test.sh --slice                  no killed node and no scaling by metrics, which wait longest
#   scripts/cluster_test.sh --any                    that slice where the programs are in the cache and the machine can,
#                                                    else light, built within eight minutes; as scripts/test.sh does
#   scripts/cluster_test.sh --requests 2000          scales and restarts workers until so many are answered beside each
#   scripts/cluster_test.sh Chart.test_...           some of them: further arguments are unittest's
# Says which of both runs. Ends with 77 where it cannot run, with 3 where programs cannot be had, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
. scripts/go_tools.sh

mode=whole
case "${arguments[0]:-}" in
  --light | --any)
    mode=${arguments[0]#--}
    arguments=("${arguments[@]:1}") ;;
esac
say() { echo "cluster_test: $1"; }
not_run() {
  say "did not run: $1" >&2
  exit 77
}
why_no_nodes() {  # prints why nodes cannot run on this machine; nothing: they can
  local tool
  [ "$(id -u)" -eq 0 ] || { echo "nodes are namespaces and control groups, which need root"; return; }
  [ -w /sys/fs/cgroup/memory ] || { echo "nodes need control groups of version 1, which may be written"; return; }
  unshare --mount --pid --net --uts --ipc --cgroup --fork true 2>/dev/null ||
    { echo "nodes need namespaces, which are not allowed here"; return; }
  for tool in containerd ctr runc iptables conntrack ip gcc prometheus; do
    command -v "$tool" >/dev/null || { echo "no $tool here; run scripts/packages.sh cluster"; return; }
  done
}
for tool in openssl curl python3; do
  command -v "$tool" >/dev/null || not_run "no $tool here; run scripts/packages.sh"
done
require_go

version=1.34.4
source=tests/cluster/kube
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=34"
done
named() {  # FILE...: a folder's name by its sources
  echo "$(cat "$@" | sha256sum | cut -c1-12)-$(go env GOVERSION)"
}
# build FOLDER SECONDS PACKAGE...: programs of the module in $source; into FOLDER.new
build() {
  local folder=$1.new seconds=$2 rc=0
  shift 2
  rm -rf "$folder"
  mkdir -p "$folder"
  # First the sources: where they do not come nothing is wrong here, as it is if they do not compile.
  GOFLAGS= timeout 300 go list -C $source -deps -tags providerless "$@" >"$folder/log" 2>&1 ||
    { tail -20 "$folder/log" >&2; no_go_modules Kubernetes; }
  CGO_ENABLED=0 GOFLAGS= timeout "$seconds" go build -C $source -p 2 -trimpath -tags providerless -ldflags "$flags" \
    -o "$folder/" "$@" >"$folder/log" 2>&1 || rc=$?
  [ $rc -ne 124 ] || not_run "Kubernetes was not built within $seconds seconds"
  [ $rc -eq 0 ] || { tail -20 "$folder/log" >&2; exit 1; }
}

programs=$go_cache/kube-$(named $source/main.go $source/go.mod $source/go.sum)
light=$go_cache/kube-light-$(named $source/go.mod $source/go.sum)
problem=$(why_no_nodes)
if [ $mode = whole ] && [ -n "$problem" ]; then not_run "$problem"; fi
if [ $mode = any ] && [ -z "$problem" ] && [ ! -x "$programs/kube" ]; then
  problem="the programs of nodes are not in $go_cache, and building them takes too long here"
fi

if [ $mode = light ] || [ -n "$problem" ]; then
  say "light mode, etcd and API server without nodes${problem:+, because $problem}"
  # One program with all components is there, or three are built, which takes half as long.
  if [ -x "$programs/kube" ]; then light=$programs; fi
  if [ ! -x "$light/kube-apiserver" ]; then
    say "building etcd, kube-apiserver and kubectl $version (once)"
    if [ $mode = any ]; then limit=480; else limit=3600; fi
    build "$light" $limit k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl go.etcd.io/etcd/server/v3
    mv "$light.new/server" "$light.new/etcd"
    mv "$light.new" "$light"  # whole, or not there
  fi
  chart_helm
  chart_schemas
  python3 -B tests/cluster/light_test.py --programs "$light" --helm "$helm" --schemas "$schemas" "${arguments[@]}"
  say "light mode has passed, etcd and API server without nodes${problem:+, because $problem}"
  exit 0
fi

say "whole clusters, of programs in $programs"
# One program with all components: they share most of their code.
if [ ! -x "$programs/kube" ]; then
  say "building Kubernetes $version (once)"
  build "$programs" 3600 .
  mv "$programs.new/cluster" "$programs.new/kube"  # the name of its module
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl coredns; do
    ln -s kube "$programs.new/$name"
  done
  mv "$programs.new" "$programs"
fi
chart_helm
if [ $mode = any ]; then arguments+=(--slice); fi
left_out=
if [[ " ${arguments[*]} " = *" --slice "* ]]; then
  left_out=", but for a killed node and scaling by metrics, not run here"
fi
go_module_program adapter sigs.k8s.io/prometheus-adapter@v0.12.0 ./cmd/adapter
python3 -B tests/cluster/cluster_test.py --programs "$programs" --helm "$helm" --adapter "$adapter" \
  --baton "$baton" "${arguments[@]}"
say "the cases of whole clusters have passed$left_out"
