#!/usr/bin/env bash
# From an empty Debian 12 machine to a first answer: installs missing packages, builds, and serves
# the demo model with a router, two prefill workers and one decode worker. Further arguments go to
# `baton serve`, for example: scripts/demo.sh --port 9000
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/stages.sh

stage "packages" scripts/packages.sh
configure() { [ -f build/release/build.ninja ] || cmake --preset release -DCMAKE_MESSAGE_LOG_LEVEL=WARNING; }
stage "configure" configure
stage "build" ninja -C build/release --quiet baton
exec build/release/baton serve --demo "$@"
