// The emulation of AMX tiles against scalar forms of every instruction, and the instructions
// against both if the machine has them.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "engine/cpu/machine/isa.h"
#include "engine/threads/mxcsr.h"
#include "tests/engine/cpu/tile_operations.h"

namespace baton {
namespace {

float HighOf(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000u); }
float LowOf(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }

uint32_t Bf16Sum(uint32_t c, const TileWords& a, const TileWords& b, int m, int n) {
  float even = 0, odd = 0;
  for (int pair = 0; pair < 16; ++pair) {
    even = __builtin_fmaf(LowOf(a.at[m][pair]), LowOf(b.at[pair][n]), even);
    odd = __builtin_fmaf(HighOf(a.at[m][pair]), HighOf(b.at[pair][n]), odd);
  }
  return __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, c) + (even + odd));
}

template <typename ByteOfB>
uint32_t ByteSum(uint32_t c, const TileWords& a, const TileWords& b, int m, int n) {
  for (int quad = 0; quad < 16; ++quad) {
    for (int i = 0; i < 4; ++i) {
      const int x = static_cast<int8_t>(a.at[m][quad] >> 8 * i);
      const int w = static_cast<ByteOfB>(b.at[quad][n] >> 8 * i);
      c += static_cast<uint32_t>(x * w);
    }
  }
  return c;
}

uint32_t Expected(const std::string& name, const TileWords& c, const TileWords& a,
                  const TileWords& b, int m, int n) {
  if (name == "tilezero") return 0;
  if (name == "tileloadd" || name == "tileloaddt1") return b.at[m][n];
  if (name.find("reversed") != std::string::npos) return b.at[15 - m][n];
  if (name == "tdpbf16ps") return Bf16Sum(c.at[m][n], a, b, m, n);
  if (name == "tdpbf16ps, five rows") return m < 5 ? Bf16Sum(c.at[m][n], a, b, m, n) : 0;
  if (name == "tdpbsud") return ByteSum<uint8_t>(c.at[m][n], a, b, m, n);
  if (name == "tdpbssd") return ByteSum<int8_t>(c.at[m][n], a, b, m, n);
  FAIL("no scalar form of " << name);
  return 0;
}

// Fills a tile with bytes of all values, the extremes often, or with pairs of bf16s of ordinary
// size, and denormals, infinities and NaN.
void Fill(std::mt19937& random, bool floats, TileWords* tile) {
  static constexpr uint32_t kEdges[] = {0x00000000, 0x80000000, 0x00000001, 0x80018001,
                                        0x7f807f80, 0xff800000, 0x7fc00000, 0x80808080,
                                        0x7f7f7f7f, 0xffffffff, 0x00800080};
  for (auto& row : tile->at) {
    for (uint32_t& word : row) {
      const uint32_t bits = static_cast<uint32_t>(random());
      word = random() % 64 == 0 ? kEdges[bits % std::size(kEdges)] : bits;
      if (floats && random() % 64 != 0) word = (bits & 0x80ff80ffu) | 0x3f003f00u;
    }
  }
}

void Check(const TileOperations& operations) {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const NumericsMxcsrScope mxcsr;
  REQUIRE(operations.n == 9);
  for (int i = 0; i < operations.n; ++i) {
    const TileOperation& operation = operations.first[i];
    const std::string name = operation.name;
    const bool floats = name.starts_with("tdpbf16ps");
    for (int round = 0; round < 50; ++round) {
      TileWords c, a, b, out;
      for (TileWords* tile : {&c, &a, &b}) Fill(random, floats, tile);
      operation.run(c, a, b, &out);
      for (int m = 0; m < 16; ++m) {
        for (int n = 0; n < 16; ++n) {
          const uint32_t expected = Expected(name, c, a, b, m, n), got = out.at[m][n];
          const bool both_nan = floats && std::isnan(__builtin_bit_cast(float, expected)) &&
                                std::isnan(__builtin_bit_cast(float, got));
          if (!both_nan && got != expected) {
            FAIL(name << " row " << m << " column " << n << ": " << got << ", not " << expected);
          }
        }
      }
    }
  }
}

TEST_CASE("every emulated tile instruction equals its scalar form") { Check(kEmulatedTiles); }

TEST_CASE("the machine's tile instructions equal the scalar forms, where it has them") {
  if (!RequestAmxPermission()) {
    WARN("this machine has no AMX");
    return;
  }
  Check(kMachineTiles);
}

}  // namespace
}  // namespace baton
