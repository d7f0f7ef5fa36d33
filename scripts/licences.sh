#!/usr/bin/env bash
# Checks the licences of all that Baton links: of crates by cargo-deny (text/ffi/deny.toml), of Debian
# packages by their copyright files (scripts/licences/debian_packages.toml). Prints what it saw; fails for a
# licence that is not in these lists. Needs the release build.
#   scripts/licences.sh             the check that scripts/test.sh makes
#   scripts/licences.sh sbom FILE   writes a bill of materials (CycloneDX, JSON) instead
#   scripts/licences.sh advisories  known faults of crates instead, by RustSec's database (a network)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require cargo dpkg-query ldd ninja

folder=$PWD/build/licences
if ! cmp -s scripts/licences/requirements.txt "$folder/pins"; then
  install_python "$folder" scripts/licences/requirements.txt
  cp scripts/licences/requirements.txt "$folder/pins"
fi
deny=("$folder/venv/bin/cargo-deny" --manifest-path text/ffi/Cargo.toml --locked)
if [ "${arguments[0]:-}" = advisories ]; then
  exec "${deny[@]}" check advisories
fi
if [ "${arguments[0]:-}" = sbom ]; then
  exec "$folder/venv/bin/python" scripts/licences/sbom.py "$(dirname "$baton")" "$baton" text/ffi/Cargo.toml \
    "${arguments[1]}"
fi
echo "crates:"
"${deny[@]}" list
"${deny[@]}" check licenses
echo "packages:"
"$folder/venv/bin/python" scripts/licences/debian_packages.py "$(dirname "$baton")" "$baton"
