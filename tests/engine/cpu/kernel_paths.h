// The paths on which tests run kernels: those of this machine, and all paths beyond AVX2 emulated,
// so that the text of every kernel of linear layers, attention and norms runs on every machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/cpu_kernels.h"
#include "engine/cpu/linear/linear_tables.h"

namespace baton {

struct KernelPath {
  std::string name;  // "avx2", "emulated amx"
  CpuKernels kernels;
  const AttentionTileKernels* attention_tile;  // the tile kernels inside kernels.attention
};

// Returns all paths, AVX2 first. CHECKs that this machine's paths pass their self-test.
std::vector<KernelPath> KernelPaths();
// Returns "emulated avx512" (of machines without VNNI), "... avx512bf16" (with VNNI) and "... amx".
std::vector<KernelPath> EmulatedPaths();

// Returns KernelPaths, and each path with tiles again for each form of its kernels
// (linear_form.h), with that form for all rows. Only linear layers differ.
std::vector<KernelPath> LinearPaths();

// Returns the linear kernels of this machine's paths and of the emulated paths.
std::vector<LinearKernelSet> LinearSets();

// Returns element-wise kernels of the emulated paths.
const ElementwiseKernels& EmulatedElementwise();

}  // namespace baton
