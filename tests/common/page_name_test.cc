// Names of pages: SipHash-2-4 of 128 bits by the book, and what they depend on.
#include "common/page_name.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <string_view>
#include <vector>

namespace baton {
namespace {

using Bytes = std::vector<uint8_t>;

// SipHash-2-4 with an output of 128 bits, as its authors describe it.
PageName SipHash(const uint64_t (&key)[2], const Bytes& message) {
  uint64_t v0 = key[0] ^ 0x736f6d6570736575, v1 = key[1] ^ 0x646f72616e646f6d ^ 0xee;
  uint64_t v2 = key[0] ^ 0x6c7967656e657261, v3 = key[1] ^ 0x7465646279746573;
  const auto rounds = [&](int n) {
    for (; n > 0; --n) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  Bytes padded = message;
  while (padded.size() % 8 != 7) padded.push_back(0);
  padded.push_back(static_cast<uint8_t>(message.size()));
  for (size_t at = 0; at < padded.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, padded.data() + at, 8);
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  PageName out;
  v2 ^= 0xee;
  rounds(4);
  out.high = v0 ^ v1 ^ v2 ^ v3;
  v1 ^= 0xdd;
  rounds(4);
  out.low = v0 ^ v1 ^ v2 ^ v3;
  return out;
}

const std::vector<int32_t> kTokens = {5, -1, 7, 70'000, 9, 10, 11};

}  // namespace

TEST_CASE("a name is the SipHash of the name before and the tokens") {
  // Published vectors: the key 00 01 .. 0f, messages without a byte and of 00 01 .. 0e.
  const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  Bytes message;
  CHECK(SipHash(key, message) == PageName{0xe6a825ba047f81a3, 0x930255c71472f66d});
  for (uint8_t byte = 0; byte < 15; ++byte) message.push_back(byte);
  CHECK(SipHash(key, message) == PageName{0x11a8b03399e99354, 0xd9c3cf970fec087e});

  const ClusterKey cluster = {1, 2, 3};
  constexpr std::string_view kUse = "baton page names v1";
  const auto derived = ClusterMac(cluster, kUse.data(), kUse.size());
  uint64_t own_key[2];
  std::memcpy(own_key, derived.data(), sizeof(own_key));
  const PageName before{.high = 0x0123456789abcdef, .low = 42};
  Bytes bytes(sizeof(before) + kTokens.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), &before, sizeof(before));
  std::memcpy(bytes.data() + sizeof(before), kTokens.data(), kTokens.size() * sizeof(int32_t));
  const PageNamer namer(cluster);
  for (int i = 0; i < 2; ++i) CHECK(namer.After(before, kTokens) == SipHash(own_key, bytes));
}

TEST_CASE("names differ by key, salt, RoPE's range, the page before and every token") {
  const PageNamer namer(ClusterKey{1}), other(ClusterKey{2});
  const PageName beginning = PageName::Beginning(7, false);
  const PageName name = namer.After(beginning, kTokens);
  CHECK(name == PageNamer(ClusterKey{1}).After(beginning, kTokens));
  CHECK(name != other.After(beginning, kTokens));
  CHECK(name != namer.After(PageName::Beginning(8, false), kTokens));
  CHECK(name != namer.After(PageName::Beginning(7, true), kTokens));
  CHECK(name != namer.After(name, kTokens));
  for (size_t i = 0; i < kTokens.size(); ++i) {
    std::vector<int32_t> tokens = kTokens;
    ++tokens[i];
    CHECK(name != namer.After(beginning, tokens));
  }
}

}  // namespace baton
