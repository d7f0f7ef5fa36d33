// The tiles of one sequence's keys of one KV head as the kernels read them: where they lie in the
// pages, or, where a page holds another form (int8, values in keys), a copy of them.
#pragma once

#include <cstdint>
#include <span>

#include "engine/cpu/aligned_buffer.h"
#include "engine/cpu/attention_tile.h"
#include "engine/kv_layout.h"

namespace baton {

// One thread's room for the copy of a tile.
class TileCopy {
 public:
  void Reserve(const KvLayout& layout, int layer);
  bf16* keys() const { return keys_; }
  bf16* values() const { return values_; }

 private:
  AlignedBuffer keys_memory_, values_memory_;
  bf16 *keys_ = nullptr, *values_ = nullptr;  // (kTileGroups) groups
};

class KeyTiles {
 public:
  // pages: the sequence's page table, which covers its n_keys keys.
  KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
           std::span<const int32_t> pages, int n_keys, const GroupExpansion& expand);

  // Whether tiles of a layer are copied; then one tile had better meet many rows.
  static bool AreCopied(const KvLayout& layout, int layer) {
    return layout.type == KvType::kInt8 || layout.shape(layer).values_in_keys;
  }

  // The tile at first_key, of which rows see n_groups groups; others are not read, and of pages
  // beyond n_keys nothing is known: groups without a key get the address of the last one.
  void Read(int first_key, int n_groups, const TileCopy& copy, KeyTile* tile) const;

 private:
  struct Group {
    const std::byte *k, *v;
  };
  Group Find(int key) const;
  void Copy(int n_groups, const TileCopy& copy, KeyTile* tile) const;

  const KvLayout& layout_;
  const KvShape& shape_;
  const GroupExpansion& expand_;
  KvPlaneTable planes_;
  std::span<const int32_t> pages_;
  int n_keys_;
  bool is_copied_;
  int64_t k_offset_, v_offset_, k_bytes_, v_bytes_;  // in a plane; of a group
};

}  // namespace baton
