// CRC32C (Castagnoli, RFC 3720 appendix B.4): the check on every chunk's bytes. ISA-L computes it
// by the instructions that the machine has. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// CRC of the bytes already in `crc` followed by `n_bytes` more (CHECKed: below 2 GiB); start with
// 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t n_bytes);
inline uint32_t Crc32c(const void* bytes, size_t n_bytes) {
  return ExtendCrc32c(0, bytes, n_bytes);
}

}  // namespace baton
