#!/usr/bin/env bash
# The Helm chart on a real Kubernetes: etcd, control plane, DNS and nodes with containerd run in boxes of namespaces on
# this machine (tests/cluster); the chart is installed there, workers are scaled, restarted and killed under load. The
# programs are built once from the Go module proxy, six minutes on two cores, and kept in the user's cache folder.
# Root only; three minutes; nothing is left.
#   scripts/cluster_test.sh [--baton FILE]           all cases; build/release/baton if not told
#   scripts/cluster_test.sh --seconds 60             as long a load beside restarts: 2,000 requests and more
#   scripts/cluster_test.sh Chart.test_...           some of them: further arguments are unittest's
# Ends with 77 where it cannot run, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
. scripts/go_tools.sh

not_run() {
  echo "cluster_test did not run: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || not_run "it makes namespaces and control groups, which needs root"
[ -d /sys/fs/cgroup/memory ] || not_run "nodes need control groups of version 1 here"
for tool in containerd ctr runc iptables conntrack ip openssl curl gcc python3 prometheus; do
  command -v "$tool" >/dev/null || not_run "no $tool here; run scripts/packages.sh cluster"
done
require_go

# One program with all components: they share most of their code.
version=1.34.4
source=tests/cluster/kube
programs=$go_cache/kube-$(cat $source/main.go $source/go.mod $source/go.sum | sha256sum | cut -c1-12)-$(go env GOVERSION)
if [ ! -x "$programs/kube" ]; then
  echo "building Kubernetes $version (once)"
  rm -rf "$programs.new"
  mkdir -p "$programs.new"
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=34"
  done
  CGO_ENABLED=0 GOFLAGS= go build -C $source -p 2 -trimpath -tags providerless -ldflags "$flags" -o "$programs.new/kube" . \
    >"$programs.new/log" 2>&1 || { tail -20 "$programs.new/log" >&2; no_go_modules Kubernetes; }
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl coredns; do
    ln -s kube "$programs.new/$name"
  done
  mv "$programs.new" "$programs"  # whole, or not there
fi
go_program helm helm.sh/helm/v3/cmd/helm@v3.19.0 "-X helm.sh/helm/v3/internal/version.version=v3.19.0
  -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
go_module_program adapter sigs.k8s.io/prometheus-adapter@v0.12.0 ./cmd/adapter
exec python3 -B tests/cluster/cluster_test.py --programs "$programs" --helm "$helm" --adapter "$adapter" \
  --baton "$baton" "${arguments[@]}"
