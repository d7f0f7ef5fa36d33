#include "bench/kernels_bench.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/cpu/aligned_buffer.h"
#include "engine/cpu/linear.h"
#include "engine/cpu/machine_probe.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

// Element i of a random matrix, the same on every machine: the sum of a hash's four bytes, near to
// normal, with standard deviation `scale`.
bf16 RandomElement(uint32_t i, uint32_t seed, float scale) {
  uint32_t h = i * 0x9e3779b1u + seed * 0x85ebca77u;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  const uint32_t sum = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24);
  return FloatToBf16((static_cast<float>(sum) - 510.0f) * (scale / 147.8f));
}

// A linear layer with random inputs; weights in as many copies as are streamed through.
class Workload {
 public:
  explicit Workload(const KernelsBenchOptions& options)
      : n_(options.n),
        k_(options.k),
        copy_bytes_(PackedWeights::Bytes(options.n, options.k)),
        copies_(std::max<int64_t>(1, options.stream_bytes / copy_bytes_)) {
    std::vector<bf16> matrix(static_cast<size_t>(n_ * k_));
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] = RandomElement(static_cast<uint32_t>(i), 1, 0.02f);
    }
    weights_ = static_cast<char*>(memory_.Reserve(static_cast<size_t>(copy_bytes_ * copies_)));
    for (int64_t block = 0; block < RoundUp(n_, 16) / 16; ++block) {
      PackBlock(matrix.data(), n_, k_, block, static_cast<bf16*>(static_cast<void*>(weights_)));
    }
    for (int64_t copy = 1; copy < copies_; ++copy) {
      std::memcpy(weights_ + copy * copy_bytes_, weights_, static_cast<size_t>(copy_bytes_));
    }
  }

  // Rows of activations; call before Run.
  void SetRows(int64_t rows) {
    rows_ = rows;
    x_stride_ = RoundUp(k_, 32);
    x_.assign(static_cast<size_t>(rows * x_stride_), 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k_; ++i) {
        x_[static_cast<size_t>(r * x_stride_ + i)] =
            RandomElement(static_cast<uint32_t>(r * k_ + i), 2, 1.0f);
      }
    }
    y_.assign(static_cast<size_t>(rows * n_), bf16{0x7fff});
  }

  // Multiplies by the next copy of the weights if `stream`, by the first one otherwise.
  void Run(LinearKernels& kernels, ComputePool& pool, bool stream) {
    LinearArgs args;
    args.x = x_.data();
    args.x_stride = x_stride_;
    args.rows = rows_;
    const int64_t copy = stream ? next_copy_++ % copies_ : 0;
    args.weights = {static_cast<const bf16*>(static_cast<void*>(weights_ + copy * copy_bytes_)), n_,
                    k_};
    args.y = y_.data();
    args.y_stride = n_;
    kernels.Run(args, pool);
  }

  std::string Digest() const {
    return absl::StrFormat("%016x", XXH64(y_.data(), y_.size() * sizeof(bf16), 0));
  }
  double Gflop() const { return 2e-9 * static_cast<double>(rows_ * n_ * k_); }
  double Gbytes() const { return 1e-9 * static_cast<double>(copy_bytes_); }
  double ReadGbps(ComputePool& pool) const {
    return ProbeReadGbps(pool, weights_, copy_bytes_ * copies_);
  }

 private:
  int64_t n_, k_, copy_bytes_, copies_;
  int64_t rows_ = 0, x_stride_ = 0, next_copy_ = 0;
  AlignedBuffer memory_;
  char* weights_;
  std::vector<bf16> x_, y_;
};

// Seconds of the fastest of the runs that fit into `seconds` (at least three).
template <typename Body>
double Fastest(double seconds, const Body& body) {
  double best = 1e30;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds;
       ++i) {
    const Clock::time_point begin = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

KernelResult MeasureOne(LinearKernels& kernels, Workload& workload, int64_t rows, double read_gbps,
                        ComputePool& pool, double seconds) {
  KernelResult result;
  result.name = absl::StrCat("linear_", std::string(IsaName(kernels.isa())), "_m", rows);
  workload.SetRows(rows);
  const double roof_before = ProbeDotGflops(kernels.isa(), pool);
  // What bounds these rows decides the unit, and whether weights come from memory each time.
  const bool stream = workload.Gbytes() / read_gbps > workload.Gflop() / roof_before;
  const double fastest = Fastest(seconds, [&] { workload.Run(kernels, pool, stream); });
  result.digest = workload.Digest();
  if (stream) {
    result.unit = "GB/s";
    result.value = workload.Gbytes() / fastest;
    result.limit = std::max(read_gbps, workload.ReadGbps(pool));
  } else {
    result.unit = "GFLOP/s";
    result.value = workload.Gflop() / fastest;
    result.limit = std::max(roof_before, ProbeDotGflops(kernels.isa(), pool));
  }
  return result;
}

// OK if results of the same rows have the same digest.
absl::Status CheckDigests(const std::vector<KernelResult>& results) {
  std::map<std::string, const KernelResult*> first;  // by the name's part after the path
  for (const KernelResult& result : results) {
    const std::string rows = result.name.substr(result.name.rfind('_'));
    const auto [entry, is_new] = first.emplace(rows, &result);
    if (!is_new && entry->second->digest != result.digest) {
      return absl::InternalError(absl::StrCat("bits differ: ", entry->second->name, " gives ",
                                              entry->second->digest, ", ", result.name, " gives ",
                                              result.digest));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const KernelsBenchOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<KernelResult> results, MeasureKernels(options));
  PrintKernelTable(absl::StrFormat("linear layers, k %d, n %d, %d threads, %s", options.k,
                                   options.n, options.threads, CpuModelName()),
                   results);
  if (options.json) PrintKernelJson("v1/cpu-x86/bf16/kv-bf16/l2", results);
  return CheckDigests(results);
}

}  // namespace

absl::StatusOr<std::vector<KernelResult>> MeasureKernels(const KernelsBenchOptions& options) {
  std::vector<Isa> isas = options.isas;
  if (isas.empty()) {
    RequestAmxPermission();
    isas = SupportedIsas();
  }
  RETURN_IF_ERROR(CheckIsaSupported(isas.empty() ? Isa::kAvx2 : isas.front()));
  ComputePool pool(options.threads, options.spin_us);
  Workload workload(options);
  std::vector<KernelResult> results;
  for (const Isa isa : isas) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinearKernels> kernels, MakeLinearKernels(isa));
    for (const int64_t rows : options.rows) {
      const double read_gbps = workload.ReadGbps(pool);
      results.push_back(MeasureOne(*kernels, workload, rows, read_gbps, pool, options.seconds));
    }
  }
  return results;
}

int RunKernelsBench(const KernelsBenchOptions& options) {
  const absl::Status status = Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench kernels: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
