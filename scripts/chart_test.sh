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

chart_helm
if [ "${arguments[0]:-}" = render ]; then
  exec python3 -B tests/chart/manifests.py --helm "$helm" --write
fi
go_program kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
chart_schemas
exec python3 -B tests/chart/chart_test.py --baton "$baton" --helm "$helm" --kubeconform "$kubeconform" \
  --schemas "$schemas" "${arguments[@]}"
