#include "bench/kernels/kernels_bench.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/kernels/plain_chain_tables.h"
#include "bench/probed_sample.h"
#include "engine/cpu/linear/linear.h"
#include "engine/cpu/linear/linear_form.h"
#include "engine/cpu/linear/linear_tables.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/cpu/machine/machine_probe.h"

namespace baton {
namespace {

// Returns element i of a random matrix, the same on every machine.
uint32_t RandomBits(uint32_t i, uint32_t seed) {
  uint32_t h = i * 0x9e3779b1u + seed * 0x85ebca77u;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ h >> 16;
}

// Returns the sum of four random bytes: nearly normal, with standard deviation `scale`.
bf16 RandomElement(uint32_t i, uint32_t seed, float scale) {
  const uint32_t h = RandomBits(i, seed);
  const uint32_t sum = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24);
  return FloatToBf16((static_cast<float>(sum) - 510.0f) * (scale / 147.8f));
}

// A linear layer with random inputs; the weights have enough copies to stream from memory.
class Workload {
 public:
  Workload(const KernelsBenchOptions& options, WeightFormat format)
      : format_(format),
        n_(options.n),
        k_(options.k),
        copy_bytes_(PackedWeights::Bytes(options.n, options.k, format)),
        copies_(std::max<int64_t>(1, options.stream_bytes / copy_bytes_)) {
    weights_ = static_cast<char*>(memory_.Reserve(static_cast<size_t>(copy_bytes_ * copies_)));
    if (format_.type == WeightType::kBf16) {
      PackRandom();
    } else {
      PackRandomIntegers();
    }
    for (int64_t copy = 1; copy < copies_; ++copy) {
      std::memcpy(weights_ + copy * copy_bytes_, weights_, static_cast<size_t>(copy_bytes_));
    }
  }

  const WeightFormat& format() const { return format_; }
  int64_t k() const { return k_; }

  // Makes rows of activations; call before Run.
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
    y_ = static_cast<bf16*>(outputs_.Reserve(static_cast<size_t>(rows * n_) * sizeof(bf16)));
    std::fill_n(y_, rows * n_, bf16{0x7fff});
  }

  // Multiplies by the next copy of the weights if `stream`, by the first one otherwise.
  void Run(LinearKernels& kernels, ComputePool& pool, bool stream) {
    LinearArgs args;
    args.x = x_.data();
    args.x_stride = x_stride_;
    args.rows = rows_;
    const int64_t copy = stream ? next_copy_++ % copies_ : 0;
    args.weights = {weights_ + copy * copy_bytes_, n_, k_, format_};
    args.y = y_;
    args.y_stride = n_;
    kernels.Run(args, pool);
  }

  std::string Digest() const {
    return absl::StrFormat("%016x", XXH64(y_, static_cast<size_t>(rows_ * n_) * sizeof(bf16), 0));
  }
  double Gflop() const { return 2e-9 * static_cast<double>(rows_ * n_ * k_); }
  double Gbytes() const { return 1e-9 * static_cast<double>(copy_bytes_); }
  // Probe the machine now and return the min time of a run: to read the weights, to multiply.
  double MinReadSeconds(ComputePool& pool) const {
    return Gbytes() / ProbeReadGbps(pool, weights_, copy_bytes_ * copies_, kShortReadTries);
  }
  double MinPeakSeconds(Isa isa, ComputePool& pool) const {
    return Gflop() / ProbePeakGops(isa, format_.type, pool, kShortPeakTries);
  }

 private:
  void PackRandom() {
    std::vector<bf16> matrix(static_cast<size_t>(n_ * k_));
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] = RandomElement(static_cast<uint32_t>(i), 1, 0.02f);
    }
    for (int64_t block = 0; block < RoundUp(n_, 16) / 16; ++block) {
      PackBlock(matrix.data(), n_, k_, block, static_cast<bf16*>(static_cast<void*>(weights_)));
    }
  }
  void PackRandomIntegers() {
    const int64_t groups = format_.Groups(k_), block_bytes = format_.BlockBytes(k_);
    const int max = format_.type == WeightType::kInt8 ? 127 : 7;
    std::vector<int8_t> values(static_cast<size_t>(16 * k_));
    const std::vector<float> scales(static_cast<size_t>(16 * groups),
                                    0.04f / static_cast<float>(max));
    for (int64_t first = 0; first < n_; first += 16) {
      const int64_t outputs = std::min<int64_t>(16, n_ - first);
      for (int64_t i = 0; i < outputs * k_; ++i) {
        const uint32_t bits = RandomBits(static_cast<uint32_t>(first * k_ + i), 3) >> 8;
        values[static_cast<size_t>(i)] =
            static_cast<int8_t>(static_cast<int>(bits % (2 * max + 1)) - max);
      }
      PackIntegerBlock(values.data(), scales.data(), outputs, k_, format_,
                       weights_ + first / 16 * block_bytes);
    }
  }

  WeightFormat format_;
  int64_t n_, k_, copy_bytes_, copies_;
  int64_t rows_ = 0, x_stride_ = 0, next_copy_ = 0;
  AlignedBuffer memory_;
  char* weights_;
  std::vector<bf16> x_;
  AlignedBuffer outputs_;  // rows start at cache lines, as in the engine
  bf16* y_ = nullptr;
};

// The kernels of a path, and a plain chain of the same work if the path has one.
struct Contenders {
  Isa isa;
  std::unique_ptr<LinearKernels> exact, plain;
};

const LinearKernelTable* PlainTable(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return &kPlainAvx2;
    case Isa::kAvx512:
      return &kPlainAvx512;
    case Isa::kAvx512Bf16:
      return &kPlainAvx512Bf16;
    case Isa::kAmx:
      return nullptr;
  }
  return nullptr;
}

std::unique_ptr<LinearKernels> PlainKernels(Isa isa) {
  const LinearKernelTable* const plain = PlainTable(isa);
  if (plain == nullptr) return nullptr;
  LinearKernelSet set = KernelSetOf(isa);
  set.bf16 = {plain};
  return MakeLinearKernelsOf(isa, set);
}

// Compares samples taken in turns between the same probes, so that each sample of one is compared
// with the other's in the same state of the machine.
KernelResult CostOf(const std::string& name, const std::vector<ProbedSample>& exact,
                    const std::vector<ProbedSample>& plain) {
  std::vector<double> costs;
  for (size_t i = 0; i < exact.size(); ++i) {
    costs.push_back(100 * (1 - plain[i].seconds() / exact[i].seconds()));
  }
  std::sort(costs.begin(), costs.end());
  KernelResult cost;
  cost.name = "exactness_cost_" + name;
  cost.unit = "%";
  cost.samples = {costs.front(), costs[costs.size() / 2], costs.back()};
  cost.value = cost.samples.median;
  cost.n_samples = cost.n_counted = static_cast<int>(costs.size());
  return cost;
}

void Measure(const Contenders& path, Workload& workload, int64_t rows, ComputePool& pool,
             const SamplePlan& plan, std::vector<KernelResult>* results) {
  const bool is_bf16 = workload.format().type == WeightType::kBf16;
  const std::string name =
      absl::StrCat(std::string(IsaName(path.isa)),
                   is_bf16 ? "" : absl::StrCat("_", workload.format().Name()), "_m", rows);
  LinearKernels* const plain = is_bf16 ? path.plain.get() : nullptr;
  workload.SetRows(rows);
  // The limit of these rows (memory or compute) decides the unit, and whether weights come from
  // memory each time.
  const bool stream = workload.MinReadSeconds(pool) > workload.MinPeakSeconds(path.isa, pool);
  std::vector<std::function<void()>> bodies;
  if (plain != nullptr) bodies.push_back([&] { workload.Run(*plain, pool, stream); });
  bodies.push_back([&] { workload.Run(*path.exact, pool, stream); });
  const std::vector<std::vector<ProbedSample>> samples = SampleInTurns(plan, bodies, [&] {
    return stream ? workload.MinReadSeconds(pool) : workload.MinPeakSeconds(path.isa, pool);
  });
  const double work = stream ? workload.Gbytes() : workload.Gflop();
  KernelResult exact;
  exact.name = "linear_" + name;
  exact.unit = stream ? "GB/s" : is_bf16 ? "GFLOP/s" : "GOP/s";
  SetSamples(samples.back(), work, &exact);
  exact.note = LinearFormName(LinearFormOf(path.isa, workload.format(), rows, workload.k()));
  exact.digest = workload.Digest();
  results->push_back(exact);
  if (plain == nullptr) return;
  KernelResult chain;
  chain.name = "plain_" + name;
  chain.unit = exact.unit;
  SetSamples(samples.front(), work, &chain);
  results->push_back(chain);
  results->push_back(CostOf(name, samples.back(), samples.front()));
}

// Returns OK if results of the same rows have the same digest.
absl::Status CheckDigests(const std::vector<KernelResult>& results) {
  std::map<std::string, const KernelResult*> first;  // key: the name's part after the path
  for (const KernelResult& result : results) {
    if (result.digest.empty()) continue;
    const std::string work = result.name.substr(result.name.find('_', sizeof "linear"));
    const auto [entry, is_new] = first.emplace(work, &result);
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
  std::vector<KernelResult> results;
  for (const WeightFormat& format : options.formats) {
    Workload workload(options, format);
    for (const Isa isa : isas) {
      Contenders path{isa, nullptr, options.plain ? PlainKernels(isa) : nullptr};
      ASSIGN_OR_RETURN(path.exact, MakeLinearKernels(isa));
      for (const int64_t rows : options.rows) {
        Measure(path, workload, rows, pool, options.plan, &results);
      }
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
