#include "tests/engine/cpu/kernel_paths.h"

#include <utility>

#include "common/check.h"
#include "engine/cpu/linear/linear_tables.h"
#include "engine/cpu/rows/elementwise_table.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {
namespace {

KernelPath EmulatedPath(Isa isa, const LinearKernelSet& linear,
                        const AttentionTileKernels& attention) {
  return {
      "emulated " + std::string(IsaName(isa)),
      {MakeLinearKernelsOf(isa, linear), MakeAttentionKernelsOf(attention), &EmulatedElementwise()},
      &attention};
}

LinearKernelSet EmulatedAvx512Set() {
  return {{&kEmulatedAvx512}, {&kEmulatedInt8Avx512}, {&kEmulatedInt4Avx512}};
}
LinearKernelSet EmulatedAvx512Bf16Set() {
  return {{&kEmulatedAvx512Bf16},
          {&kEmulatedInt8VnniZen},
          {&kEmulatedInt4VnniZen},
          ItemOrder::kInParts};
}
LinearKernelSet EmulatedAmxSet() {
  return {
      {&kEmulatedAmxVectors, &kEmulatedAmxStream, &kEmulatedAmxRowsInL2, &kEmulatedAmxWeightsInL2},
      {&kEmulatedInt8Vnni, &kEmulatedInt8AmxStream, &kEmulatedInt8AmxRowsInL2,
       &kEmulatedInt8AmxWeightsInL2},
      {&kEmulatedInt4Vnni, &kEmulatedInt4AmxStream, &kEmulatedInt4AmxRowsInL2,
       &kEmulatedInt4AmxWeightsInL2}};
}

// Returns the set in which `form` serves all rows; for a type without this form, the next form.
LinearKernelSet SetOfForm(const LinearKernelSet& set, LinearForm form) {
  const auto tables = [&](const LinearKernelSet::Tables& all) {
    size_t i = static_cast<size_t>(form);
    while (all[i] == nullptr) ++i;
    LinearKernelSet::Tables same;
    same.fill(all[i]);
    return same;
  };
  return {tables(set.bf16), tables(set.int8), tables(set.int4), set.order};
}

}  // namespace

const ElementwiseKernels& EmulatedElementwise() {
  static const ElementwiseKernels kernels = ElementwiseKernelsOf<EmulatedElementwiseRows>();
  return kernels;
}

std::vector<KernelPath> EmulatedPaths() {
  std::vector<KernelPath> paths;
  paths.push_back(EmulatedPath(Isa::kAvx512, EmulatedAvx512Set(), kEmulatedAttentionAvx512));
  paths.push_back(
      EmulatedPath(Isa::kAvx512Bf16, EmulatedAvx512Bf16Set(), kEmulatedAttentionAvx512Bf16));
  paths.push_back(EmulatedPath(Isa::kAmx, EmulatedAmxSet(), kEmulatedAttentionAmx));
  return paths;
}

std::vector<LinearKernelSet> LinearSets() {
  RequestAmxPermission();
  std::vector<LinearKernelSet> sets = {EmulatedAvx512Set(), EmulatedAvx512Bf16Set(),
                                       EmulatedAmxSet()};
  for (const Isa isa : SupportedIsas()) sets.push_back(KernelSetOf(isa));
  return sets;
}

std::vector<KernelPath> LinearPaths() {
  std::vector<KernelPath> paths = KernelPaths();
  for (const LinearForm form : {LinearForm::kVectors, LinearForm::kTileStream,
                                LinearForm::kRowsInL2, LinearForm::kWeightsInL2}) {
    const std::string name = ", " + std::string(LinearFormName(form));
    paths.push_back(
        EmulatedPath(Isa::kAmx, SetOfForm(EmulatedAmxSet(), form), kEmulatedAttentionAmx));
    paths.back().name += name;
    if (!CheckIsaSupported(Isa::kAmx).ok()) continue;
    const LinearKernelSet set = SetOfForm(KernelSetOf(Isa::kAmx), form);
    paths.push_back({"amx" + name,
                     {MakeLinearKernelsOf(Isa::kAmx, set), MakeAttentionKernels(Isa::kAmx),
                      &GetElementwiseKernels(Isa::kAmx)},
                     &kAttentionTileAmx});
  }
  return paths;
}

std::vector<KernelPath> KernelPaths() {
  RequestAmxPermission();
  std::vector<KernelPath> paths;
  for (const Isa isa : SupportedIsas()) {
    auto linear = MakeLinearKernels(isa);
    BATON_CHECK(linear.ok());
    paths.push_back({std::string(IsaName(isa)),
                     {*std::move(linear), MakeAttentionKernels(isa), &GetElementwiseKernels(isa)},
                     &AttentionTileKernelsOf(isa)});
  }
  if (HasVnni()) {  // with the kernels of machines without VNNI, too
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
