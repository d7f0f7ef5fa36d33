// S2.sample: sampling beside the host's, and how fast it is.
#include "engine/cuda/sample.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "engine/cuda/check/graph_time.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/sample_inputs.h"
#include "engine/cuda/check/sample_reference.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }

class SampleCheck {
 public:
  explicit SampleCheck(Report& report) : report_(report) {}

  void Compare(int vocab, int n_rows);
  void Measure(int vocab, int n_rows, float temperature);

 private:
  Report& report_;
  const Stream stream_;
  uint32_t seed_ = std::random_device()();
};

void SampleCheck::Compare(int vocab, int n_rows) {
  std::vector<float> logits(static_cast<size_t>(n_rows) * vocab);
  std::vector<SampleRowArguments> rows(static_cast<size_t>(n_rows));
  std::vector<SampleRowResult> expected(rows.size());
  const auto prepare = [&](int row) {
    float* const from = &logits[static_cast<size_t>(row) * vocab];
    SampleRowArguments& arguments = rows[static_cast<size_t>(row)];
    arguments = FillRow(row, seed_, from, vocab);
    if (arguments.drawable > 0)
      expected[static_cast<size_t>(row)] =
          SampleReference({from, static_cast<size_t>(vocab)}, arguments);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      const NumericsMxcsrScope mxcsr;
      for (int row = t; row < n_rows; row += 16) prepare(row);
    });
  }
  for (std::thread& thread : threads) thread.join();
  seed_ += static_cast<uint32_t>(n_rows);

  GpuArray<float> gpu_logits(static_cast<int64_t>(logits.size()));
  GpuArray<SampleRowArguments> gpu_rows(n_rows);
  GpuArray<SampleRowResult> results(n_rows);
  GpuArray<int32_t> sampled(n_rows);
  GpuArray<uint8_t> scratch(SampleScratchBytes(n_rows, vocab));
  gpu_logits.Write(logits);
  gpu_rows.Write(rows);
  results.Poison(stream_);
  sampled.Poison(stream_);
  scratch.Poison(stream_);
  GPU_CHECK(SampleRows(gpu_logits.get(), n_rows, vocab, gpu_rows.get(), scratch.get(),
                       results.get(), sampled.get(), stream_));
  stream_.Wait();
  const std::vector<SampleRowResult> found = results.Read();
  const std::vector<int32_t> tokens = sampled.Read();
  uint64_t differing_tokens = 0, differing_logprobs = 0, differing_rest = 0;
  std::string note;
  for (int i = 0; i < n_rows; ++i) {
    const SampleRowResult& is = found[i];
    const SampleRowResult& should = expected[i];
    if (rows[i].drawable == 0) {  // untouched
      differing_rest += is.token != -1 || is.digest != ~uint64_t{0} || tokens[i] != -1;
      continue;
    }
    const bool differs = is.token != should.token || tokens[i] != should.token;
    differing_tokens += differs;
    differing_logprobs += BitsOf(is.logprob) != BitsOf(should.logprob);
    differing_rest += is.digest != 0 || is.n_logprobs != 0;
    if (note.empty() && (differs || BitsOf(is.logprob) != BitsOf(should.logprob))) {
      note = "row " + std::to_string(i) + ", kind " + std::to_string(i % kLogitKinds) +
             ", temperature " + std::to_string(rows[i].temperature) + ", of " +
             std::to_string(rows[i].drawable) + ": token " + std::to_string(is.token) + ", not " +
             std::to_string(should.token) + "; logprob " + std::to_string(is.logprob) + ", not " +
             std::to_string(should.logprob);
    }
  }
  const std::string shape = std::to_string(n_rows) + " rows of " + std::to_string(vocab);
  report_.AddDifferences("S2.sample", "tokens", shape, differing_tokens, note);
  report_.AddDifferences("S2.sample", "log-probabilities", shape, differing_logprobs, note);
  report_.AddDifferences("S2.sample", "what is left as it is", shape, differing_rest);
}

void SampleCheck::Measure(int vocab, int n_rows, float temperature) {
  GpuArray<float> logits(int64_t{n_rows} * vocab);
  std::vector<float> values(static_cast<size_t>(logits.size()));
  constexpr size_t kDrawn = 1000003;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i < kDrawn ? normal(random) : values[i - kDrawn];
  logits.Write(values);
  GpuArray<SampleRowArguments, true> rows(n_rows);  // where the engine has them
  for (int i = 0; i < n_rows; ++i) {
    rows.get()[i] = {.temperature = temperature, .seed = 1, .position = i};
    rows.get()[i].drawable = vocab - 100;
    rows.get()[i].result = i * kRecord;
  }
  GpuArray<SampleRowResult> results(n_rows);
  GpuArray<int32_t> sampled(n_rows);
  GpuArray<uint8_t> scratch(SampleScratchBytes(n_rows, vocab));
  const double micros = MicrosInGraph(stream_, 20, [&] {
    GPU_CHECK(SampleRows(logits.get(), n_rows, vocab, rows.get(), scratch.get(), results.get(),
                         sampled.get(), stream_));
  });
  report_.Add(
      {"S2.sample", temperature > 0 ? "a draw" : "the greatest logit",
       std::to_string(n_rows) + " rows of " + std::to_string(vocab), micros, "us", Verdict::kInfo,
       "reads " + std::to_string(2e-6 * static_cast<double>(logits.bytes()) / micros) + " TB/s"});
}

}  // namespace

void CheckSampling(Report& report, const CheckOptions& options) {
  SampleCheck check(report);
  check.Compare(331, 512);
  check.Compare(3, 96);
  check.Compare(32000, options.is_quick ? 96 : 512);
  check.Compare(128256, 144);
  check.Compare(152064, 96);
  check.Compare(1 << 18, 48);
  for (const int rows : {1, 32, 256})
    for (const float temperature : {0.0f, 1.0f, 0.7f}) check.Measure(128256, rows, temperature);
}

}  // namespace baton
