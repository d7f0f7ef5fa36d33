// CRC32C (Castagnoli, RFC 3720 appendix B.4): the check on every chunk's bytes. Uses the SSE4.2
// instruction if the machine has it, a table otherwise; both give the same value. Pure functions,
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// CRC of the bytes already in `crc` followed by `n_bytes` more; start with 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t n_bytes);
inline uint32_t Crc32c(const void* bytes, size_t n_bytes) {
  return ExtendCrc32c(0, bytes, n_bytes);
}

// Both implementations, for tests; the one by instruction needs HasCrc32cInstruction().
bool HasCrc32cInstruction();
uint32_t ExtendCrc32cByTable(uint32_t crc, const void* bytes, size_t n_bytes);
uint32_t ExtendCrc32cByInstruction(uint32_t crc, const void* bytes, size_t n_bytes);

}  // namespace baton
