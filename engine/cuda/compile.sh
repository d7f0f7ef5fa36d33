#!/bin/sh
# Compiles one unit of kernels for Hopper: compile.sh NVCC ROOT SOURCE OBJECT. Used by CMake and by tools/gpu_check.sh.
# Beside OBJECT lie OBJECT.d (its headers) and OBJECT.ptxas, what the assembler says of each kernel, which
# scripts/cuda_resources.py reads. -gencode and not -arch: only so are wgmma and setmaxnreg there. -fmad=false: nothing
# is contracted that the source does not contract.
set -eu
nvcc=$1 root=$2 source=$3 object=$4
"$nvcc" -std=c++20 -O3 -fmad=false -gencode arch=compute_90a,code=sm_90a -I "$root" -Xcompiler -fPIC,-Wall \
  -Xptxas -v,-warn-spills,-warn-lmem-usage -MD -MF "$object.d" -MT "$object" -c "$source" -o "$object" \
  2>"$object.ptxas" || { cat "$object.ptxas" >&2; exit 1; }
