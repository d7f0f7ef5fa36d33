// baton_gpu_check: one part of the GPU check per call (tools/gpu_check.sh calls it). Needs nothing
// but a driver; without a GPU that can serve it ends with 77 and says why.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

#include "engine/cuda/attention.h"
#include "engine/cuda/check/chain_kernels.h"
#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/predictions.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/plugin_abi.h"
#include "engine/cuda/rows.h"
#include "engine/cuda/sample.h"
#include "engine/cuda/source_id.h"

namespace baton {
namespace {

constexpr int kFailed = 1, kUsage = 64, kSkipped = 77;

struct Part {
  const char* name;
  void (*run)(Report& report, const CheckOptions& options);
};

void RunGpu(Report& report, const CheckOptions&) {
  BatonCudaDevice device;
  baton_cuda_open(0, &device);
  const std::string name = device.name;
  report.Add({"S0.gpu", "driver knows CUDA", name, device.driver_version / 1000.0, "",
              Verdict::kInfo, ""});
  report.Add({"S0.gpu", "multiprocessors", name, static_cast<double>(device.multiprocessors), "",
              Verdict::kInfo, ""});
  report.Add({"S0.gpu", "free memory", name, static_cast<double>(device.free_bytes) / (1 << 30),
              "GiB", Verdict::kInfo, ""});
  report.Add({"S0.gpu", "L2", name, static_cast<double>(device.cache_bytes) / (1 << 20), "MiB",
              Verdict::kInfo, ""});
  report.Add({"S0.gpu", "shared memory of a block", name, device.shared_bytes / 1024.0, "KiB",
              Verdict::kInfo, std::string("sources ") + kCudaSourceId});
}

// Fixed by the script's table: names do not change.
constexpr Part kParts[] = {
    {"S0.gpu", RunGpu},
    {"S0.memory", [](Report& report, const CheckOptions&) { MeasureMemory(report); }},
    {"S0.matrix", [](Report& report, const CheckOptions&) { MeasureMatrixRate(report); }},
    {"S0.link", [](Report& report, const CheckOptions&) { MeasureLink(report); }},
    {"S0.host", [](Report& report, const CheckOptions&) { MeasureHost(report); }},
    {"S1.a", CompareInstructions},
    {"S1.b", CompareSwapped},
    {"S1.c", CompareCublasLt},
    {"S1.d", CompareRows},
    {"S1.e", ComparePredictions},
    {"S1.f", [](Report& report, const CheckOptions&) { CompareMaskedTail(report); }},
    {"S1.h", [](Report& report, const CheckOptions&) { CheckExp2(report); }},
    {"S1.k", [](Report& report, const CheckOptions&) { MeasureChains(report); }},
    {"S2.gemm", CheckProducts},
    {"S2.rows", CheckRowKernels},
    {"S2.sample", CheckSampling},
    {"S2.attention", CheckAttention},
    {"S4.steps", MeasureSteps},
};

int Usage() {
  std::fputs(
      "baton_gpu_check PART [--predictions FILE] [--lib-dir DIR] [--quick]  runs one part\n"
      "baton_gpu_check --probe      says whether a GPU can serve; ends with 77 if not\n"
      "baton_gpu_check --source-id  prints the id of the sources it was built of\n"
      "baton_gpu_check --predict    prints the predictions anew (no GPU)\n"
      "baton_gpu_check --kernels    prints threads and shared memory of every launch (no "
      "GPU)\nparts:",
      stderr);
  for (const Part& part : kParts) std::fprintf(stderr, " %s", part.name);
  std::fputs("\n", stderr);
  return kUsage;
}

int Predict() {
  std::puts(
      "# Digests of C = A * B^T on Hopper's tensor cores (sm_90a), predicted by "
      "engine/numerics/tensor_core_dot.h before a\n"
      "# GPU has computed one: distribution, seed, m, n, k, FNV-1a of C's fp32 "
      "(engine/cuda/check/predictions.h).\n"
      "# Written by: baton_gpu_check --predict");
  for (const Prediction& prediction : AllPredictions()) std::puts(LineOf(prediction).c_str());
  return 0;
}

int PrintKernels() {
  for (const auto& launches : {MmaLaunches(), TmaLaunches(), StreamLaunches(), AttentionLaunches(),
                               RowLaunches(), SampleLaunches(), CheckLaunches(), ChainLaunches()})
    for (const KernelLaunch& launch : launches)
      std::printf("%d %d %s\n", launch.threads, launch.shared_bytes, launch.kernel);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc < 2) return Usage();
  const std::string command = argv[1];
  if (command == "--source-id") {
    std::puts(kCudaSourceId);
    return 0;
  }
  if (command == "--predict") return Predict();
  if (command == "--kernels") return PrintKernels();
  CheckOptions options;
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      options.is_quick = true;
    } else if (option == "--predictions" && i + 1 < argc) {
      options.predictions = argv[++i];
    } else if (option == "--lib-dir" && i + 1 < argc) {
      options.library_dir = argv[++i];
    } else {
      return Usage();
    }
  }
  const Part* part = std::find_if(std::begin(kParts), std::end(kParts),
                                  [&](const Part& each) { return command == each.name; });
  if (part == std::end(kParts) && command != "--probe") return Usage();
  BatonCudaDevice device;
  baton_cuda_open(0, &device);
  if (device.error[0] != '\0') {
    std::printf("%s\n", device.error);
    return kSkipped;
  }
  if (command == "--probe") {
    std::printf("%s\n", device.name);
    return 0;
  }
  Report report(stdout);
  part->run(report, options);
  return report.has_failed() ? kFailed : 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
