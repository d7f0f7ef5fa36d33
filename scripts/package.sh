#!/usr/bin/env bash
# Makes the packages of the release build: build/packages/baton_VERSION_amd64.deb and a tarball, each with its sha256,
# and the bill of materials that is in both.
#   scripts/package.sh [--baton FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require cmake cpack dpkg-shlibdeps
scripts/licences.sh --baton "$baton" sbom "$(dirname "$baton")/sbom.cdx.json"
rm -rf build/packages
cmake -S . -B "$(dirname "$baton")" -DCMAKE_MESSAGE_LOG_LEVEL=WARNING
for kind in DEB TGZ; do
  cpack --config "$(dirname "$baton")/CPackConfig.cmake" -G "$kind" -B build/packages
done
rm -rf build/packages/_CPack_Packages
ls -l build/packages
