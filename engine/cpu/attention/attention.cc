#include "engine/cpu/attention/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/check.h"
#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/attention/key_tiles.h"
#include "engine/cpu/machine/aligned_buffer.h"

namespace baton {
namespace {

// Query rows of a block, for which K and V of a tile are read into L2 once.
constexpr int kBlockRows = 128;
// Query rows of a block if tiles are made from another form or laid out: more rows, because making
// a tile costs more.
constexpr int kMadeBlockRows = 384;
// Laying out a tile pays from this many rows on, while keys and values are narrow enough for L2.
constexpr int kMinLaidOutRows = 24, kMaxLaidOutWidth = 512;
// A block that is more than half of a thread's share is split by segments, into units of at least a
// quarter of that share: else threads would wait for the last block (decode of few sequences).
constexpr int64_t kWholeBlocksPerThread = 2, kUnitsPerThread = 4;
// Bound of the parking place of split segments; a block that would not fit is not split.
constexpr int64_t kMaxParkedRows = 32 << 10;  // about 78 MB

template <typename T>
class Buffer {
 public:
  void Reserve(int64_t n) {
    data_ = static_cast<T*>(memory_.Reserve(static_cast<size_t>(n) * sizeof(T)));
  }
  T* data() const { return data_; }

 private:
  AlignedBuffer memory_;
  T* data_ = nullptr;
};

// Softmax states of n rows in one buffer.
struct StateBuffer {
  Buffer<float> max, sum, out;
  void Reserve(int64_t n) {
    max.Reserve(n);
    sum.Reserve(n);
    out.Reserve(n * kRowStride);
  }
  RowState From(int64_t row) const {
    return {max.data() + row, sum.data() + row, out.data() + row * kRowStride};
  }
};

void Clear(const RowState& state, int n, int value_dim) {
  std::fill_n(state.max, n, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, n, 0.0f);
  for (int r = 0; r < n; ++r) std::fill_n(state.out + r * kRowStride, value_dim, 0.0f);
}

// Rows [row_begin, row_end) of one piece against one KV head.
struct Block {
  int piece, kv_head, row_begin, row_end;
  int64_t parked_row;  // first row in the parking place when the segments are split, else -1
};

// Segments [segment_begin, segment_end) of a block: one thread's work item.
struct Unit {
  int block, segment_begin, segment_end;
  int64_t cost;
};

// Scratch of one thread.
struct Workspace {
  Buffer<float> q;
  Buffer<int32_t> positions, visible, hidden;
  StateBuffer segment, rows;
  TileRoom tile;
  SegmentRoom segments[2];  // of even and odd segments: the one attended now, and the next one
  void Reserve(int64_t n) {
    q.Reserve((n + kPaddingRows) * kRowStride);
    positions.Reserve(n);
    visible.Reserve(n);
    hidden.Reserve(n);
    segment.Reserve(n);
    rows.Reserve(n);
  }
};

// The keys that rows are computed against: those that a row of theirs sees.
struct SeenKeys {
  static constexpr auto kAttend = &AttentionTileKernels::attend;
  // First key of a block's rows, whose first position this is.
  static int First(int position, int window) {
    return window == 0 ? 0 : std::max(0, position + 1 - window);
  }
  // End of the keys of a block's rows, whose last position this is. room: keys of its page table.
  static int End(int position, int /*room*/) { return position + 1; }
  // Keys of a tile. seen: by the last of the rows. rest: keys from the tile's first to the end.
  static int InTile(int seen, int /*rest*/) { return seen; }
  // True if no row sees the tile, since `hidden` keys of it lie before the first row's window.
  static bool Passes(int hidden) { return hidden >= kTileKeys; }
  static constexpr bool kInSegments = true;  // kernels may take whole segments
};

// All keys of the page table, for comparisons (MakeDenseMaskAttentionOf).
struct AllKeys {
  static constexpr auto kAttend = &AttentionTileKernels::attend_masked;
  static int First(int, int) { return 0; }
  static int End(int, int room) { return room; }
  static int InTile(int, int rest) { return rest; }
  static bool Passes(int) { return false; }
  static constexpr bool kInSegments = false;
};

template <class Keys>
class TiledAttention final : public AttentionKernels {
 public:
  explicit TiledAttention(const AttentionTileKernels& kernels) : kernels_(kernels) {}

  void Run(const AttentionArgs& args, ComputePool& pool) override {
    args_ = &args;
    shape_ = args.layout->shape(args.layer);
    group_ = args.n_heads / shape_.heads;
    scale_ = ScoreScaleOf(args.scale, args.soft_cap);
    const bool lays_out = shape_.key_dim_padded() + shape_.value_dim <= kMaxLaidOutWidth;
    laid_out_floats_ = lays_out ? kernels_.laid_out_floats : 0;
    const bool are_made = KeyTiles::AreMade(*args.layout, args.layer);
    block_rows_ = are_made || laid_out_floats_ > 0 ? kMadeBlockRows : kBlockRows;
    takes_segments_ = Keys::kInSegments && kernels_.segment_rows > 0 && args.window == 0 &&
                      !shape_.values_in_keys && shape_.key_dim % 32 == 0 &&
                      shape_.value_dim % 32 == 0;
    BATON_CHECK(group_ * shape_.heads == args.n_heads);
    BATON_CHECK(args.keys.first % kSegmentKeys == 0);
    BATON_CHECK(shape_.key_dim % 16 == 0 && shape_.key_dim <= kMaxKeyDim);
    BATON_CHECK(shape_.value_dim % 16 == 0 && shape_.value_dim <= kMaxValueDim);
    n_threads_ = pool.n_threads();
    Plan(n_threads_);
    if (workspaces_.size() < static_cast<size_t>(pool.n_threads()))
      workspaces_.resize(static_cast<size_t>(pool.n_threads()));
    for (Workspace& workspace : workspaces_) {
      workspace.Reserve(std::max(block_rows_, group_));
      workspace.tile.Reserve(*args.layout, args.layer, laid_out_floats_);
      if (takes_segments_)
        for (SegmentRoom& segment : workspace.segments)
          for (TileRoom& room : segment.tiles) room.Reserve(*args.layout, args.layer, 0);
    }
    parked_.Reserve(n_parked_rows_);

    pool.For(static_cast<int64_t>(units_.size()), [this](int64_t i, int member) {
      RunUnit(static_cast<size_t>(i), workspaces_[static_cast<size_t>(member)]);
    });
    if (split_blocks_.empty()) return;
    pool.For(static_cast<int64_t>(split_blocks_.size()), [this](int64_t i, int member) {
      FoldParked(blocks_[static_cast<size_t>(split_blocks_[static_cast<size_t>(i)])],
                 workspaces_[static_cast<size_t>(member)]);
    });
  }

 private:
  int value_dim() const { return shape_.value_dim; }
  int Rows(const Block& block) const { return (block.row_end - block.row_begin) * group_; }
  std::span<const int32_t> PagesOf(int piece) const {
    const std::span<const int32_t> begin = args_->batch->page_begin;
    const int32_t first = begin[static_cast<size_t>(piece)];
    return args_->batch->pages.subspan(
        static_cast<size_t>(first),
        static_cast<size_t>(begin[static_cast<size_t>(piece) + 1] - first));
  }
  int Position(int row) const { return args_->batch->positions[static_cast<size_t>(row)]; }
  // Bounds of the keys that the block's rows are computed against.
  int FirstKey(const Block& block) const {
    return Keys::First(Position(block.row_begin), args_->window);
  }
  int EndKey(const Block& block) const {
    return Keys::End(Position(block.row_end - 1),
                     static_cast<int>(PagesOf(block.piece).size()) * args_->layout->page_tokens);
  }
  // Segments that this call attends; there may be none.
  int FirstSegment(const Block& block) const {
    return std::max(FirstKey(block), args_->keys.first) / kSegmentKeys;
  }
  int EndSegment(const Block& block) const {
    return (std::min(EndKey(block), args_->keys.end) + kSegmentKeys - 1) / kSegmentKeys;
  }
  int64_t ParkedRow(const Block& block, int segment) const {
    return block.parked_row + static_cast<int64_t>(segment - FirstSegment(block)) * Rows(block);
  }

  void Plan(int n_threads) {
    const StepBatch& batch = *args_->batch;
    const int tokens = std::max(1, block_rows_ / group_);
    blocks_.clear();
    units_.clear();
    split_blocks_.clear();
    n_parked_rows_ = 0;
    int64_t total = 0;
    for (int piece = 0; piece < batch.n_pieces(); ++piece) {
      const int begin = batch.piece_begin[static_cast<size_t>(piece)];
      const int end = batch.piece_begin[static_cast<size_t>(piece) + 1];
      for (int row = begin; row < end; row += tokens)
        for (int head = 0; head < shape_.heads; ++head) {
          blocks_.push_back({piece, head, row, std::min(end, row + tokens), -1});
          total += Cost(blocks_.back(), FirstSegment(blocks_.back()), EndSegment(blocks_.back()));
        }
    }
    for (size_t b = 0; b < blocks_.size(); ++b) AddUnits(static_cast<int>(b), total, n_threads);
    // Expensive units first, so that the threads finish together. For a single prompt one KV head
    // after the other, so that its keys and values stay in L2 for all blocks of rows. (With many
    // sequences, the heads of one sequence are adjacent in memory.)
    const bool by_head = batch.n_pieces() == 1;
    std::sort(units_.begin(), units_.end(), [&](const Unit& a, const Unit& b) {
      const int a_head = blocks_[static_cast<size_t>(a.block)].kv_head;
      const int b_head = blocks_[static_cast<size_t>(b.block)].kv_head;
      if (by_head && a_head != b_head) return a_head < b_head;
      return a.cost != b.cost ? a.cost > b.cost : a.block < b.block;
    });
  }

  // Approximate cost: rows times visible keys.
  int64_t Cost(const Block& block, int segment_begin, int segment_end) const {
    const int keys = std::min(EndKey(block), segment_end * kSegmentKeys) -
                     std::max(FirstKey(block), segment_begin * kSegmentKeys);
    return static_cast<int64_t>(std::max(0, keys)) * (Rows(block) + 2);
  }

  void AddUnits(int index, int64_t total, int n_threads) {
    Block& block = blocks_[static_cast<size_t>(index)];
    const int first = FirstSegment(block), end = EndSegment(block), segments = end - first;
    const int64_t cost = Cost(block, first, end);
    const bool whole = n_threads == 1 || cost * kWholeBlocksPerThread * n_threads <= total;
    const int64_t parts =
        whole ? 1 : std::min<int64_t>(segments, 1 + cost * kUnitsPerThread * n_threads / total);
    const int64_t parked = static_cast<int64_t>(segments) * Rows(block);
    if (parts <= 1 || n_parked_rows_ + parked > kMaxParkedRows) {
      units_.push_back({index, first, end, cost});
      return;
    }
    block.parked_row = n_parked_rows_;
    n_parked_rows_ += parked;
    split_blocks_.push_back(index);
    for (int64_t part = 0; part < parts; ++part) {
      const int from = first + static_cast<int>(segments * part / parts);
      const int to = first + static_cast<int>(segments * (part + 1) / parts);
      units_.push_back({index, from, to, Cost(block, from, to)});
    }
  }

  // The tiles that a unit reads, and the first of them.
  struct UnitTiles {
    KeyTiles tiles;
    int first_key, end_key;
  };
  UnitTiles TilesOf(const Unit& unit) const {
    const Block& block = blocks_[static_cast<size_t>(unit.block)];
    const int end = std::min(EndKey(block), unit.segment_end * kSegmentKeys);
    const int first_tile = FirstKey(block) / kTileKeys * kTileKeys;
    return {KeyTiles(*args_->layout, args_->layer, block.kv_head, args_->planes,
                     PagesOf(block.piece), end),
            std::max(unit.segment_begin * kSegmentKeys, first_tile), end};
  }

  void RunUnit(size_t index, Workspace& workspace) const {
    const Unit& unit = units_[index];
    const Block& block = blocks_[static_cast<size_t>(unit.block)];
    const UnitTiles own = TilesOf(unit);
    // The unit that this thread most likely runs next.
    const size_t next = std::min(index + static_cast<size_t>(n_threads_), units_.size() - 1);
    const UnitTiles after = TilesOf(units_[next]);
    const bool is_known = next != index && after.first_key < after.end_key;
    const KeyTiles::Then then = {is_known ? &after.tiles : nullptr, after.first_key};
    const int n = Rows(block);
    PackQueries(block, workspace.q.data());
    for (int r = 0; r < n; ++r)
      workspace.positions.data()[r] = Position(block.row_begin + r / group_);
    const RowState rows = workspace.rows.From(0);
    if (block.parked_row < 0) Open(block, rows);
    if (TakesSegments(n))
      own.tiles.ReadSegment(unit.segment_begin * kSegmentKeys,
                            &workspace.segments[unit.segment_begin % 2]);
    for (int segment = unit.segment_begin; segment < unit.segment_end; ++segment) {
      const RowState state = block.parked_row < 0 ? workspace.segment.From(0)
                                                  : parked_.From(ParkedRow(block, segment));
      Clear(state, n, value_dim());
      RunSegment(block, segment, own.tiles, then, workspace, state);
      if (block.parked_row < 0) kernels_.fold(state, n, value_dim(), scale_.c, rows);
    }
    if (block.parked_row < 0) Close(block, rows);
  }

  void RunSegment(const Block& block, int segment, const KeyTiles& tiles,
                  const KeyTiles::Then& then, Workspace& workspace, const RowState& state) const {
    const int n = Rows(block);
    const int end = std::min(EndKey(block), (segment + 1) * kSegmentKeys);
    if (TakesSegments(n)) return RunWholeSegment(n, segment, tiles, then, workspace, state);
    const int first_tile = FirstKey(block) / kTileKeys * kTileKeys;
    KeyTile tile;
    tile.meets_many_rows = n >= kMinLaidOutRows;
    if (laid_out_floats_ > 0 && tile.meets_many_rows) workspace.tile.LayOut(&tile);
    for (int first_key = std::max(segment * kSegmentKeys, first_tile); first_key < end;
         first_key += kTileKeys) {
      tiles.Read(first_key, then, &workspace.tile, &tile);
      for (int from = 0, count = 0; from < n; from += count) {
        const bool is_edge = workspace.positions.data()[from] + 1 - first_key < kTileKeys;
        count = std::min(n - from, is_edge ? kernels_.edge_rows : kernels_.max_rows);
        int32_t* const visible = workspace.visible.data();
        for (int r = 0; r < count; ++r)
          visible[r] = workspace.positions.data()[from + r] + 1 - first_key;
        const int last = visible[count - 1];  // ascending
        const int n_keys = std::min(kTileKeys, Keys::InTile(last, end - first_key));
        if (n_keys <= 0) continue;
        const int32_t* hidden = nullptr;
        if (args_->window > 0) {
          hidden = HiddenKeys(visible, count, workspace.hidden.data());
          if (Keys::Passes(hidden[0])) continue;
        }
        tile.n_groups = (n_keys + kGroupKeys - 1) / kGroupKeys;
        (kernels_.*Keys::kAttend)(
            {workspace.q.data() + static_cast<int64_t>(from) * kRowStride, visible, count, hidden},
            tile, scale_,
            {state.max + from, state.sum + from,
             state.out + static_cast<int64_t>(from) * kRowStride});
        tile.fresh = false;
      }
    }
  }

  bool TakesSegments(int n_rows) const {
    return takes_segments_ && n_rows <= kernels_.segment_rows;
  }

  // One segment, which is already read, for few rows. Reads the one after it.
  void RunWholeSegment(int n, int segment, const KeyTiles& tiles, const KeyTiles::Then& then,
                       Workspace& workspace, const RowState& state) const {
    const int first_key = segment * kSegmentKeys;
    SegmentRoom* const next = &workspace.segments[(segment + 1) % 2];
    tiles.ReadSegment(first_key + kSegmentKeys, next);
    if (next->segment.n_tiles == 0 && then.tiles != nullptr)
      then.tiles->ReadSegment(then.first_key, next);
    int32_t* const visible = workspace.visible.data();
    for (int r = 0; r < n; ++r) visible[r] = workspace.positions.data()[r] + 1 - first_key;
    kernels_.attend_segment({workspace.q.data(), visible, n},
                            workspace.segments[segment % 2].segment, next->segment, scale_, state);
  }

  // Keys of a tile before the window of each row, ascending as the rows' positions do.
  const int32_t* HiddenKeys(const int32_t* visible, int n, int32_t* hidden) const {
    for (int r = 0; r < n; ++r) hidden[r] = visible[r] - args_->window;
    return hidden;
  }

  void PackQueries(const Block& block, float* packed) const {
    for (int row = block.row_begin; row < block.row_end; ++row)
      for (int h = 0; h < group_; ++h, packed += kRowStride)
        kernels_.pack_query(args_->q + row * args_->q_stride + Head(block, h) * shape_.key_dim,
                            shape_.key_dim, packed);
  }

  void FoldParked(const Block& block, Workspace& workspace) const {
    const RowState rows = workspace.rows.From(0);
    Open(block, rows);
    for (int segment = FirstSegment(block); segment < EndSegment(block); ++segment)
      kernels_.fold(parked_.From(ParkedRow(block, segment)), Rows(block), value_dim(), scale_.c,
                    rows);
    Close(block, rows);
  }

  // Loads the rows' state from before this call; Close stores the state after it.
  void Open(const Block& block, const RowState& rows) const {
    if (!args_->keys.resumes) return Clear(rows, Rows(block), value_dim());
    for (int r = 0; r < Rows(block); ++r) {
      const auto [max, sum, out] = Kept(block, r);
      rows.max[r] = *max;
      rows.sum[r] = *sum;
      std::copy_n(out, value_dim(), rows.out + r * kRowStride);
    }
  }
  void Close(const Block& block, const RowState& rows) const {
    if (args_->keys.finishes) return Finish(block, rows);
    for (int r = 0; r < Rows(block); ++r) {
      const auto [max, sum, out] = Kept(block, r);
      *max = rows.max[r];
      *sum = rows.sum[r];
      std::copy_n(rows.out + r * kRowStride, value_dim(), out);
    }
  }
  RowState Kept(const Block& block, int r) const {
    const PartialSoftmax row = args_->kept.From(block.row_begin + r / group_);
    const int64_t head = Head(block, r % group_);
    return {row.max + head, row.sum + head, row.out + head * value_dim()};
  }

  void Finish(const Block& block, const RowState& rows) const {
    for (int r = 0; r < Rows(block); ++r)
      kernels_.finish(rows.sum[r], rows.out + r * kRowStride, value_dim(),
                      args_->out + (block.row_begin + r / group_) * args_->out_stride +
                          Head(block, r % group_) * value_dim());
  }

  int64_t Head(const Block& block, int h) const { return block.kv_head * group_ + h; }

  const AttentionTileKernels& kernels_;
  const AttentionArgs* args_ = nullptr;  // args of the current Run
  KvShape shape_;                        // shape of its layer
  int group_ = 0;                        // query heads per KV head
  int n_threads_ = 1;
  int block_rows_ = kBlockRows, laid_out_floats_ = 0;
  bool takes_segments_ = false;  // few rows take whole segments
  ScoreScale scale_{};
  std::vector<Block> blocks_;
  std::vector<Unit> units_;
  std::vector<int> split_blocks_;
  int64_t n_parked_rows_ = 0;
  StateBuffer parked_;
  std::vector<Workspace> workspaces_;
};

}  // namespace

ScoreScale ScoreScaleOf(double scale, double soft_cap) {
  constexpr double kLog2E = 1.4426950408889634;
  if (soft_cap == 0) return {static_cast<float>(scale * kLog2E)};
  return {static_cast<float>(kLog2E), static_cast<float>(soft_cap),
          static_cast<float>(scale / soft_cap)};
}

const AttentionTileKernels& AttentionTileKernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return kAttentionTileAvx2;
    case Isa::kAvx512:
      return kAttentionTileAvx512;
    case Isa::kAvx512Bf16:
      return kAttentionTileAvx512Bf16;
    case Isa::kAmx:
      return kAttentionTileAmx;
  }
  BATON_CHECK(false);
}

std::unique_ptr<AttentionKernels> MakeAttentionKernels(Isa isa) {
  return MakeAttentionKernelsOf(AttentionTileKernelsOf(isa));
}

std::unique_ptr<AttentionKernels> MakeAttentionKernelsOf(const AttentionTileKernels& kernels) {
  return std::make_unique<TiledAttention<SeenKeys>>(kernels);
}

std::unique_ptr<AttentionKernels> MakeDenseMaskAttentionOf(const AttentionTileKernels& kernels) {
  return std::make_unique<TiledAttention<AllKeys>>(kernels);
}

}  // namespace baton
