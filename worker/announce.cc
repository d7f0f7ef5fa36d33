#include "worker/announce.h"

namespace baton {

Incarnation MakeIncarnation(Role role, uint64_t random) {
  const uint64_t order = role == Role::kDecode ? 0 : role == Role::kBoth ? 1 : 2;
  return order << 62 | random >> 2 | 1;
}

WorkerAnnounce AnnounceOf(const WorkerFacts& facts, const WorkerCoreOptions& options,
                          const Backend& backend, const KvPool& pool) {
  const KvLayout& layout = pool.layout();
  WorkerAnnounce announce;
  announce.incarnation = facts.self;
  announce.role = facts.role;
  announce.model_fingerprint = backend.model_fingerprint();
  announce.numerics_id = backend.numerics_id();
  announce.layout_id = layout.layout_id();
  announce.page_tokens = layout.page_tokens;
  announce.pages_total = pool.total();
  announce.max_context = facts.max_context;
  announce.max_batch = options.decode.max_batch;
  announce.max_slice_tokens = backend.limits().max_slice_tokens;
  announce.reuses_kv = options.reuse_kv;
  announce.prefill_cost = ShapeOfCost(layout);
  announce.short_range_tokens = backend.model().rope.ShortRangeTokens();
  announce.itl_stretch = options.itl_stretch;
  announce.min_mixed_tokens = options.min_mixed_tokens;
  return announce;
}

TransferFacts TransferFactsOf(const WorkerAnnounce& announce, const ClusterKey& key) {
  return {.incarnation = announce.incarnation,
          .key = key,
          .model_fingerprint = announce.model_fingerprint,
          .numerics_id = announce.numerics_id,
          .layout_id = announce.layout_id};
}

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
