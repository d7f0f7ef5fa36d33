// The KV wire: bytes of a peer that nobody vouches for are refused, or are messages and chunk
// headers that mean the same when sent again; a ticket that was changed is not believed.
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/ticket.h"
#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/wire.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton {
namespace {

using wire::ChunkHeader;
using wire::Message;

// Raw bytes; those behind the prefix or before the checksum, which are then right; bits of a ticket
// to flip.
enum Form { kRaw, kMessage, kRawChunk, kChunk, kTicket, kForms };
constexpr size_t kPrefixBytes = 12, kChecksumBytes = 4;
constexpr ClusterKey kKey = {1, 2, 3};

Ticket SignedTicket() {
  Ticket ticket{.id = {3, 4},
                .epoch = 2,
                .request_id = 1000,
                .source = 7,
                .sink = 6,
                .promise = {5, 6},
                .kv_pages = 10,
                .promise_pages = 12,
                .first_page = 4,
                .n_pages = 6,
                .held_pages = 1,
                .expires_us = 5000};
  SignTicket(kKey, ticket);
  return ticket;
}

template <typename Int>
void Append(Int value, std::string* bytes) {  // little-endian, as this machine
  char raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  bytes->append(raw, sizeof(value));
}

// A message with the right prefix (kvtransfer/protocol/wire.h). body: type, then the fields.
std::string Framed(std::string_view body) {
  const std::string kind = {body.empty() ? '\0' : body[0], '\0'};
  const std::string_view fields = body.substr(std::min<size_t>(1, body.size()));
  std::string bytes;
  Append(wire::kMagic, &bytes);
  Append(wire::kVersion, &bytes);
  bytes += kind;
  Append(ExtendCrc32c(Crc32c(kind.data(), kind.size()), fields.data(), fields.size()), &bytes);
  return bytes.append(fields);
}
// Returns what Framed takes.
std::string BodyOf(const Message& message) {
  const std::string bytes = wire::Encode(message);
  return bytes[kPrefixBytes - 6] + bytes.substr(kPrefixBytes);
}

void CheckRefusal(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status) || absl::IsDataLoss(status));
  BATON_CHECK(!status.message().empty() && status.message().size() < 1000);
}

void TryMessage(std::string_view bytes) {
  const auto message = wire::Decode(bytes);
  if (!message.ok()) return CheckRefusal(message.status());
  const std::string once = wire::Encode(*message);  // texts may have been cut
  BATON_CHECK(once.size() <= bytes.size() && once.size() <= wire::kMaxControlBytes);
  const auto again = wire::Decode(once);
  BATON_CHECK(again.ok() && again->index() == message->index());
  BATON_CHECK(wire::Encode(*again) == once);
  if (const auto* open = std::get_if<wire::Open>(&*message))
    BATON_CHECK(open->ticket == SignedTicket() || !VerifyTicket(kKey, open->ticket));
}

std::string_view ViewOf(const wire::ChunkHeaderBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void TryChunk(std::string_view bytes) {
  const auto header = wire::DecodeChunkHeader(bytes);
  if (!header.ok()) return CheckRefusal(header.status());
  BATON_CHECK(ViewOf(wire::Encode(*header)) == bytes);
}

// Changes bytes of a signed ticket: two of the input's bytes are a place, one is what changes
// there.
void TryTicket(FuzzInput& input) {
  std::string body = BodyOf(wire::Open{.ticket = SignedTicket()});
  for (size_t n = 1 + input.Below(4); n > 0; --n) {
    const size_t at = input.Byte() * 256u + input.Byte();
    body[1 + at % (body.size() - 1)] ^= static_cast<char>(input.Byte());
  }
  TryMessage(Framed(body));
}

// ---- seeds ----

template <size_t... I>
std::vector<Message> OneOfEach(std::index_sequence<I...>) {
  return {Message(std::in_place_index<I>)...};
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  switch (input.Below(kForms)) {
    case kRaw:
      return TryMessage(input.Rest());
    case kMessage:
      return TryMessage(Framed(input.Rest()));
    case kRawChunk:
      return TryChunk(input.Rest());
    case kChunk: {
      std::string header(input.Rest());
      header.resize(wire::kChunkHeaderBytes - kChecksumBytes);
      Append(Crc32c(header.data(), header.size()), &header);
      return TryChunk(header);
    }
    default:
      return TryTicket(input);
  }
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](Form form, std::string_view rest) {
    seeds.inputs.push_back(static_cast<char>(form) + std::string(rest));
  };
  auto messages = OneOfEach(std::make_index_sequence<std::variant_size_v<Message>>());
  messages.emplace_back(wire::Open{.ticket = SignedTicket()});
  messages.emplace_back(wire::Cancel{.reason = "client gone"});
  for (const Message& message : messages) {
    const std::string encoded = wire::Encode(message), body = BodyOf(message);
    BATON_CHECK(Framed(body) == encoded);  // else kMessage tries nothing but the checksum
    add(kRaw, encoded);
    add(kMessage, body);
  }
  const ChunkHeader header{.handoff = {{1, 2}, 3},
                           .plane = 2,
                           .n_planes = 3,
                           .first_page = 4,
                           .n_pages = 5,
                           .length = 6000,
                           .sender = 7,
                           .receiver = 8,
                           .chunk_seq = 9};
  const auto chunk = wire::Encode(header);
  add(kRawChunk, ViewOf(chunk));
  add(kChunk, ViewOf(chunk).substr(0, chunk.size() - kChecksumBytes));
  BATON_CHECK(wire::DecodeChunkHeader(ViewOf(chunk)).ok());
  for (const char place : {'\0', '\x20', '\x60'})
    add(kTicket, std::string(1, place) + "\1\1\1\1\1");
  for (const char* word : {"BTN1", "\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\xff\x03", "\x01\x04"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
