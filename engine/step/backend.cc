#include "engine/step/backend.h"

#include <xxhash.h>

#include "common/cpus.h"

namespace baton {

KvType EngineOptions::kv_type() const {
  return dtype == "fp32" ? KvType::kFp32 : kv_dtype == "int8" ? KvType::kInt8 : KvType::kBf16;
}

int ComputeThreads(int threads) {
  if (threads > 0) return threads;
  return OwnCpuAllowance().threads();
}

uint64_t LogitsDigest(std::span<const float> logits, uint64_t previous) {
  return XXH64(logits.data(), logits.size_bytes(), previous);
}

}  // namespace baton
