// Arithmetic of the CRC32C polynomial (RFC 3720 appendix B.4), for crc32c*.cc; the tables are made
// at compile time. Values are reflected: bit 31 is x^0. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton {

inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;

// Feeds one zero bit.
constexpr uint32_t Crc32cTimesX(uint32_t crc) {
  return (crc >> 1) ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
}

// a * b modulo the polynomial.
constexpr uint32_t Crc32cMultiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((b >> bit & 1) != 0) product ^= a;
    a = Crc32cTimesX(a);
  }
  return product;
}

// x^(8 * n_bytes): the product of a CRC register and this value feeds n_bytes zero bytes.
constexpr uint32_t Crc32cShiftOf(size_t n_bytes) {
  uint32_t power = 0x80000000u;        // x^0
  uint32_t square = 0x80000000u >> 8;  // x^8
  for (size_t n = n_bytes; n != 0; n >>= 1) {
    if ((n & 1) != 0) power = Crc32cMultiply(power, square);
    square = Crc32cMultiply(square, square);
  }
  return power;
}

// tables[k][byte]: the register after `byte` was placed in byte k of a zero register and then
// multiplied by `factor`.
using Crc32cTables = std::array<std::array<uint32_t, 256>, 4>;
constexpr Crc32cTables Crc32cTablesFor(uint32_t factor) {
  Crc32cTables tables{};
  for (size_t k = 0; k < 4; ++k) {
    for (uint32_t bit = 0; bit < 8; ++bit) {  // linear: 8 products, the rest by XOR
      const uint32_t product = Crc32cMultiply(1u << (8 * k + bit), factor);
      for (uint32_t byte = 1u << bit; byte < 2u << bit; ++byte)
        tables[k][byte] = tables[k][byte ^ (1u << bit)] ^ product;
    }
  }
  return tables;
}

// crc * factor, by the tables of `factor`.
constexpr uint32_t Crc32cApply(const Crc32cTables& tables, uint32_t crc) {
  return tables[0][crc & 0xff] ^ tables[1][crc >> 8 & 0xff] ^ tables[2][crc >> 16 & 0xff] ^
         tables[3][crc >> 24];
}

}  // namespace baton
