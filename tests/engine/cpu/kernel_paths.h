// The paths on which tests run kernels: those of this machine, and all beyond AVX2 emulated. So
// the text of every kernel of linear layers, attention and norms is run on every machine.
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
  const AttentionTileKernels* attention_tile;  // what kernels.attention is made of
};

// AVX2 first. CHECKs that this machine's own pass their self-test.
std::vector<KernelPath> KernelPaths();
// Emulated: "emulated avx512" (of machines without VNNI), "... avx512bf16" (with VNNI), "... amx".
std::vector<KernelPath> EmulatedPaths();

// KernelPaths, and those with tiles once more for each form of kernels (linear_form.h) that tiles
// have, which then serves all rows: linear layers alone differ.
std::vector<KernelPath> LinearPaths();

// The linear kernels of this machine's paths, and the emulated ones.
std::vector<LinearKernelSet> LinearSets();

// Element-wise kernels of the emulated paths.
const ElementwiseKernels& EmulatedElementwise();

}  // namespace baton
