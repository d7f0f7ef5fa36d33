// S2.rows: row-wise kernels beside their scalar forms, and how fast they are.
#include "engine/cuda/rows.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "engine/cuda/check/graph_time.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/rows_inputs.h"
#include "engine/cuda/check/rows_reference.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr double kCopyTbPerSecond = 4.23;  // S0.memory of an H200

// Runs fn(i) for all i below n on all processors, with the control word of the CPU's kernels.
template <typename Fn>
void InParallel(int n, const Fn& fn) {
  const int n_threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back([&fn, n, n_threads, t] {
      const NumericsMxcsrScope mxcsr;
      for (int i = t; i < n; i += n_threads) fn(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
GpuArray<T> OnGpu(const std::vector<T>& values) {
  GpuArray<T> array(static_cast<int64_t>(values.size()));
  array.Write(values);
  return array;
}

template <typename T>
uint64_t CountDiffering(const std::vector<T>& left, const std::vector<T>& right) {
  uint64_t n = left.size() == right.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) n += left[i] != right[i];
  return n;
}

class RowsCheck {
 public:
  RowsCheck(Report& report, bool is_quick) : report_(report), is_quick_(is_quick) {}

  void CompareNorms(int width);
  void CompareSums(int width);
  void CompareRotations(const HeadShape& heads, bool is_normed, int page_tokens);
  void ComparePrepared(int n_pieces, int max_rows);
  void CompareLogits(float cap);
  void Measure();

 private:
  void Add(const std::string& name, const std::string& shape, uint64_t differing,
           const std::string& note = "") {
    report_.AddDifferences("S2.rows", name, shape, differing, note);
  }
  void MeasureNorm(int rows, int width, bool is_centred);
  void MeasureRotation(int rows);
  void AddTime(const std::string& name, const std::string& shape, double micros, double bytes);

  Report& report_;
  const bool is_quick_;
  const Stream stream_;
  uint32_t seed_ = std::random_device()();
};

void RowsCheck::CompareNorms(int width) {
  const int stride = RoundUp64(width), out_stride = stride + 64;
  for (const int n : {3, 37, is_quick_ ? 520 : 1027}) {
    const std::vector<uint16_t> x = RandomRows(n, width, stride, ++seed_);
    const std::vector<float> weight = RandomFloats(width, 1, ++seed_);
    const std::vector<float> bias = RandomFloats(width, 0, ++seed_);
    std::vector<int32_t> gathered(n / 2 + 1);
    for (int32_t& row : gathered) row = static_cast<int32_t>(Mix(++seed_) % n);
    GpuArray<uint16_t> gpu_x = OnGpu(x), out(int64_t{n} * out_stride);
    const GpuArray<float> gpu_weight = OnGpu(weight), gpu_bias = OnGpu(bias);
    const GpuArray<int32_t> gpu_rows = OnGpu(gathered);
    for (const bool is_centred : {false, true}) {
      NormArguments norm{gpu_weight.get(), is_centred ? gpu_bias.get() : nullptr, 1e-5f, width};
      std::vector<uint16_t> expected(static_cast<size_t>(n) * out_stride);
      InParallel(n, [&](int row) {
        NormReference(&x[size_t(row) * stride], weight.data(), is_centred ? bias.data() : nullptr,
                      width, norm.eps, out_stride, &expected[size_t(row) * out_stride]);
      });
      out.Poison(stream_);
      GPU_CHECK(Norm({gpu_x.get(), stride}, n, norm, {out.get(), out_stride}, stream_));
      stream_.Wait();
      const uint64_t plain = CountDiffering(out.Read(), expected);

      std::vector<uint16_t> expected_rows(static_cast<size_t>(n) * out_stride, kPoison);
      for (size_t i = 0; i < gathered.size(); ++i)
        std::copy_n(&expected[size_t(gathered[i]) * out_stride], out_stride,
                    &expected_rows[i * out_stride]);
      out.Poison(stream_);
      GPU_CHECK(NormGathered({gpu_x.get(), stride}, gpu_rows.get(),
                             static_cast<int>(gathered.size()), norm, {out.get(), out_stride},
                             stream_));
      stream_.Wait();
      const uint64_t of_gathered = CountDiffering(out.Read(), expected_rows);

      gpu_x.Write(x);
      GPU_CHECK(Norm({gpu_x.get(), stride}, n, norm, {gpu_x.get(), stride}, stream_));
      stream_.Wait();
      const std::vector<uint16_t> written = gpu_x.Read();
      uint64_t in_place = 0;
      for (int row = 0; row < n; ++row)
        for (int i = 0; i < stride; ++i)
          in_place += written[size_t(row) * stride + i] != expected[size_t(row) * out_stride + i];
      gpu_x.Write(x);
      const uint64_t differing = plain + of_gathered + in_place;
      Add(is_centred ? "LayerNorm" : "RMSNorm", std::to_string(n) + " x " + std::to_string(width),
          differing,
          differing == 0 ? ""
                         : std::to_string(plain) + ", gathered " + std::to_string(of_gathered) +
                               ", in place " + std::to_string(in_place));
    }
  }
}

void RowsCheck::CompareSums(int width) {
  constexpr int kRows = 67, kVocab = 50;
  const int stride = RoundUp64(width);
  const std::vector<uint16_t> x = RandomRows(kRows, width, stride, ++seed_);
  const std::vector<uint16_t> y = RandomRows(kRows, width, stride + 64, ++seed_);
  std::vector<uint16_t> expected = x;
  InParallel(kRows, [&](int row) {
    AddReference(&y[size_t(row) * (stride + 64)], width, &expected[size_t(row) * stride]);
  });
  GpuArray<uint16_t> gpu_x = OnGpu(x);
  const GpuArray<uint16_t> gpu_y = OnGpu(y);
  GPU_CHECK(baton::Add({gpu_y.get(), stride + 64}, kRows, width, {gpu_x.get(), stride}, stream_));
  stream_.Wait();
  const std::string shape = std::to_string(kRows) + " x " + std::to_string(width);
  Add("sum of rows", shape, CountDiffering(gpu_x.Read(), expected));

  const std::vector<uint16_t> table = RandomRows(kVocab, width, stride, ++seed_);
  const GpuArray<uint16_t> gpu_table = OnGpu(table);
  std::vector<int32_t> tokens(kRows);
  for (int32_t& token : tokens) token = static_cast<int32_t>(Mix(++seed_) % kVocab);
  const GpuArray<int32_t> gpu_tokens = OnGpu(tokens);
  for (const float scale : {1.0f, 45.25f}) {
    InParallel(kRows, [&](int row) {
      EmbedReference(&table[size_t(tokens[row]) * stride], width, scale, stride,
                     &expected[size_t(row) * stride]);
    });
    gpu_x.Poison(stream_);
    GPU_CHECK(Embed(gpu_tokens.get(), kRows, gpu_table.get(), width, scale, {gpu_x.get(), stride},
                    stream_));
    stream_.Wait();
    Add(scale == 1 ? "embeddings" : "embeddings, scaled", shape,
        CountDiffering(gpu_x.Read(), expected));
  }
}

void RowsCheck::CompareRotations(const HeadShape& heads, bool is_normed, int page_tokens) {
  HeadsExample example(heads, is_normed, page_tokens, ++seed_);
  InParallel(example.n_rows(), [&](int row) { example.Expect(row); });
  const GpuArray<int32_t> block = OnGpu(example.block.Joined()), pieces = OnGpu(example.pieces);
  const GpuArray<float> cos[2] = {OnGpu(example.cos[0]), OnGpu(example.cos[1])};
  const GpuArray<float> sin[2] = {OnGpu(example.sin[0]), OnGpu(example.sin[1])};
  const GpuArray<float> q_norm = OnGpu(example.q_norm), k_norm = OnGpu(example.k_norm);
  const GpuArray<uint16_t> qkv = OnGpu(example.qkv);
  GpuArray<uint16_t> q(static_cast<int64_t>(example.q.size()));
  GpuArray<uint16_t> kv(static_cast<int64_t>(example.kv.size()));
  q.Poison(stream_);
  kv.Poison(stream_);
  const RotateArguments arguments{{cos[0].get(), cos[1].get()},
                                  {sin[0].get(), sin[1].get()},
                                  is_normed ? q_norm.get() : nullptr,
                                  is_normed ? k_norm.get() : nullptr,
                                  example.kEps};
  const RotateShape shape{heads.n_heads, heads.n_kv_heads, heads.head_dim, heads.rotary_dim,
                          heads.row};
  GPU_CHECK(
      RotateAndStore(block.get(), pieces.get(), example.from, example.from + example.n_rows(),
                     {qkv.get(), example.stride}, shape, arguments,
                     {reinterpret_cast<uint8_t*>(kv.get()), example.page_stride * 2, page_tokens},
                     {q.get(), example.q_stride()}, stream_));
  stream_.Wait();
  const std::string name =
      std::to_string(heads.n_heads) + " and " + std::to_string(heads.n_kv_heads) + " heads of " +
      std::to_string(heads.head_dim) + ", " + std::to_string(heads.rotary_dim) + " rotated" +
      (is_normed ? ", normed" : "") + ", pages of " + std::to_string(page_tokens) + ", " +
      std::to_string(example.n_rows()) + " rows";
  Add("queries", name, CountDiffering(q.Read(), example.q));
  Add("keys and values in pages", name, CountDiffering(kv.Read(), example.kv));
}

void RowsCheck::ComparePrepared(int n_pieces, int max_rows) {
  constexpr int kVocab = 1000;
  std::mt19937 random(++seed_);
  int n_pages = 0;
  const HostBlock block = RandomBlock(n_pieces, max_rows, 16, max_rows + 100, &n_pages, random);
  const int n = static_cast<int>(block.tokens.size());
  std::vector<int32_t> sampled(64);
  for (int32_t& token : sampled) token = static_cast<int32_t>(random() % 1200) - 100;
  std::vector<int32_t> tokens = block.tokens;
  for (int32_t& token : tokens) {
    if (token >= 0) continue;
    token = sampled[-1 - token];
    if (token < 0 || token >= kVocab) token = 0;
  }
  const GpuArray<int32_t> gpu_block = OnGpu(block.Joined()), gpu_sampled = OnGpu(sampled);
  GpuArray<int32_t> gpu_tokens(n), pieces(n), logit_rows(n), scored_rows(n);
  for (GpuArray<int32_t>* array : {&gpu_tokens, &pieces, &logit_rows, &scored_rows})
    array->Poison(stream_);
  GPU_CHECK(PrepareRows(gpu_block.get(), n, gpu_sampled.get(), kVocab,
                        {gpu_tokens.get(), pieces.get(), logit_rows.get(), scored_rows.get()},
                        stream_));
  stream_.Wait();
  const auto poisoned = [n](std::vector<int32_t> rows) {
    rows.resize(static_cast<size_t>(n), -1);
    return rows;
  };
  const uint64_t differing = CountDiffering(gpu_tokens.Read(), tokens) +
                             CountDiffering(pieces.Read(), block.Pieces()) +
                             CountDiffering(logit_rows.Read(), poisoned(block.logit_rows)) +
                             CountDiffering(scored_rows.Read(), poisoned(block.scored_rows));
  Add("rows of a step", std::to_string(n) + " rows, " + std::to_string(n_pieces) + " pieces",
      differing);
}

void RowsCheck::CompareLogits(float cap) {
  constexpr int kLogits = 3 * 32003;
  std::mt19937 random(++seed_);
  std::normal_distribution<float> normal(0, 40);
  std::vector<float> logits(kLogits);
  for (float& logit : logits) {
    logit = normal(random);
    if (random() % 64 == 0) logit = __builtin_bit_cast(float, static_cast<uint32_t>(random()));
    if (random() % 1000 == 0) logit = random() % 2 == 0 ? __builtin_inff() : -__builtin_inff();
  }
  std::vector<uint32_t> expected(kLogits);
  InParallel(kLogits, [&](int i) {
    expected[i] = __builtin_bit_cast(uint32_t, FinishReference(logits[i], cap));
  });
  GpuArray<float> gpu = OnGpu(logits);
  GPU_CHECK(FinishLogits(gpu.get(), kLogits, cap, stream_));
  stream_.Wait();
  std::vector<uint32_t> found;
  for (const float value : gpu.Read()) found.push_back(__builtin_bit_cast(uint32_t, value));
  Add("logits", "cap " + std::to_string(static_cast<int>(cap)), CountDiffering(found, expected));
}

// ---- times ----

void RowsCheck::AddTime(const std::string& name, const std::string& shape, double micros,
                        double bytes) {
  report_.Add({"S2.rows", name, shape, micros, "us", Verdict::kInfo,
               std::to_string(static_cast<int>(100 * bytes / micros * 1e-6 / kCopyTbPerSecond)) +
                   " % of the copy's bandwidth, cache warm"});
}

void RowsCheck::MeasureNorm(int rows, int width, bool is_centred) {
  GpuArray<uint16_t> x(int64_t{rows} * width), out(int64_t{rows} * width);
  x.Write(RandomRows(rows, width, width, ++seed_));
  const GpuArray<float> weight = OnGpu(RandomFloats(width, 1, 1));
  const NormArguments norm{weight.get(), is_centred ? weight.get() : nullptr, 1e-5f, width};
  const double micros = MicrosInGraph(stream_, 50, [&] {
    GPU_CHECK(Norm({x.get(), width}, rows, norm, {out.get(), width}, stream_));
  });
  AddTime(is_centred ? "LayerNorm" : "RMSNorm",
          std::to_string(rows) + " x " + std::to_string(width), micros,
          4.0 * static_cast<double>(x.size()));
}

void RowsCheck::MeasureRotation(int rows) {
  const RotateShape shape{32, 8, 128, 128, 128};
  constexpr int kPositions = 8192, kPageTokens = 64, kStride = 48 * 128;
  HostBlock block;
  for (int row = 0; row < rows; ++row) {
    block.tokens.push_back(0);
    block.positions.push_back(row);
  }
  block.piece_begin.push_back(rows);
  for (int page = 0; page <= rows / kPageTokens; ++page) block.pages.push_back(page);
  block.page_begin.push_back(static_cast<int32_t>(block.pages.size()));
  block.ropes.push_back(0);
  const GpuArray<int32_t> gpu_block = OnGpu(block.Joined()), pieces = OnGpu(block.Pieces());
  const GpuArray<float> table = OnGpu(RandomFloats(kPositions * 64, 0, 1));
  GpuArray<uint16_t> qkv(int64_t{rows} * kStride), q(int64_t{rows} * 32 * 128);
  qkv.Write(RandomRows(rows, kStride, kStride, 1));
  const int64_t page_bytes = int64_t{2} * 8 * kPageTokens * 128 * 2;
  GpuArray<uint8_t> kv(page_bytes * static_cast<int64_t>(block.pages.size()));
  for (const bool is_normed : {false, true}) {
    RotateArguments arguments{{table.get(), table.get()}, {table.get(), table.get()}};
    if (is_normed) arguments.q_norm = arguments.k_norm = table.get();
    const double micros = MicrosInGraph(stream_, 50, [&] {
      GPU_CHECK(RotateAndStore(gpu_block.get(), pieces.get(), 0, rows, {qkv.get(), kStride}, shape,
                               arguments, {kv.get(), page_bytes, kPageTokens}, {q.get(), 32 * 128},
                               stream_));
    });
    AddTime(is_normed ? "norm, RoPE and pages" : "RoPE and pages",
            std::to_string(rows) + " rows of an 8B model", micros,
            4.0 * static_cast<double>(qkv.size()));
  }
}

void RowsCheck::Measure() {
  for (const int rows : {1, 32, 256, 2048}) MeasureNorm(rows, 4096, false);
  for (const int rows : {1, 2048}) MeasureNorm(rows, 4096, true);
  MeasureNorm(1, 2048, false);
  for (const int rows : {512, 513, 1024, 1536}) MeasureNorm(rows, 4096, false);
  for (const int rows : {1, 32, 256, 352, 353, 2048}) MeasureRotation(rows);
  for (const int rows : {1, 2048}) {
    constexpr int kWidth = 4096;
    GpuArray<uint16_t> x(int64_t{rows} * kWidth), y(int64_t{rows} * kWidth);
    const double micros = MicrosInGraph(stream_, 50, [&] {
      GPU_CHECK(baton::Add({y.get(), kWidth}, rows, kWidth, {x.get(), kWidth}, stream_));
    });
    AddTime("sum of rows", std::to_string(rows) + " x 4096", micros,
            6.0 * static_cast<double>(x.size()));
  }
  for (const int rows : {1, 256}) {
    HostBlock block;
    for (int row = 0; row < rows; ++row) {
      block.tokens.push_back(1);
      block.positions.push_back(0);
      block.piece_begin.push_back(row + 1);
      block.page_begin.push_back(row + 1);
      block.pages.push_back(row);
      block.logit_rows.push_back(row);
      block.ropes.push_back(0);
    }
    const GpuArray<int32_t> gpu_block = OnGpu(block.Joined());
    GpuArray<int32_t> to(4 * rows);
    const StepRowsView view{to.get(), to.get() + rows, to.get() + 2 * rows, to.get() + 3 * rows};
    const double micros = MicrosInGraph(stream_, 50, [&] {
      GPU_CHECK(PrepareRows(gpu_block.get(), rows, nullptr, 32000, view, stream_));
    });
    report_.Add({"S2.rows", "rows of a step", std::to_string(rows) + " rows", micros, "us"});
  }
}

}  // namespace

void CheckRowKernels(Report& report, const CheckOptions& options) {
  RowsCheck check(report, options.is_quick);
  for (const int width : {64, 96, 112, 331, 344, 576, 1000, 2048, 4096, 8192})
    check.CompareNorms(width);
  for (const int width : {64, 112, 331, 4096}) check.CompareSums(width);
  constexpr HeadShape kShapes[] = {
      {32, 8, 128, 128, 128}, {14, 2, 64, 64, 64},   {5, 1, 96, 96, 128}, {3, 3, 80, 20, 128},
      {2, 1, 16, 16, 64},     {4, 4, 112, 112, 128}, {3, 1, 72, 36, 128}, {2, 2, 50, 50, 64},
      {7, 1, 24, 24, 64},     {8, 8, 128, 0, 128}};
  int page_tokens = 16;
  for (const HeadShape& shape : kShapes) {
    for (const bool is_normed : {false, true}) {
      check.CompareRotations(shape, is_normed, page_tokens);
      page_tokens = page_tokens == 64 ? 16 : 2 * page_tokens;
    }
  }
  check.ComparePrepared(256, 1);
  check.ComparePrepared(1, 8192);
  check.ComparePrepared(300, 50);
  for (const float cap : {0.0f, 30.0f, 50.0f}) check.CompareLogits(cap);
  check.Measure();
}

}  // namespace baton
