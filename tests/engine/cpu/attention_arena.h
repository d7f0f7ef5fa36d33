// Sequences of random queries, keys and values in the pages of an arena, run on every path of the
// attention and compared with the scalar reference.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/attention/attention.h"
#include "engine/cpu/rows/elementwise.h"
#include "tests/engine/cpu/attention_reference.h"
#include "tests/engine/cpu/kernel_paths.h"

namespace baton {

inline constexpr bf16 kPoison = 0x7fff;  // a NaN
inline constexpr int kLayer = 1;         // the layer whose attention is computed

struct Shape {
  int head_dim, kv_heads, group, page_tokens;
  int window = 0;
  double soft_cap = 0;
  KvType type = KvType::kBf16;
  int latent = 0;  // width of values that are part of the keys; 0: separate values, head_dim wide
  int value_dim() const { return latent > 0 ? latent : head_dim; }
  int heads() const { return kv_heads * group; }
};

inline std::string Name(const Shape& s) {
  return (s.type == KvType::kInt8 ? "int8, D " : "bf16, D ") + std::to_string(s.head_dim) + ", " +
         std::to_string(s.kv_heads) + " kv heads x " + std::to_string(s.group) + ", pages of " +
         std::to_string(s.page_tokens) + ", window " + std::to_string(s.window) + ", soft cap " +
         std::to_string(s.soft_cap) + ", latent " + std::to_string(s.latent);
}

inline bf16 RandomBf16(std::mt19937& rng, float sigma) {
  return FloatToBf16(std::normal_distribution<float>(0, sigma)(rng));
}

// The queries, keys and values of a sequence, and its page table in the arena.
struct Sequence {
  int length;
  std::vector<bf16> q;          // (length, heads, head_dim)
  std::vector<ReferenceKv> kv;  // (kv_heads)
  std::vector<int32_t> pages;
};

struct Piece {
  int sequence, begin, end;
};

// Rounds rows (n, width) to the values of an int8 layout, and returns their scales.
inline void RoundToInt8(std::vector<bf16>* rows, int width, std::vector<float>* scales) {
  for (size_t at = 0; at < rows->size(); at += static_cast<size_t>(width)) {
    const ReferenceInt8 row = EncodeInt8(rows->data() + at, width);
    scales->push_back(row.scale);
    for (size_t i = 0; i < row.numbers.size(); ++i)
      (*rows)[at + i] = FloatToBf16(static_cast<float>(row.numbers[i]));
  }
}
inline void RoundToInt8(ReferenceKv* kv) {
  RoundToInt8(&kv->k, kv->key_dim, &kv->k_scale);
  RoundToInt8(&kv->v, kv->value_dim, &kv->v_scale);
}

// Makes the values the first dims of the keys.
inline void TakeValuesOfKeys(ReferenceKv* kv) {
  kv->v.clear();
  for (size_t at = 0; at < kv->k.size(); at += static_cast<size_t>(kv->key_dim))
    kv->v.insert(kv->v.end(), kv->k.begin() + static_cast<int64_t>(at),
                 kv->k.begin() + static_cast<int64_t>(at) + kv->value_dim);
  kv->v_scale = kv->k_scale;
}

inline double RelativeError(const std::vector<bf16>& row, const std::vector<double>& exact) {
  double error = 0, norm = 0;
  for (size_t d = 0; d < exact.size(); ++d) {
    error += std::pow(double{Bf16ToFloat(row[d])} - exact[d], 2);
    norm += exact[d] * exact[d];
  }
  return std::sqrt(error / norm);
}

// Options of a run; the default attends once over all keys.
struct RunOptions {
  std::vector<KeyRange> ranges{KeyRange{}};  // in this order, with rows kept in between
  bool whole_tables = false;  // page tables of whole sequences, not only up to the end of the piece
};

// Returns the ranges between `cuts` (multiples of 512, ascending), in the order of `order`.
inline std::vector<KeyRange> RangesOf(std::vector<int> cuts, const std::vector<size_t>& order) {
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(KeyRange{}.end);
  std::vector<KeyRange> ranges;
  for (size_t i = 0; i < order.size(); ++i)
    ranges.push_back({cuts[order[i]], cuts[order[i] + 1], i > 0, i + 1 == order.size()});
  return ranges;
}

// Sequences in an arena whose other pages hold NaN.
class AttentionArena {
 public:
  AttentionArena(const Shape& shape, std::vector<int> lengths, std::mt19937& rng,
                 float sigma = 1.0f)
      : shape_(shape) {
    const KvShape kv = {shape.kv_heads, shape.head_dim, shape.value_dim(), shape.latent > 0};
    layout_ = KvLayout::Of({{1, 48, 16}, kv}, shape.type, shape.page_tokens);
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

  // Returns output rows of the pieces, one piece after the other (heads x value_dim each).
  std::vector<bf16> Run(AttentionKernels& kernels, ComputePool& pool,
                        const std::vector<Piece>& pieces, const RunOptions& options = {}) {
    StepBuilder builder;
    const int64_t q_width = shape_.heads() * shape_.head_dim;
    const int64_t width = shape_.heads() * shape_.value_dim();
    const int64_t q_stride = q_width + 32, out_stride = width + 16;
    std::vector<bf16> q;
    for (const Piece& piece : pieces) {
      const Sequence& s = sequence(piece.sequence);
      // The table ends with the piece, because the engine must not need more.
      const std::span<const int32_t> table(
          s.pages.data(),
          static_cast<size_t>(layout_.PagesFor(options.whole_tables ? s.length : piece.end)));
      builder.AddPiece(std::vector<int32_t>(static_cast<size_t>(piece.end - piece.begin), 0),
                       piece.begin, table);
      for (int i = piece.begin; i < piece.end; ++i) {
        q.insert(q.end(), s.q.begin() + i * q_width, s.q.begin() + (i + 1) * q_width);
        q.insert(q.end(), static_cast<size_t>(q_stride - q_width), kPoison);
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
    std::vector<float> max(batch.tokens.size() * static_cast<size_t>(shape_.heads())), sum(max);
    std::vector<float> weighted(batch.tokens.size() * static_cast<size_t>(width));
    args.kept = {max.data(), sum.data(), weighted.data(), shape_.heads(), width};
    for (const KeyRange& range : options.ranges) {
      args.keys = range;
      kernels.Run(args, pool);
    }

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
    std::vector<bf16> row(static_cast<size_t>(shape_.heads() * shape_.value_dim()));
    for (int h = 0; h < shape_.heads(); ++h)
      ReferenceAttention(s.kv[static_cast<size_t>(h / shape_.group)],
                         s.q.data() + (position * shape_.heads() + h) * shape_.head_dim, position,
                         Rule(), row.data() + h * shape_.value_dim());
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
      kv.key_dim = shape_.head_dim;
      kv.value_dim = shape_.value_dim();
      for (int i = 0; i < length * kv.key_dim; ++i) {
        kv.k.push_back(RandomBf16(rng, sigma));
        if (shape_.latent == 0) kv.v.push_back(RandomBf16(rng, 1.0f));
      }
      for (int i = 0; i < length; ++i) WriteSlot(s, kv, head, i);
      if (shape_.type == KvType::kInt8) RoundToInt8(&kv);
      if (shape_.latent > 0) TakeValuesOfKeys(&kv);
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

// Returns all paths of this machine, and the emulated paths.
inline const std::vector<KernelPath>& AttentionPaths() {
  static const std::vector<KernelPath> paths = KernelPaths();
  return paths;
}

inline std::unique_ptr<AttentionKernels> BestKernels() {
  return MakeAttentionKernels(SupportedIsas().back());
}

inline std::mt19937 FreshRng() {
  const unsigned seed = std::random_device{}();
  UNSCOPED_INFO("seed " << seed);
  return std::mt19937(seed);
}

// Checks rows of `pieces` on every path with 1 and 2 threads against the reference: every
// `stride`-th row and the last row of a piece.
inline void CheckAgainstReference(AttentionArena& arena, const std::vector<Piece>& pieces,
                                  int stride = 1) {
  const size_t width = static_cast<size_t>(arena.shape().heads() * arena.shape().value_dim());
  std::vector<bf16> first;
  for (int threads : {1, 2}) {
    ComputePool pool(threads, 0);
    for (const KernelPath& path : AttentionPaths()) {
      INFO(Name(arena.shape()) << ", " << path.name << ", " << threads << " threads");
      const std::vector<bf16> rows = arena.Run(*path.kernels.attention, pool, pieces);
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

}  // namespace baton
