#include "engine/cpu/key_tiles.h"

#include <algorithm>

namespace baton {

void TileRoom::Reserve(const KvLayout& layout, int layer) {
  const KvShape& shape = layout.shape(layer);
  const auto reserve = [](AlignedBuffer& memory, int width) {
    return static_cast<bf16*>(
        memory.Reserve(sizeof(bf16) * kTileKeys * static_cast<size_t>(width)));
  };
  if (layout.type == KvType::kInt8) keys_ = reserve(keys_memory_, shape.key_dim_padded());
  if (KeyTiles::AreMade(layout, layer)) values_ = reserve(values_memory_, shape.value_dim);
}

KeyTiles::KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
                   std::span<const int32_t> pages, int n_keys)
    : layout_(layout),
      shape_(layout.shape(layer)),
      planes_(planes),
      pages_(pages),
      n_keys_(n_keys),
      are_made_(AreMade(layout, layer)),
      k_offset_(layout.KOffset(layer, kv_head)),
      v_offset_(shape_.values_in_keys ? 0 : layout.VOffset(layer, kv_head)),
      k_bytes_(layout.KGroupBytes(layer)),
      v_bytes_(layout.VGroupBytes(layer)) {}

KeyTiles::Group KeyTiles::Find(int key) const {
  key = std::min(key, (n_keys_ - 1) / kGroupKeys * kGroupKeys);
  const std::byte* const plane = planes_.At(pages_[static_cast<size_t>(key / layout_.page_tokens)]);
  const int64_t group = key % layout_.page_tokens / kGroupKeys;
  return {plane + k_offset_ + group * k_bytes_,
          shape_.values_in_keys ? nullptr : plane + v_offset_ + group * v_bytes_};
}

void KeyTiles::Read(int first_key, TileRoom* room, KeyTile* tile) const {
  tile->key_dim = shape_.key_dim;
  tile->value_dim = shape_.value_dim;
  tile->fresh = true;
  const int next_key = first_key + kTileKeys < n_keys_ ? first_key + kTileKeys : first_key;
  if (are_made_) return SetSource(first_key, next_key, room, tile);
  for (int j = 0; j < kTileGroups; ++j) {
    const Group group = Find(first_key + j * kGroupKeys);
    tile->k[j] = reinterpret_cast<const bf16*>(group.k);
    tile->v[j] = reinterpret_cast<const bf16*>(group.v);
    tile->next_k[j] = reinterpret_cast<const bf16*>(Find(next_key + j * kGroupKeys).k);
  }
}

void KeyTiles::SetSource(int first_key, int next_key, TileRoom* room, KeyTile* tile) const {
  TileSource& source = room->source_;
  source.is_int8 = layout_.type == KvType::kInt8;
  const int n_keys = std::min(kTileKeys, n_keys_ - first_key);
  source.n_groups = (n_keys + kGroupKeys - 1) / kGroupKeys;
  for (int j = 0; j < kTileGroups; ++j) {
    const Group group = Find(first_key + j * kGroupKeys), next = Find(next_key + j * kGroupKeys);
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
