#!/usr/bin/env bash
# Fetches NVIDIA's CUDA compiler 13.0 from PyPI: seven wheels of scripts/cuda_tools.txt, 109 MB, held to their check
# sums, unpacked once into the user's cache folder where CMake finds them (cmake/cuda.cmake). No GPU, no root.
#   scripts/cuda_tools.sh        prints the folder, for BATON_CUDA_ROOT
# Exit status 3: the wheels do not come from PyPI, so nothing of CUDA can be built or checked; 1: another fault, such as a wrong
# check sum.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/baton-tools
pins=$PWD/scripts/cuda_tools.txt
folder=$cache/cuda-$(sha256sum "$pins" | cut -c1-12)

if [ ! -x "$folder/nvidia/cu13/bin/nvcc" ]; then
  echo "fetching CUDA 13.0 from PyPI (once, 109 MB)" >&2
  rm -rf "$folder" "$folder.new"
  mkdir -p "$folder.new/wheels"
  pip=(python3 -m pip)
  if ! "${pip[@]}" --version >/dev/null 2>&1; then  # Debian's python3 has none outside of environments
    python3 -m venv "$folder.new/venv"
    pip=("$folder.new/venv/bin/pip")
  fi
  "${pip[@]}" download --quiet --disable-pip-version-check --retries 2 --timeout 30 --no-deps --only-binary :all: \
    --require-hashes --dest "$folder.new/wheels" -r "$pins" >"$folder.new/log" 2>&1 || {
    tail -20 "$folder.new/log" >&2
    if grep -qi 'do not match the hashes' "$folder.new/log"; then
      echo "cuda_tools: a wheel of PyPI has not the check sum of scripts/cuda_tools.txt" >&2
      exit 1
    fi
    echo "cuda_tools: the wheels did not come from PyPI (see above), so nothing of CUDA can be built or checked" >&2
    exit 3
  }
  for wheel in "$folder.new/wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$folder.new"; done
  rm -rf "$folder.new/wheels" "$folder.new/venv" "$folder.new/log"
  chmod a+x "$folder.new"/nvidia/cu13/bin/* "$folder.new"/nvidia/cu13/nvvm/bin/*
  mv "$folder.new" "$folder"  # whole, or not there
fi
ln -sfn "$(basename "$folder")/nvidia/cu13" "$cache/cuda"  # where CMake looks
echo "$cache/cuda"
