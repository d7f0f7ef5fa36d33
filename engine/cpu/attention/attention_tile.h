// The functions of one ISA path of the attention: a few query rows against one 128-key tile, the
// fold of a segment into a row, and the row's result. attention.cc decides which rows attend which
// tiles. Plain types only: kernel units include this header. All functions need the MXCSR of the
// pool.
//
// A row here is one (token, query head); rows that attend a tile together belong to one sequence
// and one KV head. attention_softmax.h has the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/numerics/bf16.h"

namespace baton {

inline constexpr int kGroupKeys = 16;     // keys of a group of the cpu16 page layout
inline constexpr int kTileKeys = 128;     // keys of one softmax step
inline constexpr int kSegmentKeys = 512;  // keys of one running maximum
inline constexpr int kTileGroups = kTileKeys / kGroupKeys;
inline constexpr int kSegmentTiles = kSegmentKeys / kTileKeys;
// Maximum widths of a key and a value: a latent of 512 with 64 dims of rope. Both are multiples of
// 16.
inline constexpr int kMaxKeyDim = 576, kMaxValueDim = 512;

// Stride of query, output and state rows in 4-byte units: a constant, so that kernels address
// twelve rows from one register; 37 cache lines, so that rows do not share L1 sets.
inline constexpr int kRowStride = kMaxKeyDim + 16;

// A path may read (never write) this many rows of q beyond the last.
inline constexpr int kPaddingRows = 15;

// Source of a tile that the pages hold in another form: int8, or values in keys, or both. The first
// rows that attend the tile make new_k and new_v, to which k and v of the tile point.
//
// An int8 group has sixteen fp32 scales, one per key, and then whole numbers: K (key_dim, 16),
// V (16, value_dim). The chains run over the numbers; a key's scale multiplies its score, a value's
// scale its weight (before the weight is rounded to bf16, and not in the sum of weights).
struct TileSource {
  bool is_int8;
  const std::byte* k[kTileGroups];  // groups in the pages
  const std::byte* v[kTileGroups];  // null: the values are the first value_dim dims of the keys
  const std::byte* next_k[kTileGroups];  // worth prefetching: groups of the next tile
  const std::byte* next_v[kTileGroups];
  bf16* new_k[kTileGroups];  // int8 only
  bf16* new_v[kTileGroups];
};
inline constexpr int kInt8ScaleBytes = 4 * kGroupKeys;  // size of the scales before the numbers

// The keys of a tile by groups of 16: K group (key_dim_padded / 2, 16, 2), V group
// (8, value_dim, 2), bf16. Groups from n_groups on are not read.
//
// fresh: no row has read the tile just now. A path may then prefetch V while it reads K, and the
// groups of next_k (as many as in this tile) while it reads V; use a source; or lay out the tile if
// there is room for that, and prefetch next_k and next_v.
struct KeyTile {
  const bf16* k[kTileGroups];
  const bf16* v[kTileGroups];
  int key_dim, value_dim;
  int n_groups;
  int all_groups;  // groups that any row attending the tile needs
  bool fresh;
  const bf16* next_k[kTileGroups];
  const bf16* next_v[kTileGroups];
  const TileSource* source = nullptr;  // null: k and v lie in the pages
  bool meets_many_rows = false;        // making the tile from its source once pays for all rows
  // Room for the tile as the path lays it out, 64-byte aligned: laid_out_floats for each dim of K
  // padded to 32, and of V to 64. Null: too few rows for laying out to pay.
  float* k_laid_out = nullptr;
  float* v_laid_out = nullptr;
};

// The tiles of a segment that have keys, from its first on; 0 tiles: none.
struct KeySegment {
  KeyTile tiles[kSegmentTiles];
  int n_tiles = 0;
};

// Softmax state of rows: running maximum, sum of weights, weighted sum of values.
struct RowState {
  float* max;  // (n)
  float* sum;  // (n)
  float* out;  // (n, kRowStride): value_dim used; a path may write up to 16 beyond
};

struct TileRows {
  const void* q;           // (n, kRowStride), packed by pack_query
  const int32_t* visible;  // (n) keys of the tile the row sees: <= 0 none, >= 128 all
  int n;                   // 1..max_rows
  // (n) keys at the front of the tile that lie before the row's window: <= 0 none, >= 128 all;
  // null: no windows.
  const int32_t* hidden = nullptr;
};

// Maps a score to an exponent of two: S * c, or with a soft cap cap * tanh(S * inner) * c.
struct ScoreScale {
  float c;          // fp32(scale * log2 e), with a soft cap fp32(log2 e)
  float cap = 0;    // 0: none
  float inner = 0;  // fp32(scale / cap)
};
ScoreScale ScoreScaleOf(double scale, double soft_cap);

// Continues the rows' segment with one tile.
using AttendTile = void (*)(const TileRows& rows, const KeyTile& tile, const ScoreScale& scale,
                            const RowState& segment);

// Continues the rows' segment with all of its tiles in one call. next: the segment that is attended
// next, worth prefetching; it may have no tiles. The rows have no windows, and `visible` counts
// keys from the first tile on. Key and value widths are multiples of 32, and values do not lie in
// keys. Tiles name no next groups.
using AttendSegment = void (*)(const TileRows& rows, const KeySegment& segment,
                               const KeySegment& next, const ScoreScale& scale,
                               const RowState& state);

struct AttentionTileKernels {
  int max_rows;
  int edge_rows;        // rows to take at a time if rows see the tile up to different keys
  int laid_out_floats;  // 0: the path lays nothing out
  // Packs one query row (key_dim) in the path's form, padded with +0 to a multiple of 32.
  void (*pack_query)(const bf16* q, int key_dim, void* packed);
  AttendTile attend;
  // Computes every row against all groups of the tile, also those it does not see, and masks what
  // it does not see; the result is that of `attend`. For comparisons only.
  AttendTile attend_masked;
  // Few rows, of which keys and values are read at the speed of memory: so many rows at most; 0:
  // the path takes one tile after the other.
  int segment_rows = 0;
  AttendSegment attend_segment = nullptr;
  // Folds a finished segment into the rows; segments come in ascending order. c: ScoreScale's.
  void (*fold)(const RowState& segment, int n, int value_dim, float c, const RowState& rows);
  // out (value_dim) = bf16 of one row's result.
  void (*finish)(float sum, const float* weighted, int value_dim, bf16* out);
};

extern const AttentionTileKernels kAttentionTileAvx2;
extern const AttentionTileKernels kAttentionTileAvx512;
extern const AttentionTileKernels kAttentionTileAvx512Bf16;
extern const AttentionTileKernels kAttentionTileAmx;

}  // namespace baton
