#include "kvtransfer/protocol/crc32c.h"

#include <isa-l/crc.h>

#include <limits>

#include "common/check.h"

namespace baton {

uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t n_bytes) {
  BATON_CHECK(n_bytes <= size_t{std::numeric_limits<int>::max()});
  // ISA-L only reads the bytes, and leaves the inversions at both ends to its caller.
  auto* at = static_cast<unsigned char*>(const_cast<void*>(bytes));
  return ~crc32_iscsi(at, static_cast<int>(n_bytes), ~crc);
}

}  // namespace baton
