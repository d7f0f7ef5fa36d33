// Every path of the attention against the scalar reference, bit by bit, and the reference against
// softmax attention in double.
#include "engine/cpu/attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/attention_reference.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/mxcsr.h"
#include "engine/emulated_attention.h"
#include "engine/model_desc.h"

namespace baton {
namespace {

constexpr bf16 kPoison = 0x7fff;  // a NaN
constexpr int kLayers = 2, kLayer = 1;

struct Shape {
  int head_dim, kv_heads, group, page_tokens;
  int window = 0;
  double soft_cap = 0;
  KvType type = KvType::kBf16;
  int heads() const { return kv_heads * group; }
};

std::string Name(const Shape& s) {
  return (s.type == KvType::kInt8 ? "int8, D " : "bf16, D ") + std::to_string(s.head_dim) + ", " +
         std::to_string(s.kv_heads) + " kv heads x " + std::to_string(s.group) + ", pages of " +
         std::to_string(s.page_tokens) + ", window " + std::to_string(s.window) + ", soft cap " +
         std::to_string(s.soft_cap);
}

bf16 RandomBf16(std::mt19937& rng, float sigma) {
  return FloatToBf16(std::normal_distribution<float>(0, sigma)(rng));
}

// A sequence's queries, keys and values, and the page table under which they lie in the arena.
struct Sequence {
  int length;
  std::vector<bf16> q;          // (length, heads, head_dim)
  std::vector<ReferenceKv> kv;  // (kv_heads)
  std::vector<int32_t> pages;
};

struct Piece {
  int sequence, begin, end;
};

// What the pages of an int8 layout hold of it.
void RoundToInt8(ReferenceKv* kv) {
  for (std::vector<bf16>* values : {&kv->k, &kv->v})
    for (size_t at = 0; at < values->size(); at += static_cast<size_t>(kv->head_dim)) {
      const ReferenceInt8 row = EncodeInt8(values->data() + at, kv->head_dim);
      (values == &kv->k ? kv->k_scale : kv->v_scale).push_back(row.scale);
      for (size_t i = 0; i < row.numbers.size(); ++i)
        (*values)[at + i] = FloatToBf16(static_cast<float>(row.numbers[i]));
    }
}

double RelativeError(const std::vector<bf16>& row, const std::vector<double>& exact) {
  double error = 0, norm = 0;
  for (size_t d = 0; d < exact.size(); ++d) {
    error += std::pow(double{Bf16ToFloat(row[d])} - exact[d], 2);
    norm += exact[d] * exact[d];
  }
  return std::sqrt(error / norm);
}

// Sequences in an arena whose other pages hold NaN.
class Arena {
 public:
  Arena(const Shape& shape, std::vector<int> lengths, std::mt19937& rng, float sigma = 1.0f)
      : shape_(shape) {
    ModelDesc model;
    model.n_layers = kLayers;
    model.n_heads = shape.heads();
    model.n_kv_heads = shape.kv_heads;
    model.head_dim = shape.head_dim;
    layout_ = KvLayout::For(model, shape.type, shape.page_tokens);
    int n_pages = 3;
    for (int length : lengths) n_pages += layout_.PagesFor(length);
    std::vector<int32_t> ids(static_cast<size_t>(n_pages));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), rng);
    bytes_.resize(static_cast<size_t>(layout_.page_bytes * n_pages / 2), kPoison);
    for (int length : lengths) AddSequence(length, sigma, &ids, rng);
  }

  const Shape& shape() const { return shape_; }
  const Sequence& sequence(int i) const { return sequences_[static_cast<size_t>(i)]; }

  // Output rows of the pieces, one after the other (heads x head_dim each).
  std::vector<bf16> Run(AttentionKernels& kernels, ComputePool& pool,
                        const std::vector<Piece>& pieces) {
    StepBuilder builder;
    const int64_t width = shape_.heads() * shape_.head_dim;
    const int64_t q_stride = width + 32, out_stride = width + 16;
    std::vector<bf16> q;
    for (const Piece& piece : pieces) {
      const Sequence& s = sequence(piece.sequence);
      // The table ends with the piece: the engine must not need more.
      const std::span<const int32_t> table(s.pages.data(),
                                           static_cast<size_t>(layout_.PagesFor(piece.end)));
      builder.AddPiece(std::vector<int32_t>(static_cast<size_t>(piece.end - piece.begin), 0),
                       piece.begin, table);
      for (int i = piece.begin; i < piece.end; ++i) {
        q.insert(q.end(), s.q.begin() + i * width, s.q.begin() + (i + 1) * width);
        q.insert(q.end(), static_cast<size_t>(q_stride - width), kPoison);
      }
    }
    const StepBatch batch = builder.batch();
    std::vector<bf16> out(static_cast<size_t>(batch.n_tokens() * out_stride), kPoison);
    AttentionArgs args;
    args.batch = &batch;
    args.layout = &layout_;
    args.planes = {Page(0) + layout_.planes[kLayer].offset, layout_.page_bytes};
    args.layer = kLayer;
    args.n_heads = shape_.heads();
    args.window = Rule().window;
    args.scale = Rule().scale;
    args.soft_cap = Rule().soft_cap;
    args.q = q.data();
    args.q_stride = q_stride;
    args.out = out.data();
    args.out_stride = out_stride;
    kernels.Run(args, pool);

    std::vector<bf16> rows;
    for (int r = 0; r < batch.n_tokens(); ++r) {
      const auto row = out.begin() + r * out_stride;
      rows.insert(rows.end(), row, row + width);
      REQUIRE(std::all_of(row + width, row + out_stride, [](bf16 x) { return x == kPoison; }));
    }
    return rows;
  }

  ReferenceRule Rule() const {
    return {1.0 / std::sqrt(static_cast<double>(shape_.head_dim)), shape_.window, shape_.soft_cap};
  }

  std::vector<bf16> Reference(int sequence_index, int position) const {
    const Sequence& s = sequence(sequence_index);
    std::vector<bf16> row(static_cast<size_t>(shape_.heads() * shape_.head_dim));
    for (int h = 0; h < shape_.heads(); ++h) {
      const int64_t at = h * shape_.head_dim;
      ReferenceAttention(s.kv[static_cast<size_t>(h / shape_.group)],
                         s.q.data() + position * shape_.heads() * shape_.head_dim + at, position,
                         Rule(), row.data() + at);
    }
    return row;
  }

 private:
  void AddSequence(int length, float sigma, std::vector<int32_t>* ids, std::mt19937& rng) {
    Sequence s;
    s.length = length;
    const int n_pages = layout_.PagesFor(length);
    s.pages.assign(ids->end() - n_pages, ids->end());
    ids->resize(ids->size() - static_cast<size_t>(n_pages));
    for (int32_t page : s.pages)
      std::memset(Page(page), 0, static_cast<size_t>(layout_.page_bytes));
    s.q.resize(static_cast<size_t>(length * shape_.heads() * shape_.head_dim));
    for (bf16& x : s.q) x = RandomBf16(rng, sigma);
    s.kv.resize(static_cast<size_t>(shape_.kv_heads));
    for (int head = 0; head < shape_.kv_heads; ++head) {
      ReferenceKv& kv = s.kv[static_cast<size_t>(head)];
      kv.head_dim = shape_.head_dim;
      for (int i = 0; i < length * shape_.head_dim; ++i) {
        kv.k.push_back(RandomBf16(rng, sigma));
        kv.v.push_back(RandomBf16(rng, 1.0f));
      }
      for (int i = 0; i < length; ++i) WriteSlot(s, kv, head, i);
      if (shape_.type == KvType::kInt8) RoundToInt8(&kv);
    }
    sequences_.push_back(std::move(s));
  }

  void WriteSlot(const Sequence& s, const ReferenceKv& kv, int head, int i) {
    std::byte* const plane =
        Page(s.pages[static_cast<size_t>(i / layout_.page_tokens)]) + layout_.planes[kLayer].offset;
    GetElementwiseKernels(Isa::kAvx2)
        .write_kv(layout_, kLayer, head, kv.k.data() + i * shape_.head_dim,
                  kv.v.data() + i * shape_.head_dim, plane, i % layout_.page_tokens);
  }

  std::byte* Page(int32_t id) {
    return reinterpret_cast<std::byte*>(bytes_.data()) + id * layout_.page_bytes;
  }

  Shape shape_;
  KvLayout layout_;
  std::vector<bf16> bytes_;
  std::vector<Sequence> sequences_;
};

// Every path this machine has, and the emulated ones.
struct Path {
  std::string name;
  std::unique_ptr<AttentionKernels> kernels;
};

std::vector<Path> Paths() {
  std::vector<Path> paths;
  for (Isa isa : SupportedIsas())
    paths.push_back({std::string(IsaName(isa)), MakeAttentionKernels(isa)});
  if (paths.size() > 1) {  // AVX-512 at least
    paths.push_back({"emulated avx512bf16", MakeAttentionKernelsOf(kEmulatedAttentionAvx512Bf16)});
    paths.push_back({"emulated amx", MakeAttentionKernelsOf(kEmulatedAttentionAmx)});
  }
  return paths;
}

std::unique_ptr<AttentionKernels> BestKernels() {
  return MakeAttentionKernels(SupportedIsas().back());
}

std::mt19937 FreshRng() {
  const unsigned seed = std::random_device{}();
  UNSCOPED_INFO("seed " << seed);
  return std::mt19937(seed);
}

// Rows of `pieces` on every path and 1 and 2 threads, each row against the reference (every
// `stride`-th row and the last of a piece).
void CheckAgainstReference(Arena& arena, const std::vector<Piece>& pieces, int stride = 1) {
  const size_t width = static_cast<size_t>(arena.shape().heads() * arena.shape().head_dim);
  std::vector<bf16> first;
  for (int threads : {1, 2}) {
    ComputePool pool(threads, 0);
    for (const Path& path : Paths()) {
      INFO(Name(arena.shape()) << ", " << path.name << ", " << threads << " threads");
      const std::vector<bf16> rows = arena.Run(*path.kernels, pool, pieces);
      if (first.empty()) {
        first = rows;
        size_t at = 0;
        for (const Piece& piece : pieces)
          for (int p = piece.begin; p < piece.end; ++p, at += width) {
            if ((p - piece.begin) % stride != 0 && p != piece.end - 1) continue;
            INFO("position " << p);
            const std::vector<bf16> expected = arena.Reference(piece.sequence, p);
            REQUIRE(std::equal(expected.begin(), expected.end(), rows.begin() + at));
          }
      }
      REQUIRE(rows == first);
    }
  }
}

TEST_CASE("one row of every length around the borders equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 32, 64, 80, 96, 128, 256}) {
    const Shape shape{head_dim, 1, 1 + static_cast<int>(rng() % 4), 16 << rng() % 3};
    Arena arena(shape, {1100}, rng);
    for (int length : {1,   2,   15,  16,  17,  31,  32,  33,  47,   64,   65,   127,
                       128, 129, 255, 257, 511, 512, 513, 640, 1023, 1024, 1025, 1100})
      CheckAgainstReference(arena, {{0, length - 1, length}});
  }
}

TEST_CASE("prefill rows equal the reference for every grouping of heads") {
  std::mt19937 rng = FreshRng();
  for (int group : {1, 2, 3, 4, 5, 8, 13, 71}) {
    const Shape shape{group > 8 ? 32 : 64, 2, group, 16 << rng() % 3};
    Arena arena(shape, {200}, rng);
    CheckAgainstReference(arena, {{0, 0, 200}}, 17);
  }
}

TEST_CASE("a batch of prefill chunks and decode rows equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 80, 96, 128}) {
    for (int page_tokens : {16, 32, 64}) {
      Arena arena({head_dim, 2, 2, page_tokens}, {40, 700, 1, 530, 129, 300}, rng);
      CheckAgainstReference(
          arena, {{0, 0, 40}, {1, 699, 700}, {2, 0, 1}, {3, 500, 530}, {4, 128, 129}, {5, 37, 300}},
          41);
    }
  }
}

TEST_CASE("the bits of a row do not depend on the chunks of its prompt") {
  std::mt19937 rng = FreshRng();
  const Shape shape{64, 2, 3, 32};
  Arena arena(shape, {1300}, rng);
  ComputePool pool(2, 0);
  const auto kernels = BestKernels();
  const std::vector<bf16> whole = arena.Run(*kernels, pool, {{0, 0, 1300}});
  for (int round = 0; round < 6; ++round) {
    std::vector<bf16> rows;
    for (int at = 0; at < 1300;) {
      const int size = round == 0 ? 64 : 1 + static_cast<int>(rng() % 400);
      const int end = std::min(1300, at + size);
      const std::vector<bf16> part = arena.Run(*kernels, pool, {{0, at, end}});
      rows.insert(rows.end(), part.begin(), part.end());
      at = end;
    }
    REQUIRE(rows == whole);
  }
}

TEST_CASE("rows with a sliding window equal the reference") {
  std::mt19937 rng = FreshRng();
  for (int window : {1, 2, 16, 48, 127, 128, 129, 500, 513, 700, 5000}) {
    const Shape shape{32 << rng() % 2, 2, 1 + static_cast<int>(rng() % 4), 16 << rng() % 3, window};
    Arena arena(shape, {1100, 300, 2600}, rng);
    CheckAgainstReference(arena, {{0, 900, 1100}, {1, 0, 300}}, 23);
    CheckAgainstReference(arena, {{0, 1099, 1100}, {2, 2599, 2600}, {1, 140, 141}});
  }
}

TEST_CASE("capped scores equal the reference") {
  std::mt19937 rng = FreshRng();
  for (double soft_cap : {0.5, 50.0}) {
    for (int window : {0, 200}) {
      Arena arena({80, 2, 3, 32, window, soft_cap}, {700, 90, 1300}, rng, 3.0f);
      CheckAgainstReference(arena, {{0, 450, 700}, {1, 0, 90}, {2, 1299, 1300}}, 37);
    }
  }
  for (float sigma : {1e-20f, 1e4f}) {
    Arena arena({64, 1, 2, 16, 0, 30.0}, {600}, rng, sigma);
    CheckAgainstReference(arena, {{0, 560, 600}}, 13);
  }
}

TEST_CASE("int8 keys and values equal the reference on what they hold") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 64, 80, 128, 256})
    for (int group : {1, 4, 13}) {
      const int page_tokens = 16 << rng() % 3, window = rng() % 2 == 0 ? 0 : 150;
      Arena arena({head_dim, 2, group, page_tokens, window, 0, KvType::kInt8}, {400, 700, 33}, rng);
      CheckAgainstReference(arena, {{0, 0, 400}, {1, 699, 700}, {2, 32, 33}}, 61);
    }
  for (float sigma : {0.0f, 1e-37f, 1e-20f, 1e4f}) {
    Arena arena({64, 1, 2, 16, 0, 0, KvType::kInt8}, {300}, rng, sigma);
    CheckAgainstReference(arena, {{0, 270, 300}}, 13);
  }
}

TEST_CASE("a windowed row's bits do not depend on chunks and threads") {
  std::mt19937 rng = FreshRng();
  const KvType type = GENERATE(KvType::kBf16, KvType::kInt8);
  Arena arena({64, 2, 3, 32, 200, 0, type}, {1300}, rng);
  ComputePool pool(2, 0), eight(8, 0);
  const auto kernels = BestKernels();
  const std::vector<bf16> whole = arena.Run(*kernels, pool, {{0, 0, 1300}});
  for (ComputePool* threads : {&pool, &eight}) {
    std::vector<bf16> rows;
    for (int at = 0; at < 1300;) {
      const int end = std::min(1300, at + 1 + static_cast<int>(rng() % 300));
      const std::vector<bf16> part = arena.Run(*kernels, *threads, {{0, at, end}});
      rows.insert(rows.end(), part.begin(), part.end());
      at = end;
    }
    REQUIRE(rows == whole);
  }
}

TEST_CASE("segments split over threads are folded in order") {
  std::mt19937 rng = FreshRng();
  Arena arena({128, 1, 4, 64}, {4000, 5}, rng);
  CheckAgainstReference(arena, {{0, 3999, 4000}});
  CheckAgainstReference(arena, {{0, 3990, 4000}, {1, 4, 5}}, 5);
  for (int threads : {3, 4, 8}) {
    ComputePool pool(threads, 0);
    const std::vector<bf16> rows = arena.Run(*BestKernels(), pool, {{0, 3999, 4000}});
    REQUIRE(rows == arena.Reference(0, 3999));
  }
}

TEST_CASE("sharp, flat and overflowing scores equal the reference") {
  std::mt19937 rng = FreshRng();
  for (float sigma : {0.0f, 1e-20f, 1e-3f, 30.0f, 1e4f}) {
    Arena arena({96, 1, 2, 16}, {600}, rng, sigma);
    INFO("sigma " << sigma);
    CheckAgainstReference(arena, {{0, 560, 600}}, 13);
  }
}

// Rows of one KV head whose keys lie in groups one after the other, seen by tile kernels directly.
struct TileCase {
  int head_dim, n_keys;
  double soft_cap;
  ReferenceKv kv;
  std::vector<bf16> groups;  // a page of 16 tokens (K, V) after the other
  std::vector<bf16> q;       // (rows, head_dim)
  std::vector<int> positions;

  TileCase(int dim, int keys, int rows, double cap, std::mt19937& rng)
      : head_dim(dim), n_keys(keys), soft_cap(cap) {
    kv.head_dim = dim;
    for (int i = 0; i < keys * dim; ++i) {
      kv.k.push_back(RandomBf16(rng, 1));
      kv.v.push_back(RandomBf16(rng, 1));
    }
    WriteGroups();
    for (int i = 0; i < rows * dim; ++i) q.push_back(RandomBf16(rng, 1));
    for (int r = 0; r < rows; ++r) positions.push_back(static_cast<int>(rng() % keys));
    std::sort(positions.begin(), positions.end());
    positions.back() = keys - 1;
  }

  ReferenceRule rule() const { return {1 / std::sqrt(static_cast<double>(head_dim)), 0, soft_cap}; }

  std::vector<ReferenceState> Reference() const {
    std::vector<ReferenceState> states;
    for (size_t r = 0; r < positions.size(); ++r)
      states.push_back(ReferenceAttentionState(kv, q.data() + r * static_cast<size_t>(head_dim),
                                               positions[r], rule()));
    return states;
  }

  std::vector<ReferenceState> Run(const AttentionTileKernels& kernels) const {
    const NumericsMxcsrScope mxcsr;
    const int n = static_cast<int>(positions.size());
    const size_t size = static_cast<size_t>((n + kPaddingRows) * kRowStride);
    const ScoreScale scale = ScoreScaleOf(rule().scale, rule().soft_cap);
    std::vector<float> packed(size), out(size), segment_out(size);
    std::vector<float> max(positions.size(), -INFINITY), sum(positions.size());
    for (int r = 0; r < n; ++r)
      kernels.pack_query(q.data() + r * head_dim, head_dim, packed.data() + r * kRowStride);
    for (int begin = 0; begin < n_keys; begin += kSegmentKeys) {
      std::fill(segment_out.begin(), segment_out.end(), 0.0f);
      std::vector<float> segment_max(positions.size(), -INFINITY), segment_sum(positions.size());
      const RowState segment = {segment_max.data(), segment_sum.data(), segment_out.data()};
      for (int key = begin; key < std::min(n_keys, begin + kSegmentKeys); key += kTileKeys)
        AddTile(kernels, packed.data(), key, scale, segment);
      kernels.fold(segment, n, head_dim, scale.c, {max.data(), sum.data(), out.data()});
    }
    std::vector<ReferenceState> states;
    for (int r = 0; r < n; ++r)
      states.push_back({max[static_cast<size_t>(r)],
                        sum[static_cast<size_t>(r)],
                        {out.begin() + r * kRowStride, out.begin() + r * kRowStride + head_dim}});
    return states;
  }

 private:
  int64_t PageSize() const { return 16 * (RoundUp(head_dim, 32) + head_dim); }

  void WriteGroups() {
    const KvLayout layout = KvLayout::Of({{1, head_dim, head_dim}}, KvType::kBf16, 16);
    groups.resize(static_cast<size_t>(PageSize() * layout.PagesFor(n_keys)));
    for (int i = 0; i < n_keys; ++i)
      GetElementwiseKernels(Isa::kAvx2)
          .write_kv(layout, 0, 0, kv.k.data() + i * head_dim, kv.v.data() + i * head_dim,
                    reinterpret_cast<std::byte*>(groups.data() + i / 16 * PageSize()), i % 16);
  }

  void AddTile(const AttentionTileKernels& kernels, const float* packed, int key,
               const ScoreScale& scale, const RowState& segment) const {
    KeyTile tile;
    tile.key_dim = tile.value_dim = head_dim;
    tile.n_groups = std::min(kTileGroups, (n_keys - key + 15) / 16);
    for (int j = 0; j < tile.n_groups; ++j) {
      tile.k[j] = groups.data() + (key / 16 + j) * PageSize();
      tile.v[j] = tile.k[j] + 16 * RoundUp(head_dim, 32);
      tile.next_k[j] = tile.k[j];
    }
    tile.fresh = positions.size() % 2 == 0;
    std::vector<int32_t> visible;
    for (int position : positions) visible.push_back(position + 1 - key);
    const int n = static_cast<int>(positions.size());
    for (int r = 0; r < n; r += kernels.max_rows)
      kernels.attend(
          {packed + r * kRowStride, visible.data() + r, std::min(kernels.max_rows, n - r)}, tile,
          scale, {segment.max + r, segment.sum + r, segment.out + r * kRowStride});
  }
};

bool Same(const std::vector<ReferenceState>& a, const std::vector<ReferenceState>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ReferenceState& x, const ReferenceState& y) {
                      return x.max == y.max && x.sum == y.sum && x.out == y.out;
                    });
}

struct TilePath {
  std::string name;
  const AttentionTileKernels* kernels;
};

std::vector<TilePath> TilePaths() {
  std::vector<TilePath> paths;
  for (Isa isa : SupportedIsas())
    paths.push_back({std::string(IsaName(isa)), isa == Isa::kAvx2     ? &kAttentionTileAvx2
                                                : isa == Isa::kAvx512 ? &kAttentionTileAvx512
                                                : isa == Isa::kAvx512Bf16
                                                    ? &kAttentionTileAvx512Bf16
                                                    : &kAttentionTileAmx});
  if (paths.size() > 1) {
    paths.push_back({"emulated avx512bf16", &kEmulatedAttentionAvx512Bf16});
    paths.push_back({"emulated amx", &kEmulatedAttentionAmx});
  }
  return paths;
}

TEST_CASE("the fp32 state of every row equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 32, 64, 80, 96, 112, 128, 256})
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 12, 16, 17, 32, 35}) {
      const double soft_cap = rows % 2 == 0 ? 0 : 3;
      const TileCase c(head_dim, 1 + static_cast<int>(rng() % 700), rows, soft_cap, rng);
      const std::vector<ReferenceState> expected = c.Reference();
      for (const TilePath& path : TilePaths()) {
        INFO(path.name << ", D " << head_dim << ", " << rows << " rows, " << c.n_keys << " keys");
        REQUIRE(Same(c.Run(*path.kernels), expected));
      }
    }
}

TEST_CASE("a sum in another order is noticed") {
  if (SupportedIsas().size() == 1) return;  // the wrong kernel needs AVX-512
  std::mt19937 rng = FreshRng();
  const TileCase c(64, 300, 6, 0, rng);
  CHECK_FALSE(Same(c.Run(kWrongOrderAttention), c.Reference()));
}

TEST_CASE("int8 keys and values are close to softmax attention in double on what was written") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 128}) {
    Arena exact({head_dim, 1, 1, 64}, {1200}, rng);
    const Sequence& s = exact.sequence(0);
    ReferenceKv rounded = s.kv[0];
    RoundToInt8(&rounded);
    for (int position : {0, 100, 1199}) {
      const bf16* const q = s.q.data() + position * head_dim;
      std::vector<bf16> row(static_cast<size_t>(head_dim));
      ReferenceAttention(rounded, q, position, exact.Rule(), row.data());
      const double error = RelativeError(row, ExactAttention(s.kv[0], q, position, exact.Rule()));
      INFO("D " << head_dim << ", position " << position << ", error " << error);
      // A number is off by at most half of max / 127; of normal values about 0.7 % of their size.
      CHECK(error < 0.02);
      CHECK(error > 1e-3);
    }
  }
}

TEST_CASE("the reference is close to softmax attention in double") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 80, 128}) {
    Arena arena({head_dim, 1, 1, 64, 0, head_dim == 80 ? 1.5 : 0.0}, {1200}, rng);
    for (int position : {0, 1, 100, 511, 512, 1199}) {
      const Sequence& s = arena.sequence(0);
      const std::vector<bf16> row = arena.Reference(0, position);
      const std::vector<double> exact =
          ExactAttention(s.kv[0], s.q.data() + position * head_dim, position, arena.Rule());
      INFO("D " << head_dim << ", position " << position);
      CHECK(RelativeError(row, exact) < 5e-3);  // bf16 has 2^-9 per rounding
    }
  }
}

}  // namespace
}  // namespace baton
