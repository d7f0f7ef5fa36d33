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
#include "engine/model_desc.h"

namespace baton {
namespace {

constexpr bf16 kPoison = 0x7fff;  // a NaN
constexpr int kLayers = 2, kLayer = 1;

struct Shape {
  int head_dim, kv_heads, group, page_tokens;
  int heads() const { return kv_heads * group; }
};

std::string Name(const Shape& s) {
  return "D " + std::to_string(s.head_dim) + ", " + std::to_string(s.kv_heads) + " kv heads x " +
         std::to_string(s.group) + ", pages of " + std::to_string(s.page_tokens);
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
    layout_ = KvLayout::For(model, KvType::kBf16, shape.page_tokens);
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
  std::vector<bf16> Run(Isa isa, ComputePool& pool, const std::vector<Piece>& pieces) {
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
    args.pool_base = reinterpret_cast<std::byte*>(bytes_.data());
    args.layer = kLayer;
    args.n_heads = shape_.heads();
    args.scale = Scale();
    args.q = q.data();
    args.q_stride = q_stride;
    args.out = out.data();
    args.out_stride = out_stride;
    MakeAttentionKernels(isa)->Run(args, pool);

    std::vector<bf16> rows;
    for (int r = 0; r < batch.n_tokens(); ++r) {
      const auto row = out.begin() + r * out_stride;
      rows.insert(rows.end(), row, row + width);
      REQUIRE(std::all_of(row + width, row + out_stride, [](bf16 x) { return x == kPoison; }));
    }
    return rows;
  }

  double Scale() const { return 1.0 / std::sqrt(static_cast<double>(shape_.head_dim)); }

  std::vector<bf16> Reference(int sequence_index, int position) const {
    const Sequence& s = sequence(sequence_index);
    std::vector<bf16> row(static_cast<size_t>(shape_.heads() * shape_.head_dim));
    for (int h = 0; h < shape_.heads(); ++h) {
      const int64_t at = h * shape_.head_dim;
      ReferenceAttention(s.kv[static_cast<size_t>(h / shape_.group)],
                         s.q.data() + position * shape_.heads() * shape_.head_dim + at, position,
                         Scale(), row.data() + at);
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
    }
    sequences_.push_back(std::move(s));
  }

  void WriteSlot(const Sequence& s, const ReferenceKv& kv, int head, int i) {
    std::byte* const page = Page(s.pages[static_cast<size_t>(i / layout_.page_tokens)]);
    GetElementwiseKernels(Isa::kAvx2)
        .write_kv(layout_, kv.k.data() + i * shape_.head_dim, kv.v.data() + i * shape_.head_dim,
                  page + layout_.KOffset(kLayer, head), page + layout_.VOffset(kLayer, head),
                  i % layout_.page_tokens);
  }

  std::byte* Page(int32_t id) {
    return reinterpret_cast<std::byte*>(bytes_.data()) + id * layout_.page_bytes;
  }

  Shape shape_;
  KvLayout layout_;
  std::vector<bf16> bytes_;
  std::vector<Sequence> sequences_;
};

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
    for (Isa isa : SupportedIsas()) {
      INFO(Name(arena.shape()) << ", " << IsaName(isa) << ", " << threads << " threads");
      const std::vector<bf16> rows = arena.Run(isa, pool, pieces);
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
  const Isa isa = SupportedIsas().back();
  const std::vector<bf16> whole = arena.Run(isa, pool, {{0, 0, 1300}});
  for (int round = 0; round < 6; ++round) {
    std::vector<bf16> rows;
    for (int at = 0; at < 1300;) {
      const int size = round == 0 ? 64 : 1 + static_cast<int>(rng() % 400);
      const int end = std::min(1300, at + size);
      const std::vector<bf16> part = arena.Run(isa, pool, {{0, at, end}});
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
    const std::vector<bf16> rows = arena.Run(SupportedIsas().back(), pool, {{0, 3999, 4000}});
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

TEST_CASE("the reference is close to softmax attention in double") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 80, 128}) {
    Arena arena({head_dim, 1, 1, 64}, {1200}, rng);
    for (int position : {0, 1, 100, 511, 512, 1199}) {
      const Sequence& s = arena.sequence(0);
      const std::vector<bf16> row = arena.Reference(0, position);
      const std::vector<double> exact =
          ExactAttention(s.kv[0], s.q.data() + position * head_dim, position, arena.Scale());
      double error = 0, norm = 0;
      for (size_t d = 0; d < exact.size(); ++d) {
        error += std::pow(double{Bf16ToFloat(row[d])} - exact[d], 2);
        norm += exact[d] * exact[d];
      }
      INFO("D " << head_dim << ", position " << position);
      CHECK(std::sqrt(error / norm) < 5e-3);  // bf16 has 2^-9 per rounding
    }
  }
}

}  // namespace
}  // namespace baton
