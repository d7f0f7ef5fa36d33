#include "engine/model/rope_tables.h"

#include <xxhash.h>

#include <algorithm>

#include "common/check.h"

namespace baton {

RopeTables::RopeTables(const ModelDesc& model, int n_positions)
    : n_pairs_(model.rotary_dim / 2), table_of_(static_cast<size_t>(model.n_layers), 0) {
  tables_[0] = RangesOf(model.rope, model.rotary_dim, n_positions);
  if (!model.window_rope) return;
  tables_[1] = RangesOf(*model.window_rope, model.rotary_dim, n_positions);
  for (int layer = 0; layer < model.n_layers; ++layer) table_of_[layer] = model.windows[layer] > 0;
}

RopeTables::Ranges RopeTables::RangesOf(const RopeDesc& rope, int rotary_dim, int n_positions) {
  Ranges ranges;
  ranges.has_far = rope.RangeOf(n_positions) == RopeRange::kLong;
  const int n_near =
      ranges.has_far ? static_cast<int>(rope.original_max_position_embeddings) : n_positions;
  ranges.near = RopeTable::For(rope, rotary_dim, n_near);
  if (ranges.has_far) {
    ranges.far = RopeTable::For(rope, rotary_dim, n_positions, RopeRange::kLong);
  }
  return ranges;
}

RopeTables::Angles RopeTables::At(int layer, RopeRange range, int position) const {
  const Ranges& ranges = tables_[table_of_[layer]];
  const RopeTable& table = ranges.has_far && range == RopeRange::kLong ? ranges.far : ranges.near;
  const int64_t first = position * n_pairs_;
  BATON_CHECK(first + n_pairs_ <= static_cast<int64_t>(table.cos.size()));
  return {table.cos.data() + first, table.sin.data() + first};
}

uint64_t RopeTables::Digest() const {
  uint64_t digest = 0;
  for (const Ranges& ranges : tables_) {
    for (const RopeTable* table : {&ranges.near, &ranges.far}) {
      const size_t bytes = table->cos.size() * sizeof(float);
      digest = XXH64(table->cos.data(), bytes, digest);
      digest = XXH64(table->sin.data(), bytes, digest);
    }
  }
  return digest;
}

}  // namespace baton
