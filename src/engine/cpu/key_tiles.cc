#include "engine/cpu/key_tiles.h"

#include <algorithm>

namespace baton {

void TileCopy::Reserve(const KvLayout& layout, int layer) {
  const KvShape& shape = layout.shape(layer);
  const auto reserve = [](AlignedBuffer& memory, int width) {
    return static_cast<bf16*>(
        memory.Reserve(sizeof(bf16) * kTileKeys * static_cast<size_t>(width)));
  };
  if (layout.type == KvType::kInt8) keys_ = reserve(keys_memory_, shape.key_dim_padded());
  if (KeyTiles::AreCopied(layout, layer)) values_ = reserve(values_memory_, shape.value_dim);
}

KeyTiles::KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
                   std::span<const int32_t> pages, int n_keys, const GroupExpansion& expand)
    : layout_(layout),
      shape_(layout.shape(layer)),
      expand_(expand),
      planes_(planes),
      pages_(pages),
      n_keys_(n_keys),
      is_copied_(AreCopied(layout, layer)),
      k_offset_(layout.KOffset(layer, kv_head)),
      v_offset_(shape_.values_in_keys ? 0 : layout.VOffset(layer, kv_head)),
      k_bytes_(layout.KGroupBytes(layer)),
      v_bytes_(layout.VGroupBytes(layer)) {}

KeyTiles::Group KeyTiles::Find(int key) const {
  key = std::min(key, (n_keys_ - 1) / kGroupKeys * kGroupKeys);
  const std::byte* const plane = planes_.At(pages_[static_cast<size_t>(key / layout_.page_tokens)]);
  const int64_t group = key % layout_.page_tokens / kGroupKeys;
  return {plane + k_offset_ + group * k_bytes_, plane + v_offset_ + group * v_bytes_};
}

void KeyTiles::Read(int first_key, int n_groups, const TileCopy& copy, KeyTile* tile) const {
  tile->key_dim = shape_.key_dim;
  tile->value_dim = shape_.value_dim;
  const int next_key = first_key + kTileKeys < n_keys_ ? first_key + kTileKeys : first_key;
  for (int j = 0; j < kTileGroups; ++j) {
    const Group group = Find(first_key + j * kGroupKeys);
    tile->k[j] = reinterpret_cast<const bf16*>(group.k);
    tile->v[j] = reinterpret_cast<const bf16*>(group.v);
    tile->next_k[j] = reinterpret_cast<const bf16*>(Find(next_key + j * kGroupKeys).k);
  }
  tile->fresh = !is_copied_;
  if (is_copied_) Copy(n_groups, copy, tile);
}

void KeyTiles::Copy(int n_groups, const TileCopy& copy, KeyTile* tile) const {
  const bool is_int8 = layout_.type == KvType::kInt8;
  for (int j = 0; j < n_groups; ++j) {
    if (is_int8) {
      bf16* const k = copy.keys() + j * kGroupKeys * shape_.key_dim_padded();
      expand_.keys(tile->k[j], shape_.key_dim, k);
      tile->k[j] = k;
    }
    bf16* const v = copy.values() + j * kGroupKeys * shape_.value_dim;
    if (shape_.values_in_keys)
      expand_.values_of_keys(tile->k[j], shape_.value_dim, v);
    else
      expand_.values(tile->v[j], shape_.value_dim, v);
    tile->v[j] = v;
  }
}

}  // namespace baton
