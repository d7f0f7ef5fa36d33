// The tiles of one sequence's keys of one KV head for the kernels: where a tile lies in the pages,
// or, if a page holds another form (int8, values in keys), from which source it is made. One
// TileRoom per member of the compute pool.
#pragma once

#include <cstdint>
#include <span>

#include "engine/cpu/attention/attention_tile.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/kv/kv_layout.h"

namespace baton {

// Room of one thread for a tile that is made from its source, or laid out.
class TileRoom {
 public:
  // laid_out_floats: AttentionTileKernels::laid_out_floats; 0: no tile will be laid out.
  void Reserve(const KvLayout& layout, int layer, int laid_out_floats);
  // Lets the first rows that attend the tile lay it out here.
  void LayOut(KeyTile* tile) const;

 private:
  friend class KeyTiles;
  AlignedBuffer keys_memory_, values_memory_, laid_out_memory_;
  bf16 *keys_ = nullptr, *values_ = nullptr;  // (kTileGroups) groups
  float *k_laid_out_ = nullptr, *v_laid_out_ = nullptr;
  TileSource source_;  // source of the tile read last
};

// Room of one thread for a segment, and the segment read into it last.
struct SegmentRoom {
  TileRoom tiles[kSegmentTiles];
  KeySegment segment;
};

class KeyTiles {
 public:
  // pages: the sequence's page table, which covers its n_keys keys.
  KeyTiles(const KvLayout& layout, int layer, int kv_head, const KvPlaneTable& planes,
           std::span<const int32_t> pages, int n_keys);

  // True if tiles of a layer are made from another form; such a tile should be attended by many
  // rows.
  static bool AreMade(const KvLayout& layout, int layer) {
    return layout.type == KvType::kInt8 || layout.shape(layer).values_in_keys;
  }

  // Read after the last tile: the tile at first_key of other tiles of the same layer; null: none.
  struct Then {
    const KeyTiles* tiles = nullptr;
    int first_key = 0;
  };
  // Reads the tile at first_key, fresh, with everything but its n_groups. No page beyond the keys
  // is looked up: groups without a key get the address of the last one. The tile names for
  // prefetching the next one, and `then` if the next one has fewer groups than a tile may have.
  void Read(int first_key, const Then& then, TileRoom* room, KeyTile* tile) const;
  // Reads all tiles of the segment at first_key that have keys, with all their groups and without
  // next ones; none if first_key lies beyond the keys.
  void ReadSegment(int first_key, SegmentRoom* room) const;

 private:
  struct Group {
    const std::byte *k, *v;
  };
  // Groups of the tile at first_key.
  struct Groups {
    Group of[kTileGroups];
  };
  Groups FindGroups(int first_key) const;
  Groups NextGroups(int first_key, const Then& then) const;
  // Number of groups of the tile at first_key that have a key.
  int CountGroups(int first_key) const;
  Group Find(int key) const;
  void SetTile(int first_key, const Groups& groups, const Groups& next_groups, TileRoom* room,
               KeyTile* tile) const;
  void SetSource(const Groups& groups, const Groups& next_groups, TileRoom* room,
                 KeyTile* tile) const;

  const KvLayout& layout_;
  const KvShape& shape_;
  KvPlaneTable planes_;
  std::span<const int32_t> pages_;
  int n_keys_;
  int page_shift_;  // page_tokens is a power of two
  bool are_made_;
  int64_t k_offset_, v_offset_, k_bytes_, v_bytes_;  // bytes: offsets in a plane; sizes of a group
};

}  // namespace baton
