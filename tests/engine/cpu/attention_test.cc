// Every path of the attention against the scalar reference, bit by bit, and the reference against
// softmax attention in double.
#include "engine/cpu/attention/attention.h"

#include "engine/threads/mxcsr.h"
#include "tests/engine/cpu/attention_arena.h"
#include "tests/engine/cpu/emulated_kernels.h"

namespace baton {
namespace {

TEST_CASE("one row of every length around the borders equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 32, 64, 80, 96, 128, 256}) {
    const Shape shape{head_dim, 1, 1 + static_cast<int>(rng() % 4), 16 << rng() % 3};
    AttentionArena arena(shape, {1100}, rng);
    for (int length : {1,   2,   15,  16,  17,  31,  32,  33,  47,   64,   65,   127,
                       128, 129, 255, 257, 511, 512, 513, 640, 1023, 1024, 1025, 1100})
      CheckAgainstReference(arena, {{0, length - 1, length}});
  }
}

TEST_CASE("prefill rows equal the reference for every grouping of heads") {
  std::mt19937 rng = FreshRng();
  for (int group : {1, 2, 3, 4, 5, 8, 13, 71}) {
    const Shape shape{group > 8 ? 32 : 64, 2, group, 16 << rng() % 3};
    AttentionArena arena(shape, {200}, rng);
    CheckAgainstReference(arena, {{0, 0, 200}}, 17);
  }
}

TEST_CASE("a batch of prefill chunks and decode rows equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 80, 96, 128}) {
    for (int page_tokens : {16, 32, 64}) {
      AttentionArena arena({head_dim, 2, 2, page_tokens}, {40, 700, 1, 530, 129, 300}, rng);
      CheckAgainstReference(
          arena, {{0, 0, 40}, {1, 699, 700}, {2, 0, 1}, {3, 500, 530}, {4, 128, 129}, {5, 37, 300}},
          41);
    }
  }
}

TEST_CASE("the bits of a row do not depend on the chunks of its prompt") {
  std::mt19937 rng = FreshRng();
  const Shape shape{64, 2, 3, 32};
  AttentionArena arena(shape, {1300}, rng);
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
    AttentionArena arena(shape, {1100, 300, 2600}, rng);
    CheckAgainstReference(arena, {{0, 900, 1100}, {1, 0, 300}}, 23);
    CheckAgainstReference(arena, {{0, 1099, 1100}, {2, 2599, 2600}, {1, 140, 141}});
  }
}

TEST_CASE("capped scores equal the reference") {
  std::mt19937 rng = FreshRng();
  for (double soft_cap : {0.5, 50.0}) {
    for (int window : {0, 200}) {
      AttentionArena arena({80, 2, 3, 32, window, soft_cap}, {700, 90, 1300}, rng, 3.0f);
      CheckAgainstReference(arena, {{0, 450, 700}, {1, 0, 90}, {2, 1299, 1300}}, 37);
    }
  }
  for (float sigma : {1e-20f, 1e4f}) {
    AttentionArena arena({64, 1, 2, 16, 0, 30.0}, {600}, rng, sigma);
    CheckAgainstReference(arena, {{0, 560, 600}}, 13);
  }
}

TEST_CASE("a windowed row's bits do not depend on chunks and threads") {
  std::mt19937 rng = FreshRng();
  const KvType type = GENERATE(KvType::kBf16, KvType::kInt8);
  AttentionArena arena({64, 2, 3, 32, 200, 0, type}, {1300}, rng);
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
  AttentionArena arena({128, 1, 4, 64}, {4000, 5}, rng);
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
    AttentionArena arena({96, 1, 2, 16}, {600}, rng, sigma);
    INFO("sigma " << sigma);
    CheckAgainstReference(arena, {{0, 560, 600}}, 13);
  }
}

// Rows of one KV head with keys in consecutive groups, for a direct call of tile kernels.
struct TileCase {
  int head_dim, n_keys;
  double soft_cap;
  KvType type;
  ReferenceKv kv;
  KvLayout layout;
  std::vector<std::byte> groups;  // pages of 16 tokens (K, V), one after the other
  std::vector<bf16> q;            // (rows, head_dim)
  std::vector<int> positions;

  TileCase(int dim, int keys, int rows, double cap, std::mt19937& rng,
           KvType kv_type = KvType::kBf16)
      : head_dim(dim),
        n_keys(keys),
        soft_cap(cap),
        type(kv_type),
        layout(KvLayout::Of({{1, dim, dim}}, kv_type, 16)) {
    kv.key_dim = kv.value_dim = dim;
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

  // How rows attend tiles: one after the other, laid out first, or those of a segment together.
  enum class Way { kTiles, kLaidOut, kSegments };
  std::vector<ReferenceState> Run(const AttentionTileKernels& kernels, Way way) const {
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
      if (way == Way::kSegments)
        AddSegment(kernels, packed.data(), begin, scale, segment);
      else
        for (int key = begin; key < std::min(n_keys, begin + kSegmentKeys); key += kTileKeys)
          AddTile(kernels, way == Way::kLaidOut, packed.data(), key, scale, segment);
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
  void WriteGroups() {
    groups.resize(static_cast<size_t>(layout.page_bytes * layout.PagesFor(n_keys)));
    for (int i = 0; i < n_keys; ++i)
      GetElementwiseKernels(Isa::kAvx2)
          .write_kv(layout, 0, 0, kv.k.data() + i * head_dim, kv.v.data() + i * head_dim,
                    groups.data() + i / 16 * layout.page_bytes, i % 16);
  }

  void AddTile(const AttentionTileKernels& kernels, bool lays_out, const float* packed, int key,
               const ScoreScale& scale, const RowState& segment) const {
    TileSource source;
    KeyTile tile = Tile(key);
    tile.fresh = lays_out || positions.size() % 2 == 0;
    std::vector<bf16> made(static_cast<size_t>(2 * kTileKeys * RoundUp(head_dim, 32)));
    if (type == KvType::kInt8) SetSource(key, made.data(), &source, &tile);
    const size_t floats = static_cast<size_t>(RoundUp(head_dim, 64) * kernels.laid_out_floats);
    std::vector<float> k_laid_out(floats, NAN), v_laid_out(floats, NAN);
    if (lays_out) {
      tile.k_laid_out = k_laid_out.data();
      tile.v_laid_out = v_laid_out.data();
    }
    const std::vector<int32_t> visible = VisibleFrom(key);
    const int n = static_cast<int>(positions.size());
    for (int r = 0; r < n; r += kernels.max_rows) {
      kernels.attend(
          {packed + r * kRowStride, visible.data() + r, std::min(kernels.max_rows, n - r)}, tile,
          scale, {segment.max + r, segment.sum + r, segment.out + r * kRowStride});
      if (lays_out) tile.fresh = false;
    }
  }
  void AddSegment(const AttentionTileKernels& kernels, const float* packed, int begin,
                  const ScoreScale& scale, const RowState& state) const {
    const KeySegment segment = Segment(begin);
    const std::vector<int32_t> visible = VisibleFrom(begin);
    kernels.attend_segment({packed, visible.data(), static_cast<int>(positions.size())}, segment,
                           Segment(begin + kSegmentKeys), scale, state);
  }
  KeySegment Segment(int begin) const {
    KeySegment segment;
    for (int key = begin; key < std::min(n_keys, begin + kSegmentKeys); key += kTileKeys)
      segment.tiles[segment.n_tiles++] = Tile(key);
    return segment;
  }

  std::vector<int32_t> VisibleFrom(int key) const {
    std::vector<int32_t> visible;
    for (int position : positions) visible.push_back(position + 1 - key);
    return visible;
  }
  KeyTile Tile(int key) const {
    KeyTile tile;
    tile.key_dim = tile.value_dim = head_dim;
    tile.n_groups = tile.all_groups = std::min(kTileGroups, (n_keys - key + 15) / 16);
    for (int j = 0; j < tile.n_groups; ++j) {
      tile.k[j] = reinterpret_cast<const bf16*>(KeyGroup(key, j));
      tile.v[j] = reinterpret_cast<const bf16*>(ValueGroup(key, j));
      tile.next_k[j] = tile.k[j];
      tile.next_v[j] = tile.v[j];
    }
    return tile;
  }
  const std::byte* KeyGroup(int key, int j) const {
    return groups.data() + (key / 16 + j) * layout.page_bytes;
  }
  const std::byte* ValueGroup(int key, int j) const {
    return KeyGroup(key, j) + layout.KGroupBytes(0);
  }
  // made: room for the tile as bf16.
  void SetSource(int key, bf16* made, TileSource* source, KeyTile* tile) const {
    source->is_int8 = true;
    for (int j = 0; j < tile->n_groups; ++j) {
      source->k[j] = source->next_k[j] = KeyGroup(key, j);
      source->v[j] = source->next_v[j] = ValueGroup(key, j);
      source->new_k[j] = made + j * kGroupKeys * RoundUp(head_dim, 32);
      source->new_v[j] = source->new_k[j] + kTileKeys * RoundUp(head_dim, 32);
      tile->k[j] = source->new_k[j];
      tile->v[j] = source->new_v[j];
    }
    tile->source = source;
  }
};

bool Same(const std::vector<ReferenceState>& a, const std::vector<ReferenceState>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ReferenceState& x, const ReferenceState& y) {
                      return x.max == y.max && x.sum == y.sum && x.out == y.out;
                    });
}

TEST_CASE("the fp32 state of every row equals the reference") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 32, 64, 80, 96, 112, 128, 256})
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 12, 16, 17, 32, 35, 53}) {
      const double soft_cap = rows % 2 == 0 ? 0 : 3;
      const TileCase c(head_dim, 1 + static_cast<int>(rng() % 700), rows, soft_cap, rng);
      const std::vector<ReferenceState> expected = c.Reference();
      for (const KernelPath& path : AttentionPaths()) {
        INFO(path.name << ", D " << head_dim << ", " << rows << " rows, " << c.n_keys << " keys");
        const AttentionTileKernels& kernels = *path.attention_tile;
        REQUIRE(Same(c.Run(kernels, TileCase::Way::kTiles), expected));
        if (kernels.laid_out_floats > 0)
          REQUIRE(Same(c.Run(kernels, TileCase::Way::kLaidOut), expected));
        if (rows <= kernels.segment_rows && head_dim % 32 == 0)
          REQUIRE(Same(c.Run(kernels, TileCase::Way::kSegments), expected));
      }
    }
}

TEST_CASE("tiles of int8 that are laid out give what they give where they lie") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 64, 80, 112, 128})
    for (int rows : {1, 5, 24, 48}) {
      const TileCase c(head_dim, 1 + static_cast<int>(rng() % 700), rows, 0, rng, KvType::kInt8);
      for (const KernelPath& path : AttentionPaths()) {
        const AttentionTileKernels& kernels = *path.attention_tile;
        if (kernels.laid_out_floats == 0) continue;
        INFO(path.name << ", D " << head_dim << ", " << rows << " rows, " << c.n_keys << " keys");
        CHECK(Same(c.Run(kernels, TileCase::Way::kLaidOut), c.Run(kernels, TileCase::Way::kTiles)));
      }
    }
}

TEST_CASE("a sum in another order is noticed") {
  std::mt19937 rng = FreshRng();
  const TileCase c(64, 300, 6, 0, rng);
  CHECK_FALSE(Same(c.Run(kWrongOrderAttention, TileCase::Way::kTiles), c.Reference()));
}

TEST_CASE("the reference is close to softmax attention in double") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 80, 128}) {
    AttentionArena arena({head_dim, 1, 1, 64, 0, head_dim == 80 ? 1.5 : 0.0}, {1200}, rng);
    for (int position : {0, 1, 100, 511, 512, 1199}) {
      const Sequence& s = arena.sequence(0);
      const std::vector<bf16> row = arena.Reference(0, position);
      const std::vector<double> exact =
          ExactAttention(s.kv[0], s.q.data() + position * head_dim, position, arena.Rule());
      INFO("D " << head_dim << ", position " << position);
      CHECK(RelativeError(row, exact) < 5e-3);  // bf16 rounds to 2^-9
    }
  }
}

}  // namespace
}  // namespace baton
