// The row-wise kernels and those of sampling on an emulated block of threads: outputs are bit for
// bit those of scalar references and of the host's sampler. The host keeps denormals while kernels
// run, as a GPU does where they do not flush.

#include <malloc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/check/rows_inputs.h"
#include "engine/cuda/check/sample_inputs.h"
#include "engine/cuda/check/sample_reference.h"
#include "engine/sampling/sampler.h"
#include "engine/threads/mxcsr.h"
// flushed_float.cuh is the emulated one: the include path has tests/engine/cuda/emulated first.
#include "engine/cuda/flushed_float.cuh"
// The kernels include it.
#include "engine/cuda/heads.cuh"
#include "engine/cuda/sample.cuh"

namespace baton {
namespace {

// Values at an address that 16 divides, as those of a GPU are, and some room behind them.
template <typename T>
class Aligned {
 public:
  explicit Aligned(const std::vector<T>& values) : memory_(values.size() * sizeof(T) + 64) {
    n_ = values.size();
    std::copy(values.begin(), values.end(), get());
  }
  T* get() const {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 15) & ~15ul);
  }
  std::vector<T> Read() const { return {get(), get() + n_}; }
  std::span<const T> span() const { return {get(), n_}; }

 private:
  std::vector<char> memory_;
  size_t n_;
};

using Complaints = std::set<std::string>;

// Runs a grid's blocks one after another.
template <typename Kernel>
Complaints RunGrid(int64_t x, int64_t y, int shared_bytes, const Kernel& kernel,
                   std::span<const uint16_t> source = {}) {
  REQUIRE_FALSE(HasNumericsMxcsr());
  // The stacks of a block's threads are taken anew for each block: they stay with the process.
  static const bool keeps_memory =
      mallopt(M_MMAP_THRESHOLD, 1 << 25) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 28) == 1;
  REQUIRE(keeps_memory);
  Complaints all;
  for (int64_t row = 0; row < y; ++row) {
    for (int64_t block = 0; block < x; ++block) {
      EmulatedBlock emulated(kRowThreads, shared_bytes, static_cast<uint32_t>(block + row));
      if (!source.empty()) emulated.AllowSource(source);
      all.merge(
          emulated.Run({static_cast<unsigned>(block), static_cast<unsigned>(row), 0}, kernel));
    }
  }
  return all;
}

// Fewer words than those of a comparison that fails.
template <typename T>
size_t CountDiffering(const std::vector<T>& left, const std::vector<T>& right) {
  REQUIRE(left.size() == right.size());
  size_t n = 0;
  for (size_t i = 0; i < left.size(); ++i) n += left[i] != right[i];
  return n;
}

int64_t BlocksOf(int64_t n, int64_t of_block) { return (n + of_block - 1) / of_block; }

template <int kRows, bool kIsCentred>
void CompareNorms(int n, int width, bool is_gathered, bool is_in_place) {
  CAPTURE(kRows, kIsCentred, n, width, is_gathered, is_in_place);
  const int stride = RoundUp64(width), out_stride = is_in_place ? stride : stride + 64;
  const std::vector<uint16_t> x = RandomRows(n, width, stride, static_cast<uint32_t>(width + n));
  const std::vector<float> weight = RandomFloats(width, 1, 1), bias = RandomFloats(width, 0, 2);
  std::vector<int32_t> rows(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) rows[i] = is_gathered ? i * 7 % n : i;
  std::vector<uint16_t> expected(static_cast<size_t>(n) * out_stride);
  {
    const NumericsMxcsrScope mxcsr;
    for (int i = 0; i < n; ++i)
      NormReference(&x[size_t(rows[i]) * stride], weight.data(), kIsCentred ? bias.data() : nullptr,
                    width, 1e-5f, out_stride, &expected[size_t(i) * out_stride]);
  }
  const Aligned<uint16_t> source(x);
  const Aligned<uint16_t> apart(std::vector<uint16_t>(expected.size(), kPoison));
  const Aligned<float> weights(weight), biases(bias);
  const Aligned<uint16_t>& out = is_in_place ? source : apart;
  const NormWork work{
      source.get(),     stride,        is_gathered ? rows.data() : nullptr, n,     width,
      NormPitch(width), weights.get(), kIsCentred ? biases.get() : nullptr, 1e-5f, out.get(),
      out_stride};
  CHECK(RunGrid(
            BlocksOf(n, kRows), 1, 16 + kRows * NormPitch(width),
            [&] { NormKernel<kRows, kIsCentred>(work); }, source.span()) == Complaints{});
  CHECK(CountDiffering(out.Read(), expected) == 0);
}

TEST_CASE("norms are those of the CPU") {
  for (const int width : {64, 331, 344, 1000}) {
    for (const bool is_in_place : {false, true}) {
      CompareNorms<1, false>(2, width, !is_in_place, is_in_place);
      CompareNorms<2, true>(5, width, !is_in_place, is_in_place);
    }
    CompareNorms<1, true>(2, width, false, false);
    CompareNorms<2, false>(11, width, false, false);
  }
  CompareNorms<1, true>(1, 4608, false, true);
  CompareNorms<2, false>(2, 4608, false, true);
}

TEST_CASE("embeddings and sums of rows are those of the CPU") {
  constexpr int kWidth = 331, kStride = 384, kRows = 11;
  const std::vector<uint16_t> x = RandomRows(kRows, kWidth, kStride, 1);
  const std::vector<uint16_t> y = RandomRows(kRows, kWidth, kStride + 64, 2);
  const Aligned<uint16_t> gpu_x(x), gpu_y(y);
  std::vector<uint16_t> expected = x;
  std::vector<int32_t> tokens;
  for (int row = 0; row < kRows; ++row) tokens.push_back(row * 4 % kRows);
  for (const float scale : {1.0f, 45.25f}) {
    const Aligned<uint16_t> out(std::vector<uint16_t>(x.size(), kPoison));
    CHECK(RunGrid(BlocksOf(kRows * kStride / 8, kRowThreads), 1, 16, [&] {
            EmbedKernel(tokens.data(), kRows, gpu_x.get(), kWidth, scale, out.get(), kStride);
          }) == Complaints{});
    const NumericsMxcsrScope mxcsr;
    for (int row = 0; row < kRows; ++row)
      EmbedReference(&x[size_t(tokens[row]) * kStride], kWidth, scale, kStride,
                     &expected[size_t(row) * kStride]);
    CHECK(CountDiffering(out.Read(), expected) == 0);
  }
  CHECK(RunGrid(2, 1, 16, [&] {
          AddKernel(gpu_y.get(), kStride + 64, kRows, kWidth, gpu_x.get(), kStride);
        }) == Complaints{});
  expected = x;
  const NumericsMxcsrScope mxcsr;
  for (int row = 0; row < kRows; ++row)
    AddReference(&y[size_t(row) * (kStride + 64)], kWidth, &expected[size_t(row) * kStride]);
  CHECK(CountDiffering(gpu_x.Read(), expected) == 0);
}

TEST_CASE("finished logits are those of the CPU") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 40);
  std::vector<float> logits(2500);
  for (float& logit : logits) {
    logit = normal(random);
    if (random() % 16 == 0) logit = __builtin_bit_cast(float, static_cast<uint32_t>(random()));
  }
  const int n = static_cast<int>(logits.size());
  for (const float cap : {0.0f, 30.0f}) {
    std::vector<float> out = logits;
    CHECK(RunGrid(BlocksOf(n, kRowThreads * kFinishedOfThread), 1, 16,
                  [&] { FinishLogitsKernel(out.data(), n, cap); }) == Complaints{});
    const NumericsMxcsrScope mxcsr;
    int differing = 0;
    for (int i = 0; i < n; ++i)
      differing += __builtin_bit_cast(uint32_t, out[i]) !=
                   __builtin_bit_cast(uint32_t, FinishReference(logits[i], cap));
    CHECK(differing == 0);
  }
}

TEST_CASE("rows of a step are those of the block") {
  for (const int max_rows : {1, 50}) {
    std::mt19937 random(5);
    int n_pages = 0;
    const HostBlock block = RandomBlock(40, max_rows, 16, max_rows + 100, &n_pages, random);
    const int n = static_cast<int>(block.tokens.size());
    std::vector<int32_t> sampled(64), expected = block.tokens;
    for (int32_t& token : sampled) token = static_cast<int32_t>(random() % 1200) - 100;
    for (int32_t& token : expected)
      if (token < 0) token = sampled[-1 - token];
    for (int32_t& token : expected)
      if (token < 0 || token >= 1000) token = 0;
    std::vector<int32_t> tokens(n), pieces(n), logit_rows(block.logit_rows.size()),
        scored_rows(block.scored_rows.size());
    const std::vector<int32_t> joined = block.Joined();
    CHECK(RunGrid(BlocksOf(n, kRowThreads), 1, 16, [&] {
            PrepareRowsKernel(
                joined.data(), n, sampled.data(), 1000,
                {tokens.data(), pieces.data(), logit_rows.data(), scored_rows.data()});
          }) == Complaints{});
    CHECK(CountDiffering(tokens, expected) == 0);
    CHECK(CountDiffering(pieces, block.Pieces()) == 0);
    CHECK(CountDiffering(logit_rows, block.logit_rows) == 0);
    CHECK(CountDiffering(scored_rows, block.scored_rows) == 0);
  }
}

void CompareHeads(const HeadShape& shape, bool is_normed, int page_tokens) {
  CAPTURE(shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.rotary_dim, is_normed);
  HeadsExample example(shape, is_normed, page_tokens, static_cast<uint32_t>(shape.head_dim), 4);
  const Aligned<uint16_t> qkv(example.qkv), q(example.q), kv(example.kv);
  const Aligned<float> cos[2] = {Aligned(example.cos[0]), Aligned(example.cos[1])};
  const Aligned<float> sin[2] = {Aligned(example.sin[0]), Aligned(example.sin[1])};
  const Aligned<float> q_norm(example.q_norm), k_norm(example.k_norm);
  const std::vector<int32_t> block = example.block.Joined();
  const RotateWork work{block.data(),
                        example.pieces.data(),
                        example.from,
                        example.n_rows(),
                        qkv.get(),
                        example.stride,
                        q.get(),
                        example.q_stride(),
                        shape.n_heads,
                        shape.n_kv_heads,
                        shape.head_dim,
                        shape.rotary_dim,
                        shape.row,
                        {cos[0].get(), cos[1].get()},
                        {sin[0].get(), sin[1].get()},
                        is_normed ? q_norm.get() : nullptr,
                        is_normed ? k_norm.get() : nullptr,
                        HeadsExample::kEps,
                        reinterpret_cast<uint8_t*>(kv.get()),
                        example.page_stride * 2,
                        page_tokens};
  {
    const NumericsMxcsrScope mxcsr;
    for (int row = 0; row < example.n_rows(); ++row) example.Expect(row);
  }
  const auto run = [&](int heads_of_thread, int block_heads, const auto& kernel) {
    CAPTURE(heads_of_thread, block_heads);
    std::fill_n(q.get(), example.q.size(), kPoison);
    std::fill_n(kv.get(), example.kv.size(), kPoison);
    const int64_t n = example.n_rows() * BlocksOf(example.n_all(), heads_of_thread);
    CHECK(RunGrid(BlocksOf(n, block_heads), 1, 16, kernel) == Complaints{});
    CHECK(CountDiffering(q.Read(), example.q) == 0);
    CHECK(CountDiffering(kv.Read(), example.kv) == 0);
  };
  run(1, kBlockHeads, [&] { RotateKernel(work); });
  if (shape.head_dim % 8 != 0 || shape.rotary_dim % 16 != 0) return;
  if (is_normed) {
    run(1, kBlockGroups, [&] { RotatePiecesKernel<1, true>(work); });
    run(4, kBlockGroups, [&] { RotatePiecesKernel<4, true>(work); });
  } else {
    run(1, kBlockGroups, [&] { RotatePiecesKernel<1, false>(work); });
    run(4, kBlockGroups, [&] { RotatePiecesKernel<4, false>(work); });
  }
}

TEST_CASE("heads are those of the CPU, in queries and in pages") {
  constexpr HeadShape kShapes[] = {
      {5, 2, 128, 128, 128}, {3, 1, 64, 64, 64},    {5, 1, 96, 96, 128},  {3, 3, 80, 20, 128},
      {2, 1, 16, 16, 64},    {2, 1, 112, 112, 128}, {3, 1, 72, 36, 128},  {2, 2, 50, 50, 64},
      {7, 1, 24, 24, 64},    {2, 2, 128, 0, 128},   {2, 1, 128, 64, 128}, {1, 1, 72, 32, 128}};
  int page_tokens = 16;
  for (const HeadShape& shape : kShapes) {
    for (const bool is_normed : {false, true}) {
      CompareHeads(shape, is_normed, page_tokens);
      page_tokens = page_tokens == 64 ? 16 : 2 * page_tokens;
    }
  }
}

void CompareSampling(int vocab, int n_rows, uint32_t seed) {
  CAPTURE(vocab);
  std::vector<float> logits(static_cast<size_t>(n_rows) * vocab);
  std::vector<SampleRowArguments> rows;
  for (int row = 0; row < n_rows; ++row)
    rows.push_back(FillRow(row, seed, &logits[static_cast<size_t>(row) * vocab], vocab));
  std::vector<SampleRowResult> results(rows.size(), {.token = -7});
  std::vector<int32_t> sampled(rows.size(), -7);
  const int n_chunks = static_cast<int>(BlocksOf(vocab, kChunk));
  const int n_blocks = static_cast<int>(BlocksOf(vocab, kWeightBlock));
  const int64_t row_bytes = (kScratchHead + 8 * n_chunks + 8 * n_blocks + 15) / 16 * 16;
  const Aligned<uint8_t> scratch(std::vector<uint8_t>(row_bytes * n_rows, 0xff));
  const SampleWork work{logits.data(), n_rows,        vocab,
                        rows.data(),   scratch.get(), row_bytes,
                        n_chunks,      n_blocks,      reinterpret_cast<uint64_t*>(results.data()),
                        sampled.data()};
  CHECK(RunGrid(n_chunks, n_rows, 16, [&] { SampleTopKernel(work); }) == Complaints{});
  CHECK(RunGrid(n_chunks, n_rows, 16, [&] { SampleTokenKernel(work); }) == Complaints{});

  Sampler sampler;
  for (int row = 0; row < n_rows; ++row) {
    const SampleRowArguments& arguments = rows[row];
    CAPTURE(row, row % kLogitKinds, arguments.temperature, arguments.drawable);
    if (arguments.drawable == 0) {
      CHECK(sampled[row] == -1);
      CHECK(results[row].token == -7);
      continue;
    }
    const std::span<const float> of_row(&logits[static_cast<size_t>(row) * vocab],
                                        static_cast<size_t>(vocab));
    SamplingParams params{.temperature = arguments.temperature, .seed = arguments.seed};
    params.vocab_end = arguments.drawable;
    const SampledToken token = sampler.Sample(of_row, params, arguments.position);
    SampleRowResult reference;
    {
      const NumericsMxcsrScope mxcsr;
      reference = SampleReference(of_row, arguments);
    }
    CHECK(reference.token == token.token);
    CHECK(results[row].token == token.token);
    CHECK(sampled[row] == token.token);
    const auto bits = [](float x) { return __builtin_bit_cast(uint32_t, x); };
    CHECK(bits(reference.logprob) == bits(token.logprob));
    CHECK(bits(results[row].logprob) == bits(token.logprob));
  }
}

TEST_CASE("sampled tokens are those of the host's sampler") {
  CompareSampling(331, 48, 1);
  CompareSampling(3, 24, 2);
  CompareSampling(9000, 17, 3);
  CompareSampling(20000, 2, 4);
}

TEST_CASE("sums of a warp are those of one thread") {
  std::mt19937 random(1);
  for (const int n : {1, 2, 31, 33, 256, 501, 1024}) {
    // Powers of two that the last numbers are divided by: with few of them no addition rounds.
    for (const int powers : {0, 12, 24, 60}) {
      std::vector<double> numbers(static_cast<size_t>(n)), expected;
      for (double& number : numbers) {
        number = static_cast<double>(static_cast<float>(random() % (1u << 24) + 1));
        for (int i = 0; i < powers && &number != numbers.data(); ++i)
          number *= random() % 2 == 0 ? 0.5 : 1.0;
        if (random() % 8 == 0) number = 0;
      }
      double sum = 0;
      for (const double number : numbers) expected.push_back(sum += number);
      std::vector<double> sums = numbers;
      double total = 0;
      CHECK(RunGrid(1, 1, 16, [&] {
              if (threadIdx.x >= 32) return;
              const double found = AddUpInWarp(sums.data(), n);
              if (threadIdx.x == 0) total = found;
            }) == Complaints{});
      CHECK(CountDiffering(sums, expected) == 0);
      CHECK(total == sum);
    }
  }
}

TEST_CASE("a walk of a warp is that of one thread, or is undecided") {
  std::mt19937 random(1);
  const auto walk = [](const std::vector<double>& numbers, double start, double target) {
    int found = 0;
    const int n = static_cast<int>(numbers.size());
    CHECK(RunGrid(1, 1, 16, [&] {
            const int passed = WalkInWarp(numbers.data(), n, start, target, 2 * (start + n));
            if (threadIdx.x == 0) found = passed;
          }) == Complaints{});
    return found;
  };
  for (const int n : {1, 40, 256}) {
    std::vector<double> numbers(static_cast<size_t>(n));
    for (double& number : numbers) number = static_cast<float>(random()) * 0x1p-32f;
    double at = 3;
    for (int i = 0; i < n / 2; ++i) at += numbers[i];
    const double after = at + numbers[n / 2];
    CHECK(walk(numbers, 3, (at + after) / 2) == n / 2);
    CHECK(Walk(numbers.data(), n, 3, (at + after) / 2) == n / 2);
    CHECK(walk(numbers, 3, 2) == 0);
    CHECK(walk(numbers, 3, 1000) == n);
    CHECK(Walk(numbers.data(), n, 3, 1000) == n);
    CHECK(walk(numbers, 3, after) == -1);
    CHECK(Walk(numbers.data(), n, 3, after) == n / 2 + 1);
  }
}

}  // namespace
}  // namespace baton
