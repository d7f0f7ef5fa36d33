#include "worker/pool_view.h"

namespace baton {

PoolView ViewOf(const KvPool& pool) {
  const KvLayout& layout = pool.layout();
  PoolView view{.base = pool.base(),
                .page_stride = layout.page_bytes,
                .n_pages = pool.n_ids(),
                .planes = {},
                .frames = pool.frames(),
                .frame_bytes = layout.frame_bytes(),
                .arena_bytes = layout.page_bytes * pool.total()};
  for (const KvPlane& plane : layout.planes)
    view.planes.push_back({.offset = plane.offset, .bytes = plane.bytes});
  return view;
}

}  // namespace baton
