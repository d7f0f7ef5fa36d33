#include "engine/cpu/attention/key_tiles.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace baton {

void TileRoom::Reserve(const KvLayout& layout, int layer, int laid_out_floats) {
  const KvShape& shape = layout.shape(layer);
  const auto reserve = [](AlignedBuffer& memory, int width) {
    return static_cast<bf16*>(
        memory.Reserve(sizeof(bf16) * kTileKeys * static_cast<size_t>(width)));
  };
  if (layout.type == KvType::kInt8) keys_ = reserve(keys_memory_, shape.key_dim_padded());
  if (KeyTiles::AreMade(layout, layer)) values_ = reserve(values_memory_, shape.value_dim);
  const int64_t k_floats = int64_t{shape.key_dim_padded()} * laid_out_floats;
  const int64_t v_floats = (shape.value_dim + 63) / 64 * int64_t{64} * laid_out_floats;
  k_laid_out_ = static_cast<float*>(
      laid_out_memory_.Reserve(sizeof(float) * static_cast<size_t>(k_floats + v_floats)));
  v_laid_out_ = k_laid_out_ + k_floats;
}

void TileRoom::LayOut(KeyTile* tile) const {
  tile->k_laid_out = k_laid_out_;
  tile->v_laid_out = v_laid_out_;
}

KeyTiles::KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
                   std::span<const int32_t> pages, int n_keys)
    : layout_(layout),
      shape_(layout.shape(layer)),
      planes_(planes),
      pages_(pages),
      n_keys_(n_keys),
      page_shift_(std::countr_zero(static_cast<unsigned>(layout.page_tokens))),
      are_made_(AreMade(layout, layer)),
      k_offset_(layout.KOffset(layer, kv_head)),
      v_offset_(shape_.values_in_keys ? 0 : layout.VOffset(layer, kv_head)),
      k_bytes_(layout.KGroupBytes(layer)),
      v_bytes_(layout.VGroupBytes(layer)) {
  BATON_CHECK(layout.page_tokens == 1 << page_shift_);
}

KeyTiles::Groups KeyTiles::FindGroups(int first_key) const {
  Groups groups;
  groups.of[0] = Find(first_key);
  for (int j = 1; j < kTileGroups; ++j) {
    const int key = first_key + j * kGroupKeys;
    const Group& before = groups.of[j - 1];
    if (key >= n_keys_)
      groups.of[j] = before;
    else if ((key & (layout_.page_tokens - 1)) == 0)
      groups.of[j] = Find(key);
    else  // both in the same page
      groups.of[j] = {before.k + k_bytes_, before.v == nullptr ? nullptr : before.v + v_bytes_};
  }
  return groups;
}

KeyTiles::Group KeyTiles::Find(int key) const {
  const std::byte* const plane = planes_.At(pages_[static_cast<size_t>(key >> page_shift_)]);
  const int64_t group = (key & (layout_.page_tokens - 1)) / kGroupKeys;
  return {plane + k_offset_ + group * k_bytes_,
          shape_.values_in_keys ? nullptr : plane + v_offset_ + group * v_bytes_};
}

int KeyTiles::CountGroups(int first_key) const {
  return (std::min(kTileKeys, n_keys_ - first_key) + kGroupKeys - 1) / kGroupKeys;
}

KeyTiles::Groups KeyTiles::NextGroups(int first_key, const Then& then) const {
  const int next_key = first_key + kTileKeys;
  const bool has_next = next_key < n_keys_;
  if (!has_next && then.tiles == nullptr) return FindGroups(first_key);
  const int n = has_next ? CountGroups(next_key) : 0;
  Groups next;
  if (has_next) next = FindGroups(next_key);
  if (n == kTileGroups || then.tiles == nullptr) return next;
  const Groups after = then.tiles->FindGroups(then.first_key);
  std::copy(after.of, after.of + kTileGroups - n, next.of + n);
  return next;
}

void KeyTiles::Read(int first_key, const Then& then, TileRoom* room, KeyTile* tile) const {
  SetTile(first_key, FindGroups(first_key), NextGroups(first_key, then), room, tile);
}

void KeyTiles::ReadSegment(int first_key, SegmentRoom* room) const {
  const int end = std::min(n_keys_, first_key + kSegmentKeys);
  int& n = room->segment.n_tiles;
  n = 0;
  for (int key = first_key; key < end; key += kTileKeys, ++n) {
    KeyTile& tile = room->segment.tiles[n];
    const Groups groups = FindGroups(key);
    SetTile(key, groups, groups, &room->tiles[n], &tile);
    tile.n_groups = tile.all_groups;
  }
}

void KeyTiles::SetTile(int first_key, const Groups& groups, const Groups& next_groups,
                       TileRoom* room, KeyTile* tile) const {
  tile->key_dim = shape_.key_dim;
  tile->value_dim = shape_.value_dim;
  tile->fresh = true;
  tile->source = nullptr;  // a tile read before may have had one
  tile->all_groups = CountGroups(first_key);
  if (are_made_) return SetSource(groups, next_groups, room, tile);
  for (int j = 0; j < kTileGroups; ++j) {
    const Group &group = groups.of[j], &next = next_groups.of[j];
    tile->k[j] = reinterpret_cast<const bf16*>(group.k);
    tile->v[j] = reinterpret_cast<const bf16*>(group.v);
    tile->next_k[j] = reinterpret_cast<const bf16*>(next.k);
    tile->next_v[j] = reinterpret_cast<const bf16*>(next.v);
  }
}

void KeyTiles::SetSource(const Groups& groups, const Groups& next_groups, TileRoom* room,
                         KeyTile* tile) const {
  TileSource& source = room->source_;
  source.is_int8 = layout_.type == KvType::kInt8;
  for (int j = 0; j < kTileGroups; ++j) {
    const Group &group = groups.of[j], &next = next_groups.of[j];
    source.k[j] = group.k;
    source.v[j] = group.v;
    source.next_k[j] = next.k;
    source.next_v[j] = next.v;
    source.new_k[j] = room->keys_ + j * kGroupKeys * shape_.key_dim_padded();
    source.new_v[j] = room->values_ + j * kGroupKeys * shape_.value_dim;
    tile->k[j] = source.is_int8 ? source.new_k[j] : reinterpret_cast<const bf16*>(group.k);
    tile->v[j] = source.new_v[j];
  }
  tile->source = &source;
}

}  // namespace baton
