// S2.rows: row-wise kernels beside their scalar forms, and how fast they are.
#include "engine/cuda/rows.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "engine/cuda/check/graph_time.h"
#include "engine/cuda/check/inputs.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/rows_reference.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr double kCopyTbPerSecond = 4.23;  // S0.memory of an H200
constexpr uint16_t kPoison = 0xffff;

int RoundUp64(int n) { return (n + 63) / 64 * 64; }

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

// Rows of bf16, zeros behind `width`. Some rows have NaN, infinities, zeros of both signs or
// nothing but denormals.
std::vector<uint16_t> RandomRows(int n, int width, int stride, uint32_t seed) {
  std::vector<uint16_t> rows(static_cast<size_t>(n) * stride);
  for (int row = 0; row < n; ++row) {
    const auto distribution = static_cast<Distribution>(row % kDistributions);
    uint16_t* const values = &rows[static_cast<size_t>(row) * stride];
    for (int i = 0; i < width; ++i) values[i] = InputAt(distribution, seed, 1, row, i, width);
    uint16_t& at = values[Mix(seed + row) % width];
    if (row % 16 == 5) at = 0xffc1;
    if (row % 16 == 6) at = 0x7f80;
    if (row % 16 == 7) at = 0xff80;
    if (row % 16 == 8) std::fill_n(values, width, uint16_t{0x8000});
    if (row % 16 == 9)
      for (int i = 0; i < width; ++i) values[i] = values[i] & 0x807f;
  }
  return rows;
}

std::vector<float> RandomFloats(int n, float around, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(around, 1.0f);
  std::vector<float> values(n);
  for (float& value : values) value = Bf16ToFloat(FloatToBf16(normal(random)));
  return values;
}

class RowsCheck {
 public:
  RowsCheck(Report& report, bool is_quick) : report_(report), is_quick_(is_quick) {}

  void CompareNorms(int width);
  void CompareSums(int width);
  void CompareRotations(const RotateShape& shape, bool is_normed, int page_tokens);
  void ComparePrepared(int n_pieces, int max_rows);
  void CompareLogits(float cap);
  void Measure();

 private:
  void Add(const std::string& name, const std::string& shape, uint64_t differing) {
    report_.AddDifferences("S2.rows", name, shape, differing);
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
      uint64_t differing = CountDiffering(out.Read(), expected);

      std::vector<uint16_t> expected_rows(static_cast<size_t>(n) * out_stride, kPoison);
      for (size_t i = 0; i < gathered.size(); ++i)
        std::copy_n(&expected[size_t(gathered[i]) * out_stride], out_stride,
                    &expected_rows[i * out_stride]);
      out.Poison(stream_);
      GPU_CHECK(NormGathered({gpu_x.get(), stride}, gpu_rows.get(),
                             static_cast<int>(gathered.size()), norm, {out.get(), out_stride},
                             stream_));
      stream_.Wait();
      differing += CountDiffering(out.Read(), expected_rows);

      gpu_x.Write(x);
      GPU_CHECK(Norm({gpu_x.get(), stride}, n, norm, {gpu_x.get(), stride}, stream_));
      stream_.Wait();
      const std::vector<uint16_t> in_place = gpu_x.Read();
      for (int row = 0; row < n; ++row)
        for (int i = 0; i < stride; ++i)
          differing += in_place[size_t(row) * stride + i] != expected[size_t(row) * out_stride + i];
      gpu_x.Write(x);
      Add(is_centred ? "LayerNorm" : "RMSNorm", std::to_string(n) + " x " + std::to_string(width),
          differing);
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

// A block of metadata as device/metadata_block.h has it, whose planes do not lie apart.
struct HostBlock {
  std::vector<int32_t> tokens, positions, piece_begin{0}, page_begin{0}, pages, logit_rows,
      scored_rows, ropes;

  std::vector<int32_t> Joined() const {
    std::vector<int32_t> all = {
        static_cast<int32_t>(tokens.size()),      static_cast<int32_t>(ropes.size()),
        static_cast<int32_t>(pages.size()),       static_cast<int32_t>(logit_rows.size()),
        static_cast<int32_t>(scored_rows.size()), 0};
    for (const auto* part : {&tokens, &positions, &piece_begin, &page_begin, &pages, &logit_rows,
                             &scored_rows, &ropes})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  std::vector<int32_t> Pieces() const {
    std::vector<int32_t> pieces;
    for (size_t piece = 0; piece < ropes.size(); ++piece)
      pieces.resize(static_cast<size_t>(piece_begin[piece + 1]), static_cast<int32_t>(piece));
    return pieces;
  }
};

// Pieces of at most max_rows rows; pages are taken from [0, n_pages), each once, and those of the
// past may be trimmed.
HostBlock RandomBlock(int n_pieces, int max_rows, int page_tokens, int max_position, int* n_pages,
                      std::mt19937& random) {
  HostBlock block;
  for (int piece = 0; piece < n_pieces; ++piece) {
    const int rows = 1 + static_cast<int>(random() % max_rows);
    const int past = static_cast<int>(random() % (max_position - rows));
    for (int row = 0; row < rows; ++row) {
      block.tokens.push_back(random() % 3 == 0 ? -1 - static_cast<int32_t>(random() % 64)
                                               : static_cast<int32_t>(random() % 1000));
      block.positions.push_back(past + row);
    }
    block.piece_begin.push_back(static_cast<int32_t>(block.tokens.size()));
    for (int page = 0; page <= (past + rows - 1) / page_tokens; ++page) block.pages.push_back(0);
    block.page_begin.push_back(static_cast<int32_t>(block.pages.size()));
    block.ropes.push_back(static_cast<int32_t>(random() % 2));
  }
  *n_pages = static_cast<int>(block.pages.size());
  for (int page = 0; page < *n_pages; ++page) block.pages[page] = page;
  std::shuffle(block.pages.begin(), block.pages.end(), random);
  for (int32_t& page : block.pages)
    if (random() % 4 == 0) page = -2 - page;
  for (int row = 0; row < static_cast<int>(block.tokens.size()); ++row) {
    if (random() % 2 == 0) block.logit_rows.push_back(row);
    if (random() % 3 == 0) block.scored_rows.push_back(row);
  }
  return block;
}

void RowsCheck::CompareRotations(const RotateShape& shape, bool is_normed, int page_tokens) {
  constexpr int kPositions = 400;
  std::mt19937 random(++seed_);
  int n_pages = 0;
  const HostBlock block = RandomBlock(6, 20, page_tokens, kPositions, &n_pages, random);
  const int n = static_cast<int>(block.tokens.size()), from = 1, rows = n - from;
  const int n_heads = shape.n_heads + 2 * shape.n_kv_heads, d = shape.head_dim;
  const int half = shape.rotary_dim / 2, stride = RoundUp64(n_heads * d);
  const int q_stride = shape.n_heads * shape.row;
  const std::vector<uint16_t> qkv = RandomRows(rows, n_heads * d, stride, ++seed_);
  std::vector<float> cos[2], sin[2];
  for (int range = 0; range < 2; ++range) {
    cos[range] = RandomFloats(kPositions * half + 1, 0, ++seed_);
    sin[range] = RandomFloats(kPositions * half + 1, 0, ++seed_);
  }
  const std::vector<float> q_norm = RandomFloats(d, 1, ++seed_);
  const std::vector<float> k_norm = RandomFloats(d, 1, ++seed_);
  const int64_t plane = int64_t{2} * shape.n_kv_heads * page_tokens * shape.row;
  const int64_t page_stride = plane + 64;  // values
  std::vector<uint16_t> kv(static_cast<size_t>(n_pages * page_stride), kPoison);
  std::vector<uint16_t> q(static_cast<size_t>(rows) * q_stride);
  const std::vector<int32_t> pieces = block.Pieces();
  constexpr float kEps = 1e-6f;
  InParallel(rows, [&](int row) {
    const int piece = pieces[from + row], position = block.positions[from + row];
    const int range = block.ropes[piece], slot = position % page_tokens;
    const int32_t entry = block.pages[block.page_begin[piece] + position / page_tokens];
    const int64_t page = entry >= 0 ? entry : -2 - entry;
    for (int head = 0; head < n_heads; ++head) {
      const uint16_t* const x = &qkv[size_t(row) * stride + head * d];
      const bool is_query = head < shape.n_heads;
      const bool is_value = head >= shape.n_heads + shape.n_kv_heads;
      std::vector<uint16_t> values(x, x + d);
      if (!is_value) {
        const float* const norm = is_query ? q_norm.data() : k_norm.data();
        values = HeadReference(x, d, shape.rotary_dim, is_normed ? norm : nullptr, kEps,
                               &cos[range][size_t(position) * half],
                               &sin[range][size_t(position) * half]);
      }
      values.resize(static_cast<size_t>(shape.row));
      const int kv_head = (head - shape.n_heads) % shape.n_kv_heads;
      uint16_t* to = &q[size_t(row) * q_stride];
      if (is_query) {
        to += head * shape.row;
      } else {
        const int64_t lists = is_value ? shape.n_kv_heads + kv_head : kv_head;
        to = &kv[page * page_stride + (lists * page_tokens + slot) * shape.row];
      }
      std::copy(values.begin(), values.end(), to);
    }
  });

  const GpuArray<int32_t> gpu_block = OnGpu(block.Joined()), gpu_pieces = OnGpu(pieces);
  const GpuArray<float> gpu_cos[2] = {OnGpu(cos[0]), OnGpu(cos[1])};
  const GpuArray<float> gpu_sin[2] = {OnGpu(sin[0]), OnGpu(sin[1])};
  const GpuArray<float> gpu_q_norm = OnGpu(q_norm), gpu_k_norm = OnGpu(k_norm);
  const GpuArray<uint16_t> gpu_qkv = OnGpu(qkv);
  GpuArray<uint16_t> gpu_q(static_cast<int64_t>(q.size()));
  GpuArray<uint16_t> gpu_kv(static_cast<int64_t>(kv.size()));
  gpu_q.Poison(stream_);
  gpu_kv.Poison(stream_);
  const RotateArguments arguments{{gpu_cos[0].get(), gpu_cos[1].get()},
                                  {gpu_sin[0].get(), gpu_sin[1].get()},
                                  is_normed ? gpu_q_norm.get() : nullptr,
                                  is_normed ? gpu_k_norm.get() : nullptr,
                                  kEps};
  GPU_CHECK(RotateAndStore(gpu_block.get(), gpu_pieces.get(), from, n,
                           {const_cast<uint16_t*>(gpu_qkv.get()), stride}, shape, arguments,
                           {reinterpret_cast<uint8_t*>(gpu_kv.get()), page_stride * 2, page_tokens},
                           {gpu_q.get(), q_stride}, stream_));
  stream_.Wait();
  const std::string name =
      std::to_string(shape.n_heads) + " and " + std::to_string(shape.n_kv_heads) + " heads of " +
      std::to_string(d) + ", " + std::to_string(shape.rotary_dim) + " rotated" +
      (is_normed ? ", normed" : "") + ", pages of " + std::to_string(page_tokens);
  Add("queries", name, CountDiffering(gpu_q.Read(), q));
  Add("keys and values in pages", name, CountDiffering(gpu_kv.Read(), kv));
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
  MeasureNorm(512, 4096, false);
  MeasureNorm(513, 4096, false);
  for (const int rows : {1, 32, 2048}) MeasureRotation(rows);
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
  // n_heads, n_kv_heads, head_dim, rotary_dim, row
  constexpr RotateShape kShapes[] = {
      {32, 8, 128, 128, 128}, {14, 2, 64, 64, 64},   {5, 1, 96, 96, 128}, {3, 3, 80, 20, 128},
      {2, 1, 16, 16, 64},     {4, 4, 112, 112, 128}, {3, 1, 72, 36, 128}, {2, 2, 50, 50, 64},
      {7, 1, 24, 24, 64},     {8, 8, 128, 0, 128}};
  int page_tokens = 16;
  for (const RotateShape& shape : kShapes) {
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
