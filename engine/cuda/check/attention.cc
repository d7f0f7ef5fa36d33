// S2.attention: attention over pages against a reference in fp64, and against itself: bits of a row
// depend neither on its piece nor on pages, ranges, splits or graphs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "engine/cuda/attention.h"
#include "engine/cuda/check/graph_time.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/products.h"

namespace baton {
namespace {

constexpr const char* kPart = "S2.attention";
constexpr double kCopyBytesPerSecond = 4.2e12;
constexpr int32_t kNoPage = -1;

// Rows [position, position + rows) of a sequence.
struct Piece {
  int sequence, position, rows;
};

// Calls work(i) for i below n on some threads.
void InParallel(int n, const std::function<void(int)>& work) {
  const int n_threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  std::vector<std::thread> threads;
  for (int first = 0; first < n_threads; ++first)
    threads.emplace_back([&, first] {
      for (int i = first; i < n; i += n_threads) work(i);
    });
  for (std::thread& thread : threads) thread.join();
}

float Widened(uint16_t value) { return __builtin_bit_cast(float, uint32_t{value} << 16); }

std::string NameOf(const AttentionShape& shape, int page_tokens) {
  std::string name = std::to_string(shape.n_heads) + " heads, " + std::to_string(shape.n_kv_heads) +
                     " of KV, " + std::to_string(shape.row) + " dims, pages of " +
                     std::to_string(page_tokens);
  return shape.window == 0 ? name : name + ", window " + std::to_string(shape.window);
}

// Keys and values of sequences, which pages of any size hold.
struct Model {
  AttentionShape shape;
  uint32_t seed;

  uint16_t Of(int sequence, bool is_value, int head, int key, int column) const {
    return InputAt(Distribution::kNormal, seed, 2 * sequence + (is_value ? 1 : 0), key,
                   head * shape.row + column, int64_t{shape.n_kv_heads} * shape.row);
  }
};

// Pages of sequences in a random order. Pages that nobody may read are NaN.
class Pages {
 public:
  // first_keys: of each sequence, the first key that a row sees.
  Pages(const Model& model, int page_tokens, const std::vector<int>& n_keys,
        const std::vector<int>& first_keys)
      : page_tokens_(page_tokens),
        plane_(int64_t{2} * model.shape.n_kv_heads * page_tokens * model.shape.row) {
    struct Place {
      int sequence, index;
    };
    std::vector<Place> places;
    tables_.resize(n_keys.size());
    for (size_t i = 0; i < n_keys.size(); ++i) {
      tables_[i].assign((n_keys[i] + page_tokens - 1) / page_tokens, kNoPage);
      for (int j = first_keys[i] / page_tokens; j < std::ssize(tables_[i]); ++j)
        places.push_back({static_cast<int>(i), j});
    }
    const int n_pages = static_cast<int>(places.size() + places.size() / 8 + 1);
    std::vector<int32_t> ids(n_pages);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(model.seed + page_tokens));
    // Each page has two planes, of which the second one is read.
    std::vector<uint16_t> values(n_pages * 2 * plane_, 0xffff);
    InParallel(static_cast<int>(places.size()), [&](int i) {
      const auto [sequence, index] = places[i];
      tables_[sequence][index] = ids[i];
      uint16_t* at = values.data() + (int64_t{ids[i]} * 2 + 1) * plane_;
      for (const bool is_value : {false, true})
        for (int head = 0; head < model.shape.n_kv_heads; ++head)
          for (int key = 0; key < page_tokens; ++key)
            for (int column = 0; column < model.shape.row; ++column)
              *at++ = model.Of(sequence, is_value, head, index * page_tokens + key, column);
    });
    memory_.emplace_back(std::ssize(values)).Write(values);
  }

  KvPlaneView view() const {
    return {reinterpret_cast<uint8_t*>(memory_[0].get() + plane_), plane_ * 4, page_tokens_};
  }
  const std::vector<int32_t>& table(int sequence) const { return tables_[sequence]; }

 private:
  int page_tokens_;
  int64_t plane_;  // values
  std::vector<std::vector<int32_t>> tables_;
  std::vector<GpuArray<uint16_t>> memory_;  // one
};

std::vector<int32_t> BlockOf(const std::vector<Piece>& pieces, const Pages& pages) {
  std::vector<int32_t> positions, piece_begin = {0}, page_begin = {0}, entries;
  for (const Piece& piece : pieces) {
    for (int i = 0; i < piece.rows; ++i) positions.push_back(piece.position + i);
    const auto& table = pages.table(piece.sequence);
    entries.insert(entries.end(), table.begin(), table.end());
    piece_begin.push_back(static_cast<int32_t>(positions.size()));
    page_begin.push_back(static_cast<int32_t>(entries.size()));
  }
  std::vector<int32_t> block = {static_cast<int32_t>(positions.size()),
                                static_cast<int32_t>(pieces.size()),
                                static_cast<int32_t>(entries.size()),
                                0,
                                0,
                                0};
  block.resize(block.size() + positions.size());  // tokens
  for (const auto* numbers : {&positions, &piece_begin, &page_begin, &entries})
    block.insert(block.end(), numbers->begin(), numbers->end());
  block.resize(block.size() + pieces.size());  // ropes
  return block;
}

int RowsOf(const std::vector<Piece>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), 0,
                         [](int sum, const Piece& piece) { return sum + piece.rows; });
}

// Pieces of the same rows, each of at most max_rows() rows.
std::vector<Piece> Cut(const std::vector<Piece>& pieces, const std::function<int()>& max_rows) {
  std::vector<Piece> cut;
  for (Piece piece : pieces) {
    while (piece.rows > 0) {
      const int rows = std::min(piece.rows, max_rows());
      cut.push_back({piece.sequence, piece.position, rows});
      piece.position += rows;
      piece.rows -= rows;
    }
  }
  return cut;
}

// Computes the outputs of all rows, in launches of at most `rows_of_launch` rows, into poison.
void Compute(const std::vector<Piece>& pieces, const Pages& pages, const AttentionShape& shape,
             const uint16_t* q, int rows_of_launch, bool has_memory, GpuArray<uint16_t>& out,
             const Stream& stream, ChunkKernel chunk_kernel = ChunkKernel::kWarpgroups) {
  const std::vector<int32_t> numbers = BlockOf(pieces, pages);
  GpuArray<int32_t> block(std::ssize(numbers));
  block.Write(numbers);
  const int n_rows = RowsOf(pieces);
  const int max_rows = std::min(rows_of_launch, n_rows);
  // Partial results need what is behind the lists; a byte of it is not enough for one.
  const int64_t all = AttentionWorkBytes(max_rows, shape);
  GpuArray<uint8_t> memory(all);
  memory.Poison(stream);
  out.Poison(stream);
  const AttentionWork work{memory.get(), has_memory ? all : AttentionListBytes(max_rows, shape),
                           max_rows};
  const auto stride = int64_t{shape.n_heads} * shape.row;
  for (int from = 0; from < n_rows; from += rows_of_launch) {
    const AttentionRange range{from, std::min(from + rows_of_launch, n_rows),
                               static_cast<int>(pieces.size()), std::ssize(pieces) == n_rows};
    GPU_CHECK(PrepareAttention(block.get(), range, shape, work, stream));
    for (int layer = 0; layer < 2; ++layer)  // counters of the first are used again
      GPU_CHECK(Attend(block.get(), range, q + from * stride, pages.view(), shape, work,
                       out.get() + from * stride, stream, chunk_kernel));
  }
  stream.Wait();
}

// Errors of some rows of each piece against fp64.
struct Errors {
  double all = 0, worst = 0;  // of all rows, of a head of a row: |out - reference| / |reference|
  int n_rows = 0;
};
Errors ErrorsOf(const Model& model, const std::vector<Piece>& pieces,
                const std::vector<uint16_t>& q, const std::vector<uint16_t>& out) {
  struct Row {
    int at, sequence, position;
  };
  std::vector<Row> rows;
  int first = 0;
  for (const Piece& piece : pieces) {
    const int step = std::max(1, piece.rows / 4);
    for (int i = 0; i < piece.rows; i += step)
      rows.push_back({first + i, piece.sequence, piece.position + i});
    if ((piece.rows - 1) % step != 0)
      rows.push_back({first + piece.rows - 1, piece.sequence, piece.position + piece.rows - 1});
    first += piece.rows;
  }
  const AttentionShape& shape = model.shape;
  const int group = shape.n_heads / shape.n_kv_heads;
  const int n = static_cast<int>(rows.size()) * shape.n_kv_heads;
  std::vector<double> squares(n), differences(n), worst(n);
  InParallel(n, [&](int i) {
    const Row& row = rows[i / shape.n_kv_heads];
    const int kv_head = i % shape.n_kv_heads;
    const int begin = shape.window > 0 ? std::max(0, row.position - shape.window + 1) : 0;
    std::vector<float> k(shape.row), v(shape.row);
    std::vector<double> sums(int64_t{group} * shape.row), max(group, -INFINITY), weight(group);
    for (int key = begin; key <= row.position; ++key) {
      for (int c = 0; c < shape.row; ++c) {
        k[c] = Widened(model.Of(row.sequence, false, kv_head, key, c));
        v[c] = Widened(model.Of(row.sequence, true, kv_head, key, c));
      }
      for (int head = 0; head < group; ++head) {
        const int64_t at = (int64_t{row.at} * shape.n_heads + kv_head * group + head) * shape.row;
        double score = 0;
        for (int c = 0; c < shape.row; ++c) score += double{Widened(q[at + c])} * k[c];
        score *= shape.scale;
        double* sum = &sums[int64_t{head} * shape.row];
        if (score > max[head]) {
          const double factor = std::exp(max[head] - score);
          for (int c = 0; c < shape.row; ++c) sum[c] *= factor;
          weight[head] *= factor;
          max[head] = score;
        }
        const double p = std::exp(score - max[head]);
        weight[head] += p;
        for (int c = 0; c < shape.row; ++c) sum[c] += p * v[c];
      }
    }
    for (int head = 0; head < group; ++head) {
      double square = 0, difference = 0;
      for (int c = 0; c < shape.row; ++c) {
        const double expected = sums[int64_t{head} * shape.row + c] / weight[head];
        const double found = Widened(
            out[(int64_t{row.at} * shape.n_heads + kv_head * group + head) * shape.row + c]);
        square += expected * expected;
        difference += (found - expected) * (found - expected);
      }
      squares[i] += square;
      differences[i] += difference;
      const double error = std::sqrt(difference / square);
      if (!(error <= worst[i])) worst[i] = error;  // NaN, too
    }
  });
  Errors errors;
  errors.all = std::sqrt(std::accumulate(differences.begin(), differences.end(), 0.0) /
                         std::accumulate(squares.begin(), squares.end(), 0.0));
  for (const double error : worst)
    if (!(error <= errors.worst)) errors.worst = error;
  errors.n_rows = static_cast<int>(rows.size());
  return errors;
}

void Bound(Report& report, const std::string& name, const std::string& shape, double value,
           double bound, const std::string& note) {
  report.Add({kPart, name, shape, value, "relative",
              value < bound ? Verdict::kPass : Verdict::kFail,
              "bound " + std::to_string(bound) + note});
}

// All comparisons of one shape.
void CompareShape(Report& report, const AttentionShape& shape, int page_tokens,
                  const std::vector<Piece>& pieces, uint32_t seed) {
  const Stream stream;
  const Model model{shape, seed};
  std::vector<int> n_keys(pieces.size()), first_keys(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    n_keys[i] = pieces[i].position + pieces[i].rows;
    first_keys[i] = shape.window > 0 ? std::max(0, pieces[i].position - shape.window + 1) : 0;
  }
  const Pages pages(model, page_tokens, n_keys, first_keys);
  const int n_rows = RowsOf(pieces);
  const auto stride = int64_t{shape.n_heads} * shape.row;
  GpuArray<uint16_t> q = Inputs({Distribution::kNormal, seed, 1000, n_rows, stride}, stream);
  GpuArray<uint16_t> expected(n_rows * stride), found(n_rows * stride);
  const std::string name = NameOf(shape, page_tokens);
  stream.Wait();

  Compute(pieces, pages, shape, q.get(), n_rows, true, expected, stream);
  const Errors errors = ErrorsOf(model, pieces, q.Read(), expected.Read());
  const std::string note = ", " + std::to_string(errors.n_rows) + " rows beside fp64";
  Bound(report, "error of all rows", name, errors.all, 4e-3, note);
  Bound(report, "error of the worst head", name, errors.worst, 1e-2, note);

  DifferenceCount count(stream);
  const auto bits = [](const GpuArray<uint16_t>& values) {
    return reinterpret_cast<const float*>(values.get());
  };
  const auto compare = [&](const std::string& what, const std::vector<Piece>& cut,
                           const Pages& from, int rows_of_launch, bool has_memory,
                           ChunkKernel chunk_kernel = ChunkKernel::kWarpgroups) {
    Compute(cut, from, shape, q.get(), rows_of_launch, has_memory, found, stream, chunk_kernel);
    report.AddDifferences(kPart, what, name,
                          count.Of(bits(expected), bits(found), expected.size() / 2));
  };
  std::mt19937 random(seed);
  const std::vector<Piece> rows = Cut(pieces, [] { return 1; });
  compare("the same again", pieces, pages, n_rows, true);
  compare("by mma.sync", pieces, pages, n_rows, true, ChunkKernel::kMma);
  compare("by mma.sync, launches of 100 rows", pieces, pages, 100, true, ChunkKernel::kMma);
  compare("rows alone, all at once", rows, pages, n_rows, true);
  compare("rows alone, 1 a launch", rows, pages, 1, true);
  compare("rows alone, 13 a launch", rows, pages, 13, true);
  compare("rows alone, 13 a launch, no work memory", rows, pages, 13, false);
  compare("pieces of up to 7 rows", Cut(pieces, [&] { return static_cast<int>(random() % 7) + 1; }),
          pages, n_rows, true);
  compare("pieces of up to 90 rows",
          Cut(pieces, [&] { return static_cast<int>(random() % 90) + 1; }), pages, n_rows, true);
  compare("launches of 100 rows", pieces, pages, 100, true);
  compare("launches of 3 rows", pieces, pages, 3, true);
  for (const int other : {16, 32, 64}) {
    if (other == page_tokens) continue;
    const Pages moved(model, other, n_keys, first_keys);
    compare("pages of " + std::to_string(other), pieces, moved, n_rows, true);
    compare("pages of " + std::to_string(other) + ", rows alone, 13 a launch", rows, moved, 13,
            true);
  }
}

// A graph of rows is captured at some contexts, and replayed at others.
void CompareGraph(Report& report) {
  const AttentionShape shape{8, 2, 128, 0, 0.08838835f};
  const Stream stream;
  const Model model{shape, 900};
  const std::vector<int> n_keys = {4000, 700, 1600};
  const Pages pages(model, 16, n_keys, {0, 0, 0});
  const auto stride = int64_t{shape.n_heads} * shape.row;
  const GpuArray<uint16_t> q = Inputs({Distribution::kNormal, 901, 1000, 3, stride}, stream);
  GpuArray<uint16_t> expected(3 * stride), found(3 * stride);
  const std::vector<Piece> at_capture = {{0, 5, 1}, {1, 130, 1}, {2, 0, 1}},
                           later = {{0, 3999, 1}, {1, 511, 1}, {2, 1500, 1}};
  Compute(later, pages, shape, q.get(), 3, true, expected, stream);
  std::vector<int32_t> numbers = BlockOf(at_capture, pages);
  GpuArray<int32_t> block(std::ssize(numbers));
  block.Write(numbers);
  GpuArray<uint8_t> memory(AttentionWorkBytes(3, shape));
  memory.Poison(stream);
  const AttentionWork work{memory.get(), memory.size(), 3};
  const AttentionRange range{0, 3, 3, true};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  GPU_CHECK(PrepareAttention(block.get(), range, shape, work, stream));
  GPU_CHECK(Attend(block.get(), range, q.get(), pages.view(), shape, work, found.get(), stream,
                   ChunkKernel::kWarpgroups));
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  GPU_CHECK(cudaGraphLaunch(executable, stream));
  stream.Wait();
  block.Write(BlockOf(later, pages));
  found.Poison(stream);
  GPU_CHECK(cudaGraphLaunch(executable, stream));
  stream.Wait();
  DifferenceCount count(stream);
  report.AddDifferences(kPart, "a graph at other contexts", NameOf(shape, 16),
                        count.Of(reinterpret_cast<const float*>(expected.get()),
                                 reinterpret_cast<const float*>(found.get()), 3 * stride / 2));
  GPU_CHECK(cudaGraphExecDestroy(executable));
  GPU_CHECK(cudaGraphDestroy(graph));
}

// Times rows of sequences of one length, in a graph of several layers, whose pages together are
// much larger than the L2 cache.
void Measure(Report& report, const AttentionShape& shape, const std::vector<Piece>& pieces,
             int n_layers, int page_tokens = 64) {
  const Stream stream;
  const int64_t plane = int64_t{2} * shape.n_kv_heads * page_tokens * shape.row;  // values
  const int64_t page_stride = plane * n_layers * 2;
  int64_t n_pages = 0, n_keys = 0;
  double pairs = 0;  // of a query and a key
  for (const Piece& piece : pieces) {
    n_pages += (piece.position + piece.rows + page_tokens - 1) / page_tokens;
    n_keys += piece.position + piece.rows;
    for (int i = 0; i < piece.rows; ++i) pairs += piece.position + i + 1;
  }
  const GpuArray<uint16_t> memory =
      Inputs({Distribution::kNormal, 7, 1, n_pages, plane * n_layers}, stream);
  std::vector<int32_t> ids(n_pages);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
  std::vector<int32_t> positions, piece_begin = {0}, page_begin = {0};
  for (const Piece& piece : pieces) {
    for (int i = 0; i < piece.rows; ++i) positions.push_back(piece.position + i);
    piece_begin.push_back(static_cast<int32_t>(positions.size()));
    page_begin.push_back(page_begin.back() +
                         (piece.position + piece.rows + page_tokens - 1) / page_tokens);
  }
  const int n_rows = static_cast<int>(positions.size()), n_pieces = static_cast<int>(pieces.size());
  std::vector<int32_t> numbers = {n_rows, n_pieces, static_cast<int32_t>(n_pages), 0, 0, 0};
  numbers.resize(numbers.size() + n_rows);
  for (const auto* part : {&positions, &piece_begin, &page_begin, &ids})
    numbers.insert(numbers.end(), part->begin(), part->end());
  numbers.resize(numbers.size() + n_pieces);
  GpuArray<int32_t> block(std::ssize(numbers));
  block.Write(numbers);
  const auto stride = int64_t{shape.n_heads} * shape.row;
  const GpuArray<uint16_t> q = Inputs({Distribution::kNormal, 8, 1, n_rows, stride}, stream);
  GpuArray<uint16_t> out(n_rows * stride);
  GpuArray<uint8_t> work_memory(AttentionWorkBytes(n_rows, shape));
  const AttentionWork work{work_memory.get(), work_memory.size(), n_rows};
  const AttentionRange range{0, n_rows, n_pieces, n_rows == n_pieces};
  GPU_CHECK(PrepareAttention(block.get(), range, shape, work, stream));
  // Layers of a graph, one after the other: MicrosInGraph divides by their number.
  const auto time = [&](GpuArray<uint16_t>& to, ChunkKernel chunk_kernel) {
    to.Poison(stream);
    int layer = 0;
    return MicrosInGraph(stream, n_layers, [&] {
      const KvPlaneView kv{reinterpret_cast<uint8_t*>(memory.get() + layer++ * plane), page_stride,
                           page_tokens};
      GPU_CHECK(
          Attend(block.get(), range, q.get(), kv, shape, work, to.get(), stream, chunk_kernel));
    });
  };
  const double micros = time(out, ChunkKernel::kWarpgroups);
  const double preparing = MicrosInGraph(
      stream, 20, [&] { GPU_CHECK(PrepareAttention(block.get(), range, shape, work, stream)); });
  const std::string name = std::to_string(n_pieces) + " x " + std::to_string(pieces[0].rows) +
                           " rows, last of " + std::to_string(pieces[0].position + pieces[0].rows) +
                           " keys; " + NameOf(shape, page_tokens);
  char note[96];
  std::snprintf(note, sizeof note, "%.1f us a layer, lists %.1f us", micros, preparing);
  if (pieces[0].rows > 1) {
    const double operations = 4.0 * shape.row * shape.n_heads * pairs;
    report.Add({kPart, "speed", name, operations / micros * 1e-6, "TFLOP/s", Verdict::kInfo, note});
    GpuArray<uint16_t> expected(n_rows * stride);
    const double micros_of_mma = time(expected, ChunkKernel::kMma);
    std::snprintf(note, sizeof note, "%.1f us a layer", micros_of_mma);
    report.Add({kPart, "speed by mma.sync", name, operations / micros_of_mma * 1e-6, "TFLOP/s",
                Verdict::kInfo, note});
    DifferenceCount count(stream);
    report.AddDifferences(kPart, "all rows by mma.sync", name,
                          count.Of(reinterpret_cast<const float*>(expected.get()),
                                   reinterpret_cast<const float*>(out.get()), n_rows * stride / 2));
    return;
  }
  const double bytes = static_cast<double>(n_keys) * shape.n_kv_heads * shape.row * 4;
  report.Add({kPart, "speed", name, bytes / micros * 1e-3, "GB/s", Verdict::kInfo, note});
  report.Add({kPart, "share of the copy's speed", name, bytes / micros * 1e6 / kCopyBytesPerSecond,
              "", Verdict::kInfo, note});
}

std::vector<Piece> Rows(int n, int keys) {
  std::vector<Piece> pieces;
  for (int i = 0; i < n; ++i) pieces.push_back({i, keys - 1, 1});
  return pieces;
}

}  // namespace

void CheckAttention(Report& report, const CheckOptions& options) {
  struct Example {
    int n_heads, n_kv_heads, row, window, page_tokens;
  };
  const std::vector<Example> examples = {
      {32, 8, 128, 0, 16}, {8, 8, 64, 0, 32},  {28, 4, 128, 0, 64},  {16, 2, 64, 700, 16},
      {8, 2, 128, 96, 32}, {71, 1, 64, 0, 16}, {40, 2, 128, 513, 64}};
  std::vector<Piece> pieces;
  const auto add = [&](int position, int rows) {
    pieces.push_back({static_cast<int>(pieces.size()), position, rows});
  };
  for (const int position : {0, 1, 127, 128, 511, 512, 1023, 5000, 20000}) add(position, 1);
  add(0, 2);
  add(100, 17);
  add(448, 64);
  add(900, 1);
  add(3000, 130);
  add(0, 300);
  add(511, 33);
  add(1020, 5);
  add(2047, 2);
  uint32_t seed = 700;
  for (const Example& example : examples) {
    const AttentionShape shape{example.n_heads, example.n_kv_heads, example.row, example.window,
                               static_cast<float>(1.5 / std::sqrt(example.row))};
    CompareShape(report, shape, example.page_tokens, pieces, seed++);
    if (options.is_quick && seed == 702) break;
  }
  CompareGraph(report);

  const AttentionShape llama{32, 8, 128, 0, 0.08838835f}, small{32, 8, 64, 0, 0.125f};
  Measure(report, llama, {{0, 0, 8192}}, 1);
  Measure(report, llama, {{0, 0, 8192}}, 1, 16);
  Measure(report, llama, {{0, 6144, 2048}}, 4);
  Measure(report, llama, {{0, 1000, 100}}, 4);
  Measure(report, small, {{0, 0, 8192}}, 1);
  Measure(report, llama, Rows(1, 8192), 8);
  Measure(report, llama, Rows(1, 8192), 8, 16);
  Measure(report, llama, Rows(8, 4096), 8);
  Measure(report, llama, Rows(32, 1024), 4);
  Measure(report, llama, Rows(256, 1024), 1);
  Measure(report, small, Rows(1, 8192), 8);
  Measure(report, small, Rows(32, 1024), 8);
}

}  // namespace baton
