# Sourced, in the root of the repository: functions that bring programs and files from the Go module proxy. They are
# kept by version in the user's cache folder, so that only the first run builds.
go_cache=${XDG_CACHE_HOME:-$HOME/.cache}/baton-tools

no_go_modules() {  # ends with 3: nothing was found wrong, and nothing tested
  echo "$(basename "$0" .sh): $1 did not come from the Go module proxy (see above), so nothing was tested" >&2
  exit 3
}
# require_go: a Go for helm and for the modules of scripts/chart_test.sh (keda's go.mod asks for 1.26). Debian 12's own
# (1.19) is too old; where there is no newer one, the proxy's, held to its check sum.
require_go() {
  local found oldest=go1.26 version=1.26.8 sum=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7
  found=$(go env GOVERSION 2>/dev/null) || found=go0
  [ "$(printf '%s\n%s\n' $oldest "$found" | sort -V | head -1)" != $oldest ] || return 0
  local folder="$go_cache/go-$version" module="golang.org/toolchain@v0.0.1-go$version.linux-amd64"
  local proxy=${GOPROXY:-}
  proxy=${proxy%%[,|]*}
  [[ $proxy =~ ^https?:// ]] || proxy=https://proxy.golang.org
  if [ ! -x "$folder/$module/bin/go" ]; then
    echo "fetching Go $version (once)"
    rm -rf "$folder" "$folder.new"
    mkdir -p "$folder.new"
    curl -sSfL --connect-timeout 20 --max-time 300 -o "$folder.new/go.zip" "${proxy%/}/${module/@//@v/}.zip" ||
      no_go_modules "Go $version"
    echo "$sum  $folder.new/go.zip" | sha256sum -c --quiet >&2 || no_go_modules "Go $version"
    python3 -m zipfile -e "$folder.new/go.zip" "$folder.new"
    chmod -R a+x "$folder.new/$module/bin" "$folder.new/$module/pkg/tool"
    rm "$folder.new/go.zip"
    mv "$folder.new" "$folder"  # whole, or not there
  fi
  PATH="$folder/$module/bin:$PATH"
  export PATH GOTOOLCHAIN=local
}
# go_program NAME PACKAGE@VERSION [LDFLAGS]: builds a program if it is not there, and sets the variable NAME to its path
go_program() {
  local folder="$go_cache/$1-${2##*@}-$(go env GOVERSION)"
  if [ ! -x "$folder/$1" ]; then
    echo "building $1 ${2##*@} (once)"
    mkdir -p "$folder"
    GOBIN=$folder CGO_ENABLED=0 GOFLAGS= timeout 600 go install -p 2 -trimpath -ldflags "-s -w ${3:-}" "$2" >"$folder/log" 2>&1 ||
      { tail -20 "$folder/log" >&2; no_go_modules "$1"; }
  fi
  printf -v "$1" %s "$folder/$1"
}
# go_module MODULE@VERSION: prints the folder of its files
go_module() {
  local folder
  folder=$(cd / && GOFLAGS=-mod=mod timeout 300 go mod download -json "$1" |
    python3 -c 'import json, sys; print(json.load(sys.stdin).get("Dir", ""))') || folder=
  [ -n "$folder" ] || no_go_modules "$1"
  echo "$folder"
}
# go_module_program NAME MODULE@VERSION PACKAGE: like go_program, with the requirements of the module's own go.mod
go_module_program() {
  local folder module
  folder="$go_cache/$1-${2##*@}-$(go env GOVERSION)"
  if [ ! -x "$folder/$1" ]; then
    echo "building $1 ${2##*@} (once)"
    module=$(go_module "$2")
    mkdir -p "$folder"
    CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -C "$module" -p 2 -trimpath -ldflags "-s -w" -o "$folder/$1" "$3" \
      >"$folder/log" 2>&1 || { tail -20 "$folder/log" >&2; no_go_modules "$1"; }
  fi
  printf -v "$1" %s "$folder/$1"
}
# chart_helm: sets `helm`, which knows the version of Kubernetes that the tests of the chart are for
chart_helm() {
  go_program helm helm.sh/helm/v3/cmd/helm@v3.19.0 "-X helm.sh/helm/v3/internal/version.version=v3.19.0
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
}
# chart_schemas: sets `schemas` to the folder that tests/chart/schemas.py writes of the kinds that the chart makes
chart_schemas() {
  local folder folders module modules=(
    k8s.io/kubernetes@v1.34.4
    github.com/prometheus-operator/prometheus-operator@v0.85.0
    github.com/kedacore/keda/v2@v2.21.0
    sigs.k8s.io/gateway-api-inference-extension@v1.1.0
    github.com/cert-manager/cert-manager@v1.18.2
  )
  schemas=$go_cache/schemas-$({ printf '%s\n' "${modules[@]}"; cat tests/chart/schemas.py; } | sha256sum | cut -c1-16)
  [ ! -d "$schemas" ] || return 0
  folders=()
  for module in "${modules[@]}"; do
    folder=$(go_module "$module")
    folders+=("$folder")
  done
  python3 -B tests/chart/schemas.py "$schemas" "${folders[@]}"
}
