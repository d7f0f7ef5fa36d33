// The pages of a pool as an engine reads and writes them: where each plane of each page lies. An
// engine knows nothing else of the pool, neither who holds a page nor which are free. Points into
// the pool (kv_pool.h), or into memory of a device, and is valid as long as these are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kv/kv_layout.h"

namespace baton {

struct KvPages {
  const KvLayout* layout = nullptr;
  std::byte* base = nullptr;  // n_pages * layout->page_bytes
  int n_pages = 0;            // that fit at once, with all planes
  int n_ids = 0;              // page ids are below it
  // (n_ids, layers) frame of each plane, -1: none; changes when pages are taken, trimmed or given
  // back. Null if planes do not lie apart.
  const int32_t* frames = nullptr;

  KvPlaneTable planes(int layer) const {
    if (frames == nullptr)
      return {base + layout->planes[static_cast<size_t>(layer)].offset, layout->page_bytes};
    return {base, layout->frame_bytes(), frames + layer, layout->n_layers()};
  }
  std::byte* plane(int32_t page, int layer) const { return planes(layer).At(page); }
};

}  // namespace baton
