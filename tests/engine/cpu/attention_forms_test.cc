// Attention over pages whose form differs from the chains' input: int8, values in keys, or both.
#include "tests/engine/cpu/attention_arena.h"

namespace baton {
namespace {

TEST_CASE("int8 keys and values equal the reference on what they hold") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {16, 64, 80, 128, 256})
    for (int group : {1, 4, 13}) {
      const int page_tokens = 16 << rng() % 3, window = rng() % 2 == 0 ? 0 : 150;
      AttentionArena arena({head_dim, 2, group, page_tokens, window, 0, KvType::kInt8},
                           {400, 700, 33}, rng);
      CheckAgainstReference(arena, {{0, 0, 400}, {1, 699, 700}, {2, 32, 33}}, 61);
    }
  for (float sigma : {0.0f, 1e-37f, 1e-20f, 1e4f}) {
    AttentionArena arena({64, 1, 2, 16, 0, 0, KvType::kInt8}, {300}, rng, sigma);
    CheckAgainstReference(arena, {{0, 270, 300}}, 13);
  }
}

TEST_CASE("few rows, tokens and heads together, equal the reference across tiles and segments") {
  std::mt19937 rng = FreshRng();
  for (KvType type : {KvType::kBf16, KvType::kInt8})
    for (int head_dim : {64, 96, 128})
      for (double soft_cap : {0.0, 30.0}) {
        const float sigma = rng() % 2 == 0 ? 1.0f : 1e4f;
        AttentionArena arena({head_dim, 2, 2, 16 << rng() % 3, 0, soft_cap, type}, {1100}, rng,
                             sigma);
        CheckAgainstReference(arena, {{0, 14, 17}, {0, 126, 130}, {0, 509, 515}, {0, 1098, 1100}});
      }
}

TEST_CASE("int8 keys and values are close to softmax attention in double on what was written") {
  std::mt19937 rng = FreshRng();
  for (int head_dim : {64, 128}) {
    AttentionArena exact({head_dim, 1, 1, 64}, {1200}, rng);
    const Sequence& s = exact.sequence(0);
    ReferenceKv rounded = s.kv[0];
    RoundToInt8(&rounded);
    for (int position : {0, 100, 1199}) {
      const bf16* const q = s.q.data() + position * head_dim;
      std::vector<bf16> row(static_cast<size_t>(head_dim));
      ReferenceAttention(rounded, q, position, exact.Rule(), row.data());
      const double error = RelativeError(row, ExactAttention(s.kv[0], q, position, exact.Rule()));
      INFO("D " << head_dim << ", position " << position << ", error " << error);
      // The max error of a number is half of max / 127; for normal values about 0.7 % of their
      // size.
      CHECK(error < 0.02);
      CHECK(error > 1e-3);
    }
  }
}

TEST_CASE("values that lie in keys equal the reference") {
  std::mt19937 rng = FreshRng();
  struct Widths {
    int key_dim, latent, heads;
  };
  for (const Widths& w : {Widths{80, 64, 4}, {48, 32, 1}, {576, 512, 16}, {112, 96, 5}}) {
    for (KvType type : {KvType::kBf16, KvType::kInt8}) {
      const int window = rng() % 2 == 0 ? 0 : 140;
      AttentionArena arena({w.key_dim, 1, w.heads, 16 << rng() % 3, window, 0, type, w.latent},
                           {300, 620, 33}, rng);
      CheckAgainstReference(arena, {{0, 100, 300}, {1, 619, 620}, {2, 32, 33}}, 83);
    }
  }
}

TEST_CASE("the bits of a latent row do not depend on chunks and threads") {
  std::mt19937 rng = FreshRng();
  AttentionArena arena({80, 1, 4, 16, 0, 0, KvType::kBf16, 64}, {1100}, rng);
  ComputePool pool(2, 0), eight(8, 0);
  const auto kernels = BestKernels();
  const std::vector<bf16> whole = arena.Run(*kernels, pool, {{0, 0, 1100}});
  for (ComputePool* threads : {&pool, &eight}) {
    std::vector<bf16> rows;
    for (int at = 0; at < 1100;) {
      const int end = std::min(1100, at + 1 + static_cast<int>(rng() % 200));
      const std::vector<bf16> part = arena.Run(*kernels, *threads, {{0, at, end}});
      rows.insert(rows.end(), part.begin(), part.end());
      at = end;
    }
    REQUIRE(rows == whole);
  }
}

}  // namespace
}  // namespace baton
