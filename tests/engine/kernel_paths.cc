#include "engine/kernel_paths.h"

#include <utility>

#include "common/check.h"
#include "engine/cpu/elementwise_table.h"
#include "engine/cpu/linear_tables.h"
#include "engine/emulated_kernels.h"

namespace baton {
namespace {

KernelPath EmulatedPath(Isa isa, const LinearKernelSet& linear,
                        const AttentionTileKernels& attention) {
  return {
      "emulated " + std::string(IsaName(isa)),
      {MakeLinearKernelsOf(isa, linear), MakeAttentionKernelsOf(attention), &EmulatedElementwise()},
      &attention};
}

}  // namespace

const ElementwiseKernels& EmulatedElementwise() {
  static const ElementwiseKernels kernels = ElementwiseKernelsOf<EmulatedElementwiseRows>();
  return kernels;
}

std::vector<KernelPath> EmulatedPaths() {
  std::vector<KernelPath> paths;
  paths.push_back(EmulatedPath(Isa::kAvx512,
                               {{&kEmulatedAvx512}, {&kEmulatedInt8Avx512}, {&kEmulatedInt4Avx512}},
                               kEmulatedAttentionAvx512));
  paths.push_back(EmulatedPath(Isa::kAvx512Bf16,
                               {{&kEmulatedAvx512Bf16}, {&kEmulatedInt8Vnni}, {&kEmulatedInt4Vnni}},
                               kEmulatedAttentionAvx512Bf16));
  paths.push_back(EmulatedPath(Isa::kAmx,
                               {{&kEmulatedAvx512, &kEmulatedAmx},
                                {&kEmulatedInt8Vnni, &kEmulatedInt8Amx},
                                {&kEmulatedInt4Vnni, &kEmulatedInt4Amx}},
                               kEmulatedAttentionAmx));
  return paths;
}

std::vector<KernelPath> KernelPaths() {
  RequestAmxPermission();
  std::vector<KernelPath> paths;
  for (const Isa isa : SupportedIsas()) {
    auto linear = MakeLinearKernels(isa);
    CHECK(linear.ok());
    paths.push_back({std::string(IsaName(isa)),
                     {*std::move(linear), MakeAttentionKernels(isa), &GetElementwiseKernels(isa)},
                     &AttentionTileKernelsOf(isa)});
  }
  if (HasVnni()) {  // the kernels of machines without it too
    paths.push_back(
        {"avx512 without vnni",
         {MakeLinearKernelsOf(Isa::kAvx512, {{&kLinearAvx512}, {&kInt8Avx512}, {&kInt4Avx512}}),
          MakeAttentionKernels(Isa::kAvx512), &GetElementwiseKernels(Isa::kAvx512)},
         &kAttentionTileAvx512});
  }
  for (KernelPath& path : EmulatedPaths()) paths.push_back(std::move(path));
  return paths;
}

}  // namespace baton
