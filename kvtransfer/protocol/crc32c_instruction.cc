// The only unit built with -msse4.2. The instruction has a latency of three cycles and a throughput
// of one, so three independent streams run interleaved and are then combined: the register after
// A||B is (register after A) * x^(8|B|) xor (register of B started at zero).
#include <cstring>

#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/crc32c_polynomial.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace baton {

#if defined(__x86_64__)
namespace {

uint64_t Load(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// Whole groups of three blocks; moves *at and *n_bytes past them.
template <size_t kBlock>
uint64_t ExtendByBlocks(uint64_t crc, const uint8_t** at, size_t* n_bytes) {
  static constexpr Crc32cTables kShift = Crc32cTablesFor(Crc32cShiftOf(kBlock));
  while (*n_bytes >= 3 * kBlock) {
    uint64_t second = 0, third = 0;
    const uint8_t* p = *at;
    for (size_t i = 0; i < kBlock; i += 8) {
      crc = _mm_crc32_u64(crc, Load(p + i));
      second = _mm_crc32_u64(second, Load(p + kBlock + i));
      third = _mm_crc32_u64(third, Load(p + 2 * kBlock + i));
    }
    crc = Crc32cApply(kShift, static_cast<uint32_t>(crc)) ^ second;
    crc = Crc32cApply(kShift, static_cast<uint32_t>(crc)) ^ third;
    *at += 3 * kBlock;
    *n_bytes -= 3 * kBlock;
  }
  return crc;
}

}  // namespace

uint32_t ExtendCrc32cByInstruction(uint32_t crc, const void* bytes, size_t n_bytes) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  uint64_t state = ~crc;
  state = ExtendByBlocks<4096>(state, &at, &n_bytes);
  state = ExtendByBlocks<256>(state, &at, &n_bytes);
  for (; n_bytes >= 8; at += 8, n_bytes -= 8) state = _mm_crc32_u64(state, Load(at));
  for (; n_bytes > 0; ++at, --n_bytes) state = _mm_crc32_u8(static_cast<uint32_t>(state), *at);
  return ~static_cast<uint32_t>(state);
}
#else
uint32_t ExtendCrc32cByInstruction(uint32_t crc, const void* bytes, size_t n_bytes) {
  return ExtendCrc32cByTable(crc, bytes, n_bytes);
}
#endif

}  // namespace baton
