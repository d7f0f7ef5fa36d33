#include "kvtransfer/protocol/session.h"

#include <vector>

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr Session::Key kKey = {1, 2, 3};

TEST_CASE("a sealed message opens once, at the other end of the same connection only") {
  Session source(kKey, true), sink(kKey, false), other({4}, false);
  const std::string sealed = source.Seal("hello");
  CHECK(sealed.size() == 5 + Session::kSealBytes);
  const auto open = [](Session& session, std::string_view bytes) { return session.Open(&bytes); };
  CHECK(open(other, sealed) == Session::Opened::kForged);
  CHECK(open(source, sealed) == Session::Opened::kForged);  // sent back to where it came from
  std::string_view bytes = sealed;
  CHECK(sink.Open(&bytes) == Session::Opened::kGood);
  CHECK(bytes == "hello");
  CHECK(open(sink, sealed) == Session::Opened::kRepeated);
  const std::string second = source.Seal("a"), third = source.Seal("b");
  CHECK(open(sink, third) == Session::Opened::kGood);
  CHECK(open(sink, second) == Session::Opened::kRepeated);  // too late
}

TEST_CASE("no flipped bit of a sealed message, and no shorter one, opens") {
  Session source(kKey, true), sink(kKey, false);
  const std::string sealed = source.Seal("some message");
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string damaged = sealed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    std::string_view bytes = damaged;
    REQUIRE(sink.Open(&bytes) == Session::Opened::kForged);
  }
  for (size_t n = 0; n < sealed.size(); ++n) {
    std::string_view bytes = std::string_view(sealed).substr(0, n);
    REQUIRE(sink.Open(&bytes) == Session::Opened::kForged);
  }
}

TEST_CASE("a chunk's MAC covers its header and its payload") {
  Session source(kKey, true), sink(kKey, false);
  std::vector<std::byte> payload(1'000, std::byte{7});
  wire::ChunkHeader header{.handoff = {}, .plane = 3, .length = 1'000, .chunk_seq = 5};
  source.Sign(&header, payload.data());
  CHECK(header.number == 1);
  CHECK(sink.Verify(header, payload.data()));
  for (const size_t at : {size_t{0}, size_t{500}, size_t{999}}) {
    payload[at] ^= std::byte{16};
    CHECK_FALSE(sink.Verify(header, payload.data()));
    payload[at] ^= std::byte{16};
  }
  for (const auto change :
       {+[](wire::ChunkHeader& h) { ++h.plane; }, +[](wire::ChunkHeader& h) { ++h.chunk_seq; },
        +[](wire::ChunkHeader& h) { ++h.number; }, +[](wire::ChunkHeader& h) { --h.length; },
        +[](wire::ChunkHeader& h) { h.mac[15] ^= 1; }}) {
    wire::ChunkHeader changed = header;
    change(changed);
    CHECK_FALSE(sink.Verify(changed, payload.data()));
  }
}

}  // namespace
}  // namespace baton
