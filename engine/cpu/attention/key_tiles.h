// The tiles of one sequence's keys of one KV head as the kernels read them: where they lie in the
// pages, or, where a page holds another form (int8, values in keys), what they are to be made of.
#pragma once

#include <cstdint>
#include <span>

#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/kv/kv_layout.h"

namespace baton {

// One thread's room for a tile that is made from its source, or laid out.
class TileRoom {
 public:
  // laid_out_floats: AttentionTileKernels'; 0: no tile will be laid out.
  void Reserve(const KvLayout& layout, int layer, int laid_out_floats);
  // Has the tile laid out here by the first rows that meet it.
  void LayOut(KeyTile* tile) const;

 private:
  friend class KeyTiles;
  AlignedBuffer keys_memory_, values_memory_, laid_out_memory_;
  bf16 *keys_ = nullptr, *values_ = nullptr;  // (kTileGroups) groups
  float *k_laid_out_ = nullptr, *v_laid_out_ = nullptr;
  TileSource source_;  // of the tile read last
};

class KeyTiles {
 public:
  // pages: the sequence's page table, which covers its n_keys keys.
  KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
           std::span<const int32_t> pages, int n_keys);

  // Whether tiles of a layer are made from another form; then one had better meet many rows.
  static bool AreMade(const KvLayout& layout, int layer) {
    return layout.type == KvType::kInt8 || layout.shape(layer).values_in_keys;
  }

  // The tile at first_key, fresh, all but its n_groups. No page beyond the keys is looked up:
  // groups without a key get the address of the last one.
  void Read(int first_key, TileRoom* room, KeyTile* tile) const;

 private:
  struct Group {
    const std::byte *k, *v;
  };
  // Of the tile at first_key.
  struct Groups {
    Group of[kTileGroups];
  };
  Groups FindGroups(int first_key) const;
  Group Find(int key) const;
  void SetSource(int first_key, int next_key, TileRoom* room, KeyTile* tile) const;

  const KvLayout& layout_;
  const KvShape& shape_;
  KvPlaneTable planes_;
  std::span<const int32_t> pages_;
  int n_keys_;
  int page_shift_;  // page_tokens is a power of two
  bool are_made_;
  int64_t k_offset_, v_offset_, k_bytes_, v_bytes_;  // in a plane; of a group
};

}  // namespace baton
