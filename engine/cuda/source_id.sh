#!/bin/sh
# Prints the id of the sources of all that runs on a GPU: 16 hex digits. source_id.sh ROOT [FILE]: writes FILE, C++
# source with the id. Plugin, loader and check program carry it, so that no two of different sources
# meet (engine/cuda/plugin_abi.h).
set -eu
cd "$1"
id=$({ find engine/cuda engine/cuda/check -maxdepth 1 -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.h' -o -name '*.sh' | LC_ALL=C sort
  find engine/numerics -name '*.h' | LC_ALL=C sort
  echo scripts/cuda_tools.txt
} | xargs cat | sha256sum | cut -c1-16)
if [ $# -eq 1 ]; then
  echo "$id"
else
  printf '// Written by engine/cuda/source_id.sh.\n#include "engine/cuda/source_id.h"\n\nnamespace baton {\n%s\n}\n' \
    "const char kCudaSourceId[] = \"$id\";" >"$2"
fi
