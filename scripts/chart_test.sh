#!/usr/bin/env bash
# The Helm chart (deploy/helm/baton): lint, a rendering for every value, refused values, strict schemas of Kubernetes
# and of the CRDs, and the rendered processes on this machine (tests/chart). helm and kubeconform are built from the Go
# module proxy once; schemas come from the modules of the same versions.
#   scripts/chart_test.sh [--baton FILE]         all tests; build/release/baton if not told
#   scripts/chart_test.sh Rendered.test_...      some of them: the arguments are unittest's
#   scripts/chart_test.sh render                 writes deploy/manifests anew
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
. scripts/go_tools.sh
require python3 openssl curl
require_go

kubernetes=1.34.4
go_program helm helm.sh/helm/v3/cmd/helm@v3.19.0 "-X helm.sh/helm/v3/internal/version.version=v3.19.0
  -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
if [ "${arguments[0]:-}" = render ]; then
  exec python3 -B tests/chart/manifests.py --helm "$helm" --write
fi
go_program kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

modules=(
  "k8s.io/kubernetes@v$kubernetes"
  github.com/prometheus-operator/prometheus-operator@v0.85.0
  github.com/kedacore/keda/v2@v2.21.0
  sigs.k8s.io/gateway-api-inference-extension@v1.1.0
  github.com/cert-manager/cert-manager@v1.18.2
)
schemas=$go_cache/schemas-$({ printf '%s\n' "${modules[@]}"; cat tests/chart/schemas.py; } | sha256sum | cut -c1-16)
if [ ! -d "$schemas" ]; then
  folders=()
  for module in "${modules[@]}"; do
    folder=$(go_module "$module")
    folders+=("$folder")
  done
  python3 -B tests/chart/schemas.py "$schemas" "${folders[@]}"
fi
exec python3 -B tests/chart/chart_test.py --baton "$baton" --helm "$helm" --kubeconform "$kubeconform" \
  --schemas "$schemas" "${arguments[@]}"
