#include "engine/step/backend.h"

#include <xxhash.h>

#include "common/check.h"
#include "common/cpus.h"

namespace baton {

void Backend::WakeAt(Fence fence, const std::function<void()>& wake) {
  BATON_CHECK(fence.at == 0);
  wake();
}

absl::StatusOr<std::unique_ptr<KvArena>> Backend::NewArena(int64_t bytes) {
  return KvArena::Map(bytes);
}

int ComputeThreads(int threads) {
  if (threads > 0) return threads;
  return OwnCpuAllowance().threads();
}

uint64_t LogitsDigest(std::span<const float> logits, uint64_t previous) {
  return XXH64(logits.data(), logits.size_bytes(), previous);
}

}  // namespace baton
