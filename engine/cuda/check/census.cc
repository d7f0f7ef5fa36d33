// S1.c: what cuBLASLt chooses for the weights of models, with which bits and how fast, and what the
// fixed order of sums costs beside its free choice.
#include <algorithm>

#include "engine/cuda/check/cublaslt.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/products.h"

namespace baton {
namespace {

constexpr int kCandidates = 12;

struct WeightShape {
  const char* name;
  int k, n;
};
// Linear layers of Llama 3.2 1B, Llama 3 8B and Llama 2 7B.
constexpr WeightShape kWeights[] = {
    {"qkv 1B", 2048, 3072},      {"qkv 8B", 4096, 6144},      {"qkv 7B", 4096, 12288},
    {"o 1B", 2048, 2048},        {"o 8B", 4096, 4096},        {"gate_up 1B", 2048, 16384},
    {"gate_up 8B", 4096, 28672}, {"gate_up 7B", 4096, 22016}, {"down 1B", 8192, 2048},
    {"down 8B", 14336, 4096},    {"down 7B", 11008, 4096},    {"head 1B", 2048, 128256},
    {"head 8B", 4096, 128256},
};
constexpr int kRows[] = {1, 2, 3, 8, 17, 64, 65, 128, 1000};
constexpr int kMaxRows = 1000;

// Output of one product, compared with the reference.
class Census {
 public:
  Census(Report& report, CublasLt& lt, const Stream& stream, const WeightShape& weight)
      : report_(report),
        lt_(lt),
        stream_(stream),
        weight_(weight),
        count_(stream),
        a_(Inputs({Distribution::kNormal, 9, 1, kMaxRows, weight.k}, stream)),
        b_(Inputs({Distribution::kNormal, 9, 2, weight.n, weight.k}, stream)),
        reference_(int64_t{kMaxRows} * weight.n),
        output_(int64_t{kMaxRows} * weight.n) {
    Multiply(kReference, a_.get(), b_.get(), reference_, {kMaxRows, weight.n, weight.k}, stream);
  }

  void AtRows(int m, bool is_output_bf16) {
    const GemmShape shape{m, weight_.n, weight_.k};
    const std::string name = std::string(weight_.name) + ", " + NameOf(shape) +
                             (is_output_bf16 ? ", to bf16" : ", to fp32");
    Candidate serving, any;  // the fastest
    int n = 0, n_serving = 0;
    for (const LtAlgorithm& algorithm : lt_.Algorithms(shape, is_output_bf16, kCandidates)) {
      const Candidate candidate = Run(algorithm, shape, is_output_bf16);
      if (candidate.micros == 0) continue;
      ++n;
      n_serving += candidate.may_serve();
      if (candidate.may_serve()) Keep(candidate, serving);
      Keep(candidate, any);
      // An algorithm that differs is one that the guard at load bans: known, not wrong.
      if (candidate.has_one_chain() && candidate.differing > 0) {
        report_.Add({"S1.c", "mma.sync = cuBLASLt", name, static_cast<double>(candidate.differing),
                     "differing", Verdict::kWarn, candidate.Description()});
      }
    }
    const std::string counts =
        std::to_string(n_serving) + " of " + std::to_string(n) + " may serve";
    if (n_serving == 0) {
      report_.Add({"S1.c", "no algorithm may serve", name, 0, "", Verdict::kWarn,
                   counts + (n == 0 ? "" : "; the fastest: " + any.Description())});
      return;
    }
    report_.Add({"S1.c", "fastest that may serve", name, serving.micros, "us", Verdict::kPass,
                 counts + ": " + serving.Description()});
    report_.Add(
        {"S1.c", "fastest of all", name, any.micros, "us", Verdict::kInfo, any.Description()});
    report_.Add({"S1.c", "cost of exactness", name, 100 * (serving.micros / any.micros - 1), "%"});
  }

 private:
  // An algorithm, its time (0: it was refused), and how many outputs differ from the reference.
  struct Candidate {
    LtAlgorithm algorithm;
    double micros = 0;
    uint64_t differing = 0;

    bool has_one_chain() const { return algorithm.split_k == 1 && algorithm.reduction == 0; }
    bool may_serve() const { return has_one_chain() && differing == 0; }
    std::string Description() const {
      return algorithm.Description() + ", " + std::to_string(micros) + " us, " +
             (differing == 0 ? "equal bits" : std::to_string(differing) + " outputs differ");
    }
  };

  static void Keep(const Candidate& candidate, Candidate& best) {
    if (best.micros == 0 || candidate.micros < best.micros) best = candidate;
  }

  Candidate Run(const LtAlgorithm& algorithm, GemmShape shape, bool is_output_bf16) {
    const int64_t n = int64_t{shape.m} * shape.n;
    Candidate candidate{algorithm};
    output_.Poison(stream_);
    if (!lt_.Multiply(algorithm, a_.get(), b_.get(), output_.get(), shape, is_output_bf16, stream_))
      return candidate;
    candidate.differing =
        is_output_bf16 ? count_.OfRounded(reference_.get(),
                                          reinterpret_cast<const uint16_t*>(output_.get()), n)
                       : count_.Of(reference_.get(), output_.get(), n);
    bool ok = true;
    const double micros = MedianMicros(stream_, 3, [&] {
      ok = lt_.Multiply(algorithm, a_.get(), b_.get(), output_.get(), shape, is_output_bf16,
                        stream_) &&
           ok;
    });
    if (ok) candidate.micros = micros;
    return candidate;
  }

  Report& report_;
  CublasLt& lt_;
  const Stream& stream_;
  const WeightShape& weight_;
  DifferenceCount count_;
  const GpuArray<uint16_t> a_, b_;
  GpuArray<float> reference_, output_;
};

}  // namespace

void CompareCublasLt(Report& report, const CheckOptions& options) {
  std::string reason;
  const std::unique_ptr<CublasLt> lt = CublasLt::Load(options.library_dir, &reason);
  if (lt == nullptr) {
    report.Add({"S1.c", "cuBLASLt", "", 0, "", Verdict::kSkip, reason});
    return;
  }
  report.Add({"S1.c", "version of cuBLASLt", "", static_cast<double>(lt->version()), "",
              Verdict::kInfo, ""});
  const Stream stream;
  for (const WeightShape& weight : kWeights) {
    if (options.is_quick && weight.k != 2048) continue;
    Census census(report, *lt, stream, weight);
    const bool is_head = weight.n == 128256;  // logits stay fp32, all else is rounded
    for (const int m : kRows) {
      census.AtRows(m, !is_head);
      if (!is_head && (m == 1 || m == 64 || m == 1000)) census.AtRows(m, false);
    }
  }
}

}  // namespace baton
