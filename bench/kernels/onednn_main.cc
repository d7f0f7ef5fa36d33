// baton_onednn_bench: Baton's linear layers and oneDNN's, in turns, on this machine. A separate
// program, so that the product does not depend on oneDNN.
//   baton_onednn_bench [SECONDS]    per measurement; 1 by default
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/kernels/kernels_bench.h"
#include "bench/kernels/onednn_linear.h"
#include "engine/cpu/machine/machine_probe.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(OneDnnLinear& linear, double budget) {
  double best = 1e30;
  const Clock::time_point start = Clock::now();
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (int i = 0; i < 3 || since(start) < budget; ++i) {
    const Clock::time_point begin = Clock::now();
    linear.Run();
    best = std::min(best, since(begin));
  }
  return best;
}

// Returns the seconds of one layer, from the fastest sample of a result in either unit; for oneDNN,
// too, the fastest run counts.
double SecondsOf(const KernelResult& result, double bytes, double operations) {
  return (result.unit == "GB/s" ? bytes : operations) * 1e-9 / result.samples.max;
}

// Returns the result of Baton's fastest path. oneDNN's result gets the same unit: weights streamed,
// or operations.
absl::StatusOr<KernelResult> Ours(const KernelsBenchOptions& options, double bytes,
                                  double operations) {
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results, MeasureKernels(options));
  return *std::min_element(
      results.begin(), results.end(), [&](const KernelResult& a, const KernelResult& b) {
        return SecondsOf(a, bytes, operations) < SecondsOf(b, bytes, operations);
      });
}

absl::Status Compare(OneDnnType type, int64_t rows, double seconds,
                     std::vector<KernelResult>* results) {
  KernelsBenchOptions options;
  options.formats = {{type == OneDnnType::kBf16 ? WeightType::kBf16 : WeightType::kInt8}};
  options.rows = {rows};
  options.threads = static_cast<int>(std::thread::hardware_concurrency());
  options.plan.seconds = seconds;
  options.plain = false;
  const int64_t bytes = options.k * options.n * (type == OneDnnType::kBf16 ? 2 : 1);
  OneDnnLinear linear(type, rows, options.k, options.n,
                      static_cast<int>(options.stream_bytes / bytes) + 1);
  const double weight_bytes = static_cast<double>(bytes);
  const double operations = 2.0 * static_cast<double>(rows * options.k * options.n);
  double fastest = 1e30, our_fastest = 1e30;
  KernelResult ours;
  for (int round = 0; round < 3; ++round) {
    fastest = std::min(fastest, Seconds(linear, seconds));
    ASSIGN_OR_RETURN(const KernelResult again, Ours(options, weight_bytes, operations));
    const double again_seconds = SecondsOf(again, weight_bytes, operations);
    if (again_seconds < our_fastest) ours = again;
    our_fastest = std::min(our_fastest, again_seconds);
  }
  if (linear.WorstError() > 1e-2) return absl::InternalError("oneDNN's result is wrong");
  results->push_back(ours);
  const double work = ours.unit == "GB/s" ? weight_bytes : operations;
  KernelResult theirs;
  theirs.name = absl::StrFormat("onednn_%s_m%d", type == OneDnnType::kBf16 ? "bf16" : "int8", rows);
  theirs.value = work * 1e-9 / fastest;
  theirs.unit = ours.unit;
  theirs.limit = ours.limit;
  results->push_back(theirs);
  KernelResult ratio;
  ratio.name = absl::StrCat("ours_over_", theirs.name);
  ratio.value = fastest / our_fastest;
  ratio.unit = "times";
  results->push_back(ratio);
  return absl::OkStatus();
}

absl::Status Run(double seconds) {
  std::vector<KernelResult> results;
  for (const OneDnnType type : {OneDnnType::kBf16, OneDnnType::kInt8}) {
    for (const int64_t rows : {1, 8, 512}) {
      RETURN_IF_ERROR(Compare(type, rows, seconds, &results));
    }
  }
  PrintKernelTable(
      absl::StrFormat("linear layers beside oneDNN, k 2048, n 8192, %s", CpuModelName()), results);
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const absl::Status status = baton::Run(argc > 1 ? std::atof(argv[1]) : 1);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton_onednn_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
