// The messages between the two ends of a link. Control messages are small, encoded little-endian
// behind a 12-byte prefix (magic 4, version 2, type 1, zero 1, CRC32C 4 over type, zero and all
// bytes after the prefix); a chunk of KV travels as DATA, announced by a fixed 80-byte header, so
// that the owner of the memory can check the header before posting a receive.
//
//   source -> sink   HELLO  OPEN  DATA  DONE  COMMIT  CANCEL  CANCELLED  PING  PONG
//   sink -> source   CHALLENGE  HELLO_ACK  PROMISE  NO_ROOM  ACK  NACK  COMMITTED  CANCEL
//                    CANCELLED  PING  PONG
//
// The fields of a message travel in the order of their declaration, here and in Ticket, without
// padding; a text as its length in 2 bytes and its bytes.
//
// A field from a peer is data, not truth: Decode checks form (magic, version, CRC, exact length,
// string bounds), the state machines check meaning. Plain values and pure functions, any thread.
// docs/HANDOFF.md, messages, has the order in which they are sent. Where a connection has a MAC,
// each message after HELLO_ACK has a seal behind it (session.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/ids.h"
#include "common/status.h"
#include "common/ticket.h"

namespace baton::wire {

inline constexpr uint32_t kMagic = 0x314e5442;  // "BTN1"
inline constexpr uint16_t kVersion = 7;
inline constexpr size_t kMaxControlBytes =
    8000;                                      // fits UCX's eager path on tcp (8037), with a seal
inline constexpr size_t kMaxTextBytes = 1024;  // longer texts are cut when encoded

// Values that must be equal at both ends before KV may flow.
struct Identity {
  uint64_t model_fingerprint = 0;
  std::string numerics_id, layout_id;
  uint32_t n_planes = 0;
  uint32_t plane_digest = 0;  // CRC32C over the planes' sizes

  bool operator==(const Identity&) const = default;
};

// Comes with one connection only, and nobody without the cluster key can foresee it.
using Nonce = std::array<uint8_t, 32>;

// Answers CHALLENGE: who connects to whom, and with which identity.
struct Hello {
  Incarnation from = 0, to = 0;
  Nonce nonce{};
  uint8_t wants_mac = 0;  // not 0: this end takes nothing without a MAC; so in Challenge
  uint32_t key_id = 0;    // KeyIdOf the cluster key of mac
  Identity identity;
  // ClusterMac of all that was said on this connection and of this message with a zero mac. So it
  // proves the key now, and a recorded one proves nothing.
  std::array<uint8_t, 32> mac{};
};
// Answers HELLO; code and difference tell why a peer is refused.
struct HelloAck {
  Incarnation from = 0;
  uint32_t code = 0;              // absl::StatusCode; 0: welcome
  std::string difference;         // name of the differing field
  std::array<uint8_t, 32> mac{};  // as in Hello
};
// Value of Open::resume_from for a handoff without an earlier promise.
inline constexpr uint32_t kNewHandoff = 0xffffffff;
// Asks the sink for a promise of the ticket's pages.
struct Open {
  Ticket ticket;
  // The handoff was promised over a connection that broke. resume_from is the first chunk without
  // an acknowledgement at the source: the sink repeats its acknowledgements from there on, and then
  // promises.
  uint32_t resume_from = kNewHandoff;
};

// The handoff that all following messages refer to.
struct Handoff {
  TicketId ticket_id;
  Epoch epoch = 0;
  auto operator<=>(const Handoff&) const = default;
};
// The pages are reserved: DATA may begin.
struct Promise {
  Handoff handoff;
  uint64_t chunk_bytes = 0;   // longest chunk that the sink accepts
  uint64_t window_bytes = 0;  // maximum of bytes announced and not acknowledged
  // Tells what is in place and not sent. Named pages: planes [0, here_planes) of all pages and
  // plane here_planes of pages [0, here_pages), from an earlier handoff. Lent pages: all planes of
  // the promise's pages [0, held_pages), of earlier sequences.
  uint32_t here_planes = 0, here_pages = 0, held_pages = 0;
};
// No pages yet; the sink keeps the request and promises later. expected_wait_us: for free pages; 0:
// only the engine's word is missing, on pages that it names or holds.
struct NoRoom {
  Handoff handoff;
  uint64_t expected_wait_us = 0;
};
struct Ack {  // verified and in place
  Handoff handoff;
  uint32_t chunk_seq = 0;
};
enum class NackReason : uint32_t {
  kCrc = 1,  // not arrived, or damaged: to be sent again
  kUnknownTicket,
  kNotGranted,
  kBadRange,
  kTooBig
};
// A chunk was refused, or arrived damaged.
struct Nack {
  Handoff handoff;
  uint32_t chunk_seq = 0;
  NackReason reason = NackReason::kCrc;
};
struct Done {  // every chunk was announced
  Handoff handoff;
  uint32_t n_chunks = 0;
  uint64_t digest = 0;  // sum of ChunkDigest over the chunks
};
// The source is finished: first token of the sequence and number of tokens whose KV was sent.
struct Commit {
  Handoff handoff;
  int32_t first_token = 0;
  int32_t n_tokens = 0;
};
// The handoff is committed at the sink: its range is verified and in place.
struct Committed {
  Handoff handoff;
};
struct Cancel {  // this end gives up the handoff
  Handoff handoff;
  uint32_t code = 0;  // absl::StatusCode
  std::string reason;
};
struct Cancelled {  // the handoff ended here, and no operation of this end for it is outstanding
  Handoff handoff;
  uint32_t code = 0;
  std::string reason;
};
// Asks for a PONG with the same number, on a silent connection.
struct Ping {
  uint64_t seq = 0;
};
struct Pong {
  uint64_t seq = 0;
};
// The first message of a connection, from the end that was connected to.
struct Challenge {
  Nonce nonce{};
  uint8_t wants_mac = 0;
};

// The type on the wire is the index in this list plus one: append only.
using Message = std::variant<Hello, HelloAck, Open, Promise, NoRoom, Ack, Nack, Done, Commit,
                             Committed, Cancel, Cancelled, Ping, Pong, Challenge>;

// The handoff that a message is about; nullptr: a message of the connection, or OPEN.
const Handoff* HandoffOf(const Message& message);

std::string Encode(const Message& message);
// InvalidArgument: not a message of this version, or a wrong length; trailing bytes are invalid.
// DataLoss: damaged on the way.
absl::StatusOr<Message> Decode(std::string_view bytes);

// True for CHALLENGE, HELLO and HELLO_ACK, which no seal follows. Encoded bytes, of any content.
bool IsGreeting(std::string_view bytes);

// said: all that was said on the connection before, encoded. Sign sets mac. Verify returns false if
// mac was made with another key, after something else, or for other content.
void Sign(const ClusterKey& key, std::string_view said, Hello& hello);
void Sign(const ClusterKey& key, std::string_view said, HelloAck& ack);
bool Verify(const ClusterKey& key, std::string_view said, const Hello& hello);
bool Verify(const ClusterKey& key, std::string_view said, const HelloAck& ack);

// Announces `length` bytes: the cells of planes [plane, plane + n_planes) of the promise's pages
// [first_page, first_page + n_pages), page after page, plane after plane inside a page.
//
//   0 magic 4 | 4 version 2 | 6 zero 2 | 8 ticket id 16 | 24 epoch 4 | 28 plane 4 | 32 n_planes 4 |
//   36 first_page 4 | 40 n_pages 4 | 44 length 4 | 48 sender 8 | 56 receiver 8 | 64 chunk_seq 4 |
//   68 zero 4 | 72 payload_crc 4 | 76 number 8 | 84 mac 16 | 100 header_crc 4
//
// payload_crc covers bytes 8..47 (the identity of the chunk) and then the payload, so that a
// payload swapped with another chunk's does not pass; header_crc covers bytes 0..99. number and mac
// are 0 where the connection has no MAC.
struct ChunkHeader {
  Handoff handoff;
  uint32_t plane = 0, n_planes = 0, first_page = 0, n_pages = 0;
  uint32_t length = 0;
  Incarnation sender = 0, receiver = 0;
  uint32_t chunk_seq = 0;
  uint32_t zero = 0;
  uint32_t payload_crc = 0;
  uint64_t number = 0;            // of the chunks signed on this connection
  std::array<uint8_t, 16> mac{};  // of the header with a zero mac, and the payload
};
inline constexpr size_t kChunkHeaderBytes = 104;
using ChunkHeaderBytes = std::array<uint8_t, kChunkHeaderBytes>;

ChunkHeaderBytes Encode(const ChunkHeader& header);
// Errors as of Decode.
absl::StatusOr<ChunkHeader> DecodeChunkHeader(std::string_view bytes);
// CRC32C of the identity part; the payload's CRC continues it.
uint32_t IdentityCrc(const ChunkHeader& header);
// A chunk's share in DONE's digest.
uint64_t ChunkDigest(uint32_t chunk_seq, uint32_t payload_crc);

// The error of a Cancel, Cancelled or HelloAck; a code that is none reads as kUnknown.
absl::Status ToStatus(uint32_t code, const std::string& text);
// Cancel or Cancelled with a status that is not OK.
template <typename M>
M FromStatus(const Handoff& handoff, const absl::Status& status) {
  return {handoff, static_cast<uint32_t>(status.code()), std::string(status.message())};
}

}  // namespace baton::wire
