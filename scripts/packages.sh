#!/usr/bin/env bash
# Installs the missing Debian packages that the build and the tests need. Safe to run again.
# scripts/packages.sh build  those of the build and of scripts/package.sh alone.
# scripts/packages.sh fuzz   also those of scripts/fuzz.sh.
# scripts/packages.sh cluster  also those of scripts/cluster_test.sh.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache mold pkg-config git patch python3 python3-venv ca-certificates
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev libucx-dev
  prometheus-cpp-dev libyaml-cpp-dev catch2 libboost1.81-dev libboost-json1.81-dev
  libboost-system1.81-dev libssl-dev libcli11-dev libxxhash-dev libisal-dev libzstd-dev zlib1g-dev libdnnl-dev libcurl4-openssl-dev
)
if [ "${1:-}" != build ]; then
  packages+=(
    clang-format-14 curl openssl iproute2 tcpdump chromium chromium-driver python3-selenium python3-yaml fonts-dejavu-core
    nginx-light haproxy libfaketime prometheus systemd
  )
fi
if [ "${1:-}" = fuzz ]; then packages+=(clang-19 libclang-rt-19-dev); fi
if [ "${1:-}" = cluster ]; then
  packages+=(containerd runc containernetworking-plugins iptables conntrack ethtool socat)
fi
# Any cargo from this version on works; Debian's plain rustc is older, rustc-web is not.
min_rust=1.87
have_rust=$(rustc --version 2>/dev/null | awk '{print $2}' || true)
if [ -z "$have_rust" ] || ! command -v cargo >/dev/null ||
   [ "$(printf '%s\n%s\n' "$min_rust" "$have_rust" | sort -V | head -1)" != "$min_rust" ]; then
  packages+=(rustc-web cargo-web)
fi
# Node.js of another source brings its npm along, which Debian's packages would not go with.
if [ "${1:-}" != build ] && { ! command -v node >/dev/null || ! command -v npm >/dev/null; }; then
  packages+=(nodejs npm)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "run as root, or: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
# Tests start these themselves, on ports of their own: the service that a package has begun ends.
for service in nginx haproxy prometheus; do
  case " ${missing[*]} " in
    *" $service "* | *" $service-light "*)
      if [ -d /run/systemd/system ]; then
        "${as_root[@]}" systemctl disable --now --quiet "$service"
      elif [ -x "/etc/init.d/$service" ]; then
        "${as_root[@]}" "/etc/init.d/$service" stop >/dev/null || true
      fi ;;
  esac
done
