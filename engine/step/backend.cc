#include "engine/step/backend.h"

#include <xxhash.h>

#include "common/cpus.h"

namespace baton {

int ComputeThreads(int threads) {
  if (threads > 0) return threads;
  return OwnCpuAllowance().threads();
}

uint64_t LogitsDigest(std::span<const float> logits, uint64_t previous) {
  return XXH64(logits.data(), logits.size_bytes(), previous);
}

}  // namespace baton
