// S1.k: how long one matrix operation waits for the one before it.
#include "engine/cuda/check/chain_kernels.h"
#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/gpu.h"
#include "engine/cuda/check/parts.h"

namespace baton {
namespace {

constexpr int kSteps = 4096;

// Adds the cycles of a step: a linear layer of one row and depth K takes at least K / 16 of them.
template <typename Run>
void AddChain(Report& report, const Stream& stream, const std::string& name, int chains,
              const uint16_t* operands, const Run& submit) {
  GpuArray<uint64_t> cycles(1);
  GpuArray<float> sink(1);
  const ChainRun run{chains, kSteps, operands, cycles.get(), sink.get()};
  std::vector<double> per_step;
  for (int repeat = -1; repeat < 5; ++repeat) {
    GPU_CHECK(submit(run));
    stream.Wait();
    if (repeat >= 0) per_step.push_back(static_cast<double>(cycles.Read()[0]) / kSteps);
  }
  report.Add({"S1.k", name, std::to_string(chains) + (chains == 1 ? " chain" : " chains"),
              Quantile(per_step, 0.5), "cycles per step of k16"});
}

}  // namespace

void MeasureChains(Report& report) {
  const Stream stream;
  GpuArray<uint16_t> operands(256 * 64);
  GPU_CHECK(FillInputs(operands.get(), {Distribution::kNormal, 1, 1, 256, 64}, stream));
  for (const int chains : {1, 2, 4}) {
    AddChain(report, stream, "mma.sync m16n8k16, one warp", chains, operands.get(),
             [&](const ChainRun& run) { return RunMmaChain(run, stream); });
  }
  for (const int tile_n : {8, 64, 128, 256}) {
    for (const int chains : {1, 2, 4}) {
      if (tile_n * chains > 256) continue;  // no registers for more
      AddChain(report, stream, "wgmma m64n" + std::to_string(tile_n) + "k16, one warpgroup", chains,
               operands.get(),
               [&](const ChainRun& run) { return RunWgmmaChain(tile_n, run, stream); });
    }
  }
}

}  // namespace baton
