#include "bench/relay/relay_clusters.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Sizes of a Llama whose KV heads equal its heads, fp16.
struct LlamaSize {
  const char* name;
  int n_layers;
  double hidden, ffn;

  double layer_parameters() const { return 4 * hidden * hidden + 3 * hidden * ffn; }
};
constexpr LlamaSize kLlamas[] = {{"a100-llama-7b", 32, 4096, 11008},
                                 {"a100-llama-13b", 40, 5120, 13824},
                                 {"a100-llama-30b", 60, 6656, 17920}};

// One-worker times of the paper's Table 3: 7.715e-5 C + 1.979e-8 C^2 seconds (7B), with at most
// 0.6 % error; launches from the floor of its Table 1.
constexpr double kTokenSeconds = 7.715e-5, kPairSeconds = 1.979e-8, kLaunchSeconds = 2.9e-3;
constexpr double kCopyBytesPerSecond = 1.5e12;

SimulatedCluster PaperCluster(const LlamaSize& size) {
  const LlamaSize& fitted = kLlamas[0];
  SimulatedCluster cluster;
  PrefillCost& cost = cluster.cost;
  cost.n_layers = size.n_layers;
  cost.token =
      kTokenSeconds / fitted.n_layers * size.layer_parameters() / fitted.layer_parameters();
  cost.pair = kPairSeconds / fitted.n_layers * size.hidden / fitted.hidden;
  cost.min_linear = kLaunchSeconds;
  cost.kv_bytes = 2 * size.hidden * 2;
  cost.kernel = PairKernel::kDenseMask;
  cluster.append_seconds = 2 * cost.kv_bytes / kCopyBytesPerSecond;  // read and written
  cluster.row_bytes = size.hidden * 2;
  return cluster;
}

// Llama-3-8B in bf16 on H100s: 550 TFLOP/s in linear layers, 450 in attention, 3 TB/s.
SimulatedCluster ModernCluster() {
  constexpr double kLayerParameters = 218e6, kHidden = 4096, kKvHidden = 1024;
  SimulatedCluster cluster;
  PrefillCost& cost = cluster.cost;
  cost.n_layers = 32;
  cost.token = 2 * kLayerParameters / 550e12;
  cost.pair = 4 * kHidden / 450e12;
  cost.extra_tokens = 128;
  cost.min_linear = 2 * kLayerParameters / 3e12;
  cost.kv_bytes = 2 * kKvHidden * 2;
  cluster.row_bytes = kHidden * 2;
  return cluster;
}

}  // namespace

absl::StatusOr<NamedCluster> ClusterByName(const std::string& name) {
  std::string known = "h100-llama-3-8b";
  if (name == known) return NamedCluster{name, ModernCluster()};
  for (const LlamaSize& size : kLlamas) {
    if (name == size.name) return NamedCluster{name, PaperCluster(size)};
    absl::StrAppend(&known, ", ", size.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("no shape \"", name, "\"; there are ", known));
}

}  // namespace baton
