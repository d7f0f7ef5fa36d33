#include "kvtransfer/protocol/wire.h"

#include <boost/pfr/ops_fields.hpp>
#include <random>

#include "absl/strings/escaping.h"
#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/test_pool.h"

#include <catch2/catch.hpp>

namespace baton::wire {
namespace {

constexpr std::string_view kSaid = "a challenge";
constexpr Handoff kHandoff{{0x1112131415161718, 0x2122232425262728}, 0x31323334};

struct SameFields {
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    if constexpr (std::is_same_v<A, B>) return boost::pfr::eq_fields(a, b);
    return false;
  }
};

std::vector<Message> OneOfEach() {
  Hello hello{.from = 5,
              .to = 6,
              .nonce = {7},
              .wants_mac = 1,
              .key_id = KeyIdOf(kTestKey),
              .identity = {.model_fingerprint = 0xabcdef,
                           .numerics_id = "cpu-x86",
                           .layout_id = "pages64",
                           .n_planes = 12,
                           .plane_digest = 99}};
  Sign(kTestKey, kSaid, hello);
  HelloAck ack{.from = 6, .code = 9, .difference = "KV layout differs"};
  Sign(kTestKey, kSaid, ack);
  return {hello,
          ack,
          Open{MakePart(MakeTicket(3, 6, 10, 12), 4, 2, 5), 17},
          Promise{kHandoff, 1 << 20, 8 << 20, 3, 77},
          NoRoom{kHandoff, 123'456},
          Ack{kHandoff, 41},
          Nack{kHandoff, 42, NackReason::kCrc},
          Done{kHandoff, 43, 0xfedcba9876543210},
          Commit{kHandoff, -5, 1000},
          Committed{kHandoff},
          Cancel{kHandoff, 1, "client gone"},
          Cancelled{kHandoff, 1, "client gone"},
          Ping{8},
          Pong{8},
          Challenge{.nonce = {3}, .wants_mac = 1}};
}

std::string_view ViewOf(const ChunkHeaderBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ChunkHeader SomeHeader() {
  return {.handoff = kHandoff,
          .plane = 2,
          .n_planes = 3,
          .first_page = 4,
          .n_pages = 5,
          .length = 6000,
          .sender = 0x4142434445464748,
          .receiver = 0x5152535455565758,
          .chunk_seq = 7,
          .payload_crc = 0x61626364,
          .number = 0x7172737475767778,
          .mac = {0x81, 0x82}};
}

// Computes the checksum again, as a peer with intent would.
void Seal(std::string* bytes) {
  if (bytes->size() < 12) return;
  const uint32_t crc =
      ExtendCrc32c(Crc32c(bytes->data() + 6, 2), bytes->data() + 12, bytes->size() - 12);
  for (size_t i = 0; i < 4; ++i) (*bytes)[8 + i] = static_cast<char>(crc >> (8 * i));
}

TEST_CASE("every message survives its encoding") {
  const std::vector<Message> messages = OneOfEach();
  REQUIRE(messages.size() == std::variant_size_v<Message>);
  for (size_t i = 0; i < messages.size(); ++i) {
    REQUIRE(messages[i].index() == i);
    const auto decoded = Decode(Encode(messages[i]));
    REQUIRE(decoded.ok());
    CHECK(std::visit(SameFields(), *decoded, messages[i]));
  }
}

// Fixed bytes: two builds that differ here cannot talk to each other.
TEST_CASE("golden vectors of the encoding") {
  const auto hex = [](const Message& message) { return absl::BytesToHexString(Encode(message)); };
  CHECK(hex(Nack{kHandoff, 42, NackReason::kTooBig}) ==
        "42544e3107000700b273b98c"
        "18171615141312112827262524232221343332312a00000005000000");
  CHECK(hex(Commit{kHandoff, -5, 1000}) ==
        "42544e310700090054135f47"
        "1817161514131211282726252423222134333231fbffffffe8030000");
  CHECK(hex(Cancel{kHandoff, 1, "no"}) ==
        "42544e3107000b00f43963b1"
        "18171615141312112827262524232221343332310100000002006e6f");
  CHECK(hex(Ping{8}) == "42544e3107000d009d11070f0800000000000000");
  CHECK(absl::BytesToHexString(std::string(ViewOf(Encode(SomeHeader())))) ==
        "42544e31070000001817161514131211282726252423222134333231"  // handoff
        "02000000030000000400000005000000"                          // planes, pages
        "701700004847464544434241585756555453525107000000"          // length, ends, seq
        "0000000064636261"                                          // zero, CRC
        "7877767574737271"                                          // number
        "8182000000000000000000000000000000a4d7bf");                // MAC, CRC
}

TEST_CASE("fixed bytes of one message of each type") {
  std::string all;
  for (const Message& message : OneOfEach()) all += Encode(message);
  CHECK(all.size() == 821);
  CHECK(Crc32c(all.data(), all.size()) == 0xdfeb2b7e);
}

TEST_CASE("a chunk header survives its encoding, and no single flipped bit does") {
  const ChunkHeader header = SomeHeader();
  const ChunkHeaderBytes bytes = Encode(header);
  const auto decoded = DecodeChunkHeader(ViewOf(bytes));
  REQUIRE(decoded.ok());
  CHECK(SameFields()(*decoded, header));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    ChunkHeaderBytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    REQUIRE_FALSE(DecodeChunkHeader(ViewOf(damaged)).ok());
  }
  for (size_t n = 0; n < bytes.size(); ++n)
    REQUIRE_FALSE(DecodeChunkHeader(ViewOf(bytes).substr(0, n)).ok());
}

TEST_CASE("the identity CRC covers whose bytes they are, not their way") {
  const ChunkHeader header = SomeHeader();
  const uint32_t crc = IdentityCrc(header);
  ChunkHeader other = header;
  other.sender = other.receiver = 1;
  other.chunk_seq = 99;
  CHECK(IdentityCrc(other) == crc);
  for (uint32_t ChunkHeader::*field :
       {&ChunkHeader::plane, &ChunkHeader::n_planes, &ChunkHeader::first_page,
        &ChunkHeader::n_pages, &ChunkHeader::length}) {
    other = header;
    ++(other.*field);
    CHECK(IdentityCrc(other) != crc);
  }
  other = header;
  ++other.handoff.epoch;
  CHECK(IdentityCrc(other) != crc);
  other = header;
  ++other.handoff.ticket_id.low;
  CHECK(IdentityCrc(other) != crc);
}

TEST_CASE("truncated and lengthened messages are refused") {
  for (const Message& message : OneOfEach()) {
    const std::string bytes = Encode(message);
    for (size_t n = 0; n < bytes.size(); ++n) REQUIRE_FALSE(Decode(bytes.substr(0, n)).ok());
    REQUIRE_FALSE(Decode(bytes + '\0').ok());
  }
  CHECK_FALSE(Decode(std::string(kMaxControlBytes + 1, 'x')).ok());
}

TEST_CASE("wrong magic, version and type are refused, the version by name") {
  const std::string good = Encode(Ping{1});
  std::string bytes = good;
  bytes[0] ^= 1;
  CHECK_FALSE(Decode(bytes).ok());
  bytes = good;
  bytes[4] = 1;
  CHECK(Decode(bytes).status().message().find("version 1") != absl::string_view::npos);
  for (const int type : {0, 16, 255}) {
    bytes = good;
    bytes[6] = static_cast<char>(type);
    Seal(&bytes);
    CHECK_FALSE(Decode(bytes).ok());
  }
}

TEST_CASE("no flipped bit of a message after its version goes unnoticed") {
  for (const Message& message : OneOfEach()) {
    const std::string bytes = Encode(message);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      const absl::Status status = Decode(damaged).status();
      REQUIRE_FALSE(status.ok());
      if (bit / 8 > 7) REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    }
  }
}

// For any bytes: no crash, and an accepted message encodes to the same bytes.
TEST_CASE("random mutations decode to the same bytes or not at all") {
  std::mt19937 random(20);
  const std::vector<Message> messages = OneOfEach();
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = Encode(messages[random() % messages.size()]);
    for (size_t n = random() % 4 + 1; n > 0 && !bytes.empty(); --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 9);
          break;
        case 2:
          bytes.insert(at, random() % 9, static_cast<char>(random()));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      }
    }
    if (round % 2 == 0) Seal(&bytes);
    const auto decoded = Decode(bytes);
    if (!decoded.ok()) continue;
    ++accepted;
    REQUIRE(Encode(*decoded) == bytes);
  }
  CHECK(accepted > 1'000);
}

TEST_CASE("a changed HELLO or a foreign key fails its MAC") {
  const auto messages = OneOfEach();
  auto hello = std::get<Hello>(messages[0]);
  auto ack = std::get<HelloAck>(messages[1]);
  CHECK(Verify(kTestKey, kSaid, hello));
  CHECK(Verify(kTestKey, kSaid, ack));
  CHECK_FALSE(Verify(kTestKey, "another challenge", hello));
  CHECK_FALSE(Verify(kTestKey, "another challenge", ack));
  ClusterKey other = kTestKey;
  other[31] ^= 1;
  CHECK_FALSE(Verify(other, kSaid, hello));
  CHECK_FALSE(Verify(other, kSaid, ack));
  ++hello.nonce[31];
  ack.difference += "!";
  CHECK_FALSE(Verify(kTestKey, kSaid, hello));
  CHECK_FALSE(Verify(kTestKey, kSaid, ack));
}

TEST_CASE("a text of a peer is printable, whatever was said there") {
  const std::string bytes = Encode(Cancel{kHandoff, 1, "a\nb\x1b[31m\xff"});
  const auto decoded = Decode(bytes);
  REQUIRE(decoded.ok());
  CHECK(std::get<Cancel>(*decoded).reason == "a?b?[31m?");
  std::string raw = bytes;
  raw[raw.find('?')] = '\n';
  Seal(&raw);
  CHECK_FALSE(Decode(raw).ok());
}

TEST_CASE("long texts are cut, unknown status codes read as unknown") {
  const auto decoded = Decode(Encode(Cancel{kHandoff, 1, std::string(5'000, 'x')}));
  REQUIRE(decoded.ok());
  CHECK(std::get<Cancel>(*decoded).reason.size() == kMaxTextBytes);
  CHECK(ToStatus(12'345, "what").code() == absl::StatusCode::kUnknown);
  CHECK(ToStatus(0, "no error").code() == absl::StatusCode::kUnknown);
  CHECK(ToStatus(14, "gone").code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton::wire
