#include "kvtransfer/protocol/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Vectors of RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST_CASE("CRC32C of the published vectors") {
  std::vector<uint8_t> ascending(32), descending(32);
  for (uint8_t i = 0; i < 32; ++i) {
    ascending[i] = i;
    descending[i] = static_cast<uint8_t>(31 - i);
  }
  const std::string zeros(32, '\0'), ones(32, '\xff');
  const uint8_t read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                    0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                    0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
  CHECK(Crc32c("123456789", 9) == 0xe3069283u);
  CHECK(Crc32c(zeros.data(), 32) == 0x8a9136aau);
  CHECK(Crc32c(ones.data(), 32) == 0x62a8ab43u);
  CHECK(Crc32c(ascending.data(), 32) == 0x46dd794eu);
  CHECK(Crc32c(descending.data(), 32) == 0x113fdb5cu);
  CHECK(Crc32c(read_command, 48) == 0xd9963a56u);
  CHECK(Crc32c("", 0) == 0u);
}

// Returns the CRC bit by bit, as RFC 3720 defines it.
uint32_t ByDefinition(const uint8_t* bytes, size_t n_bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n_bytes; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST_CASE("CRC32C of every length, start and split is that of the definition") {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(20'000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (int round = 0; round < 1'100; ++round) {
    const size_t start = random() % 100;
    const size_t n = round < 1'000 ? size_t(round) : random() % (bytes.size() - start);
    const size_t split = n == 0 ? 0 : random() % n;
    const uint32_t whole = ByDefinition(bytes.data() + start, n);
    REQUIRE(Crc32c(bytes.data() + start, n) == whole);
    const uint32_t head = Crc32c(bytes.data() + start, split);
    REQUIRE(ExtendCrc32c(head, bytes.data() + start + split, n - split) == whole);
  }
}

}  // namespace
}  // namespace baton
