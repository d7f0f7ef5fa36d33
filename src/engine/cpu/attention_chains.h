// Tile order (engine reference 5.5) by fp32 FMA: rows x columns of even and odd chains in
// registers, one accumulator per output in L1, touched once per 32-k group. K lines are sixteen
// keys x one pair of dims, V lines sixteen dims x one pair of keys, so S and P V are the same loop.
// For kernel units.
#pragma once

#include "engine/cpu/attention_softmax.h"

namespace baton {
namespace {

#if defined(__AVX512F__)
struct Vector {
  using Float = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kMaxRows = 6;
  // Columns beside each other: 8 to 24 chains hide the latency of the FMA, and a broadcast serves
  // two of them (L1 loads are the limit otherwise).
  static constexpr int Columns(int rows) { return rows == 1 ? 4 : 2; }
  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Float x) { _mm512_storeu_ps(to, x); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Broadcast(float a) { return _mm512_set1_ps(a); }
  static Float Fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static void LoadPairs(const bf16* line, Float* even, Float* odd) {
    const __m512i pairs = _mm512_loadu_si512(line);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *odd = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};
#else
struct Vector {
  using Float = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kMaxRows = 6;
  static constexpr int Columns(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
  static Float Zero() { return _mm256_setzero_ps(); }
  static Float Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Float x) { _mm256_storeu_ps(to, x); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Broadcast(float a) { return _mm256_set1_ps(a); }
  static Float Fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static void LoadPairs(const bf16* line, Float* even, Float* odd) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    *odd = _mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};
#endif

inline constexpr int kGroupPairs = kGroupKeys / 2;            // V lines of a group per sixteen dims
inline constexpr int kLineColumns = kLanes / Vector::kWidth;  // vectors of a line

// Even and odd chains of R rows x C columns through one 32-k group.
template <int R, int C>
struct Chains {
  Vector::Float even[R][C], odd[R][C];

  void Clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) even[r][c] = odd[r][c] = Vector::Zero();
  }
  // One k pair: a = the pair of row 0, rows a_stride apart; line of column c at lines[c].
  void Step(const float* a, int64_t a_stride, const bf16* const (&lines)[C]) {
    Vector::Float b_even[C], b_odd[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) Vector::LoadPairs(lines[c], &b_even[c], &b_odd[c]);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector::Float a_even = Vector::Broadcast(a[r * a_stride]);
      const Vector::Float a_odd = Vector::Broadcast(a[r * a_stride + 1]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        even[r][c] = Vector::Fma(a_even, b_even[c], even[r][c]);
        odd[r][c] = Vector::Fma(a_odd, b_odd[c], odd[r][c]);
      }
    }
  }
  // acc (R, C vectors) continues: acc + (even + odd), from +0 when `first`.
  void AddTo(float* acc, int64_t acc_stride, bool first) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        float* const to = acc + r * acc_stride + c * Vector::kWidth;
        const Vector::Float before = first ? Vector::Zero() : Vector::Load(to);
        Vector::Store(to, Vector::Add(before, Vector::Add(even[r][c], odd[r][c])));
      }
  }
};

// S of R rows x C columns, the first of which is `column` (in vectors from the start of the tile).
template <int R, int C>
void ScoreColumns(const float* q, const KeyTile& tile, int column, int head_dim, float* s) {
  const bf16* lines[C];
  for (int c = 0; c < C; ++c)
    lines[c] =
        tile.k[(column + c) / kLineColumns] + (column + c) % kLineColumns * Vector::kWidth * 2;
  for (int k = 0; k < head_dim; k += 32) {
    Chains<R, C> chains;
    chains.Clear();
    for (int p = 0; p < 16; ++p) {
      chains.Step(q + k + 2 * p, kRowStride, lines);
      for (int c = 0; c < C; ++c) lines[c] += 2 * kLanes;
    }
    chains.AddTo(s + column * Vector::kWidth, kTileKeys, k == 0);
  }
}

// Adds P V of one 32-key group (n_halves groups of 16, from `group`) to R rows x C columns of out.
template <int R, int C>
void ValueColumns(const float* p, const KeyTile& tile, int group, int n_halves, int column,
                  int head_dim, float* out) {
  Chains<R, C> chains;
  chains.Clear();
  for (int half = 0; half < n_halves; ++half) {
    const bf16* lines[C];
    for (int c = 0; c < C; ++c) lines[c] = tile.v[group + half] + (column + c) * Vector::kWidth * 2;
    const float* a = p + (group + half) * kGroupKeys;
    for (int i = 0; i < kGroupPairs; ++i, a += 2) {
      chains.Step(a, kTileKeys, lines);
      for (int c = 0; c < C; ++c) lines[c] += 2 * head_dim;
    }
  }
  chains.AddTo(out + column * Vector::kWidth, kRowStride, false);
}

template <int R>
void ScoreRows(const float* q, const KeyTile& tile, int head_dim, float* s) {
  constexpr int kColumns = Vector::Columns(R);
  const int n = tile.n_groups * kLineColumns;
  int column = 0;
  for (; column + kColumns <= n; column += kColumns)
    ScoreColumns<R, kColumns>(q, tile, column, head_dim, s);
  for (; column < n; ++column) ScoreColumns<R, 1>(q, tile, column, head_dim, s);
}

template <int R>
void ValueRows(const float* p, const KeyTile& tile, int head_dim, float* out) {
  constexpr int kColumns = Vector::Columns(R);
  const int n = head_dim / Vector::kWidth;
  for (int group = 0; group < tile.n_groups; group += 2) {
    const int n_halves = tile.n_groups - group < 2 ? 1 : 2;
    int column = 0;
    for (; column + kColumns <= n; column += kColumns)
      ValueColumns<R, kColumns>(p, tile, group, n_halves, column, head_dim, out);
    for (; column < n; ++column)
      ValueColumns<R, 1>(p, tile, group, n_halves, column, head_dim, out);
  }
}

using RowsFunction = void (*)(const float*, const KeyTile&, int, float*);
struct RowsTable {
  RowsFunction score[Vector::kMaxRows + 1], value[Vector::kMaxRows + 1];
};
template <int R>
constexpr void FillRows(RowsTable* table) {
  table->score[R] = ScoreRows<R>;
  table->value[R] = ValueRows<R>;
  if constexpr (R > 1) FillRows<R - 1>(table);
}
constexpr RowsTable MakeRowsTable() {
  RowsTable table{};
  FillRows<Vector::kMaxRows>(&table);
  return table;
}
constexpr RowsTable kRows = MakeRowsTable();

struct FmaDot {
  static constexpr int kMaxRows = Vector::kMaxRows;
  struct Scratch {
    alignas(64) float s[kMaxRows][kTileKeys];  // S, then P in its place
  };

  static void PackQuery(const bf16* q, int head_dim, void* packed) {
    float* const row = static_cast<float*>(packed);
    for (int i = 0; i < head_dim; i += kLanes) Store(row + i, LoadBf16<Lanes>(q + i));
    if (head_dim % 32 != 0) Store(row + head_dim, Splat<Lanes>(0.0f));
  }
  static void Scores(const TileRows& rows, const KeyTile& tile, int head_dim, Scratch* scratch) {
    kRows.score[rows.n](static_cast<const float*>(rows.q), tile, head_dim, scratch->s[0]);
  }
  static void StoreWeights(Scratch* scratch, int row, int group, Lanes p) {
    Store(scratch->s[row] + group * kGroupKeys, p);
  }
  static void AddValues(const Scratch& scratch, int n, const KeyTile& tile, int head_dim,
                        float* out) {
    kRows.value[n](scratch.s[0], tile, head_dim, out);
  }
};

}  // namespace
}  // namespace baton
