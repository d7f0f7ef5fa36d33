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
  for (const auto extend : {&ExtendCrc32c, &ExtendCrc32cByTable}) {
    CHECK(extend(0, "123456789", 9) == 0xe3069283u);
    CHECK(extend(0, zeros.data(), 32) == 0x8a9136aau);
    CHECK(extend(0, ones.data(), 32) == 0x62a8ab43u);
    CHECK(extend(0, ascending.data(), 32) == 0x46dd794eu);
    CHECK(extend(0, descending.data(), 32) == 0x113fdb5cu);
    CHECK(extend(0, read_command, 48) == 0xd9963a56u);
    CHECK(extend(0, "", 0) == 0u);
  }
}

TEST_CASE("both ways of CRC32C agree at every length, start and split") {
  if (!HasCrc32cInstruction()) return;  // one way only: nothing to compare
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(40'000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t n = 0; n < 1'700; ++n) {
    const size_t start = n % 17;
    REQUIRE(ExtendCrc32cByInstruction(0, bytes.data() + start, n) ==
            ExtendCrc32cByTable(0, bytes.data() + start, n));
  }
  for (int round = 0; round < 300; ++round) {
    const size_t start = random() % 100, n = random() % (bytes.size() - start);
    const size_t split = n == 0 ? 0 : random() % n;
    const uint32_t whole = ExtendCrc32cByTable(0, bytes.data() + start, n);
    REQUIRE(ExtendCrc32cByInstruction(0, bytes.data() + start, n) == whole);
    const uint32_t head = ExtendCrc32cByInstruction(0, bytes.data() + start, split);
    REQUIRE(ExtendCrc32cByInstruction(head, bytes.data() + start + split, n - split) == whole);
  }
}

TEST_CASE("equal flips at equal offsets of the three streams are seen") {
  std::vector<uint8_t> bytes(3 * 4096, 7);
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  for (size_t stream = 0; stream < 3; ++stream) bytes[stream * 4096 + 100] ^= 0x10;
  CHECK(Crc32c(bytes.data(), bytes.size()) != crc);
}

}  // namespace
}  // namespace baton
