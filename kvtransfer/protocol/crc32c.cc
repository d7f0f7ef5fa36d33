#include "kvtransfer/protocol/crc32c.h"

#include "kvtransfer/protocol/crc32c_polynomial.h"

namespace baton {

uint32_t ExtendCrc32cByTable(uint32_t crc, const void* bytes, size_t n_bytes) {
  static constexpr Crc32cTables kOneByte = Crc32cTablesFor(Crc32cShiftOf(1));
  const auto* at = static_cast<const uint8_t*>(bytes);
  crc = ~crc;
  for (size_t i = 0; i < n_bytes; ++i) crc = kOneByte[0][(crc ^ at[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

bool HasCrc32cInstruction() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
#else
  return false;
#endif
}

uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t n_bytes) {
  return HasCrc32cInstruction() ? ExtendCrc32cByInstruction(crc, bytes, n_bytes)
                                : ExtendCrc32cByTable(crc, bytes, n_bytes);
}

}  // namespace baton
