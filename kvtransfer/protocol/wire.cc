#include "kvtransfer/protocol/wire.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton::wire {
namespace {

constexpr size_t kPrefixBytes = 12;
constexpr size_t kTypeAt = 6, kCrcAt = 8;
constexpr size_t kIdentityBegin = 8, kIdentityEnd = 48;
constexpr size_t kPayloadCrcAt = 72, kHeaderCrcAt = 76;

// A message's fields are listed once (Visit, below), in wire order; Writer and Reader walk that
// list.
class Writer {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  void operator()(const std::array<uint8_t, 32>& bytes) {
    bytes_.append(bytes.begin(), bytes.end());
  }
  void operator()(const std::string& text) {
    const auto n = static_cast<uint16_t>(std::min(text.size(), kMaxTextBytes));
    (*this)(n);
    bytes_.append(text, 0, n);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T& value) {
    uint64_t bits = 0;
    const std::string_view bytes = Take(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i)
      bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    value = static_cast<T>(bits);
  }
  void operator()(std::array<uint8_t, 32>& to) {
    const std::string_view bytes = Take(to.size());
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  void operator()(std::string& text) {
    uint16_t n = 0;
    (*this)(n);
    if (n > kMaxTextBytes) ok_ = false;
    text = std::string(Take(n));
  }
  // True if all bytes were there and none is left.
  bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::string_view Take(size_t n) {
    if (!ok_ || rest_.size() < n) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  std::string_view rest_;
  bool ok_ = true;
};

// M is a message, const for Writer.
template <typename A, typename M>
void Visit(A& a, M& m) {
  using T = std::remove_const_t<M>;
  const auto handoff = [&a](auto& h) { a(h.ticket_id.high), a(h.ticket_id.low), a(h.epoch); };
  if constexpr (std::is_same_v<T, Hello>) {
    a(m.from), a(m.to), a(m.nonce), a(m.identity.model_fingerprint), a(m.identity.numerics_id);
    a(m.identity.layout_id), a(m.identity.n_planes), a(m.identity.plane_digest), a(m.mac);
  } else if constexpr (std::is_same_v<T, HelloAck>) {
    a(m.from), a(m.nonce), a(m.code), a(m.difference), a(m.mac);
  } else if constexpr (std::is_same_v<T, Open>) {
    a(m.ticket.id.high), a(m.ticket.id.low), a(m.ticket.epoch), a(m.ticket.request_id);
    a(m.ticket.sink), a(m.ticket.promise.high), a(m.ticket.promise.low), a(m.ticket.kv_pages);
    a(m.ticket.promise_pages), a(m.ticket.first_page), a(m.ticket.n_pages), a(m.ticket.mac);
    a(m.resume_from);
  } else if constexpr (std::is_same_v<T, Ping> || std::is_same_v<T, Pong>) {
    a(m.seq);
  } else {
    handoff(m.handoff);
    if constexpr (std::is_same_v<T, Promise>)
      a(m.chunk_bytes), a(m.window_bytes), a(m.here_planes), a(m.here_pages);
    if constexpr (std::is_same_v<T, NoRoom>) a(m.expected_wait_us);
    if constexpr (std::is_same_v<T, Ack>) a(m.chunk_seq);
    if constexpr (std::is_same_v<T, Nack>) a(m.chunk_seq), a(m.reason);
    if constexpr (std::is_same_v<T, Done>) a(m.n_chunks), a(m.digest);
    if constexpr (std::is_same_v<T, Commit>) a(m.first_token), a(m.n_tokens);
    if constexpr (std::is_same_v<T, Cancel> || std::is_same_v<T, Cancelled>) a(m.code), a(m.reason);
  }
}

template <size_t kIndex = 0>
Message MessageOfType(size_t index) {
  if constexpr (kIndex + 1 < std::variant_size_v<Message>) {
    if (index != kIndex) return MessageOfType<kIndex + 1>(index);
  }
  return std::variant_alternative_t<kIndex, Message>{};
}

template <typename M>
std::array<uint8_t, 32> MacOf(const ClusterKey& key, M message) {
  message.mac.fill(0);
  const std::string bytes = Encode(Message(std::move(message)));
  return ClusterMac(key, bytes.data(), bytes.size());
}

template <typename M>
bool MacMatches(const ClusterKey& key, const M& message) {
  const auto mac = MacOf(key, message);
  return CRYPTO_memcmp(mac.data(), message.mac.data(), mac.size()) == 0;
}

// Header fields in wire order, without the two CRCs.
template <typename A, typename H>
void VisitHeader(A& a, H& h) {
  a(h.handoff.ticket_id.high), a(h.handoff.ticket_id.low), a(h.handoff.epoch), a(h.plane);
  a(h.n_planes), a(h.first_page), a(h.n_pages), a(h.length), a(h.sender), a(h.receiver);
  a(h.chunk_seq);
}

// CRC of an encoded control message, without its magic, version and CRC.
uint32_t MessageCrc(std::string_view bytes) {
  return ExtendCrc32c(Crc32c(bytes.data() + kTypeAt, kCrcAt - kTypeAt), bytes.data() + kPrefixBytes,
                      bytes.size() - kPrefixBytes);
}

std::string EncodeUpToPayloadCrc(const ChunkHeader& header) {
  Writer writer;
  writer(kMagic), writer(kVersion), writer(uint16_t{0});
  VisitHeader(writer, header);
  writer(uint32_t{0});
  std::string bytes = writer.Take();
  BATON_DCHECK(bytes.size() == kPayloadCrcAt);
  return bytes;
}

}  // namespace

std::string Encode(const Message& message) {
  Writer writer;
  writer(kMagic), writer(kVersion), writer(static_cast<uint8_t>(message.index() + 1));
  writer(uint8_t{0}), writer(uint32_t{0});
  std::visit([&writer](const auto& m) { Visit(writer, m); }, message);
  std::string bytes = writer.Take();
  BATON_CHECK(bytes.size() <= kMaxControlBytes);
  Writer crc;
  crc(MessageCrc(bytes));
  return bytes.replace(kCrcAt, 4, crc.Take());
}

absl::StatusOr<Message> Decode(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes || bytes.size() > kMaxControlBytes)
    return absl::InvalidArgumentError(absl::StrCat("control message of ", bytes.size(), " bytes"));
  Reader prefix(bytes.substr(0, kPrefixBytes));
  uint32_t magic = 0, crc = 0;
  uint16_t version = 0;
  uint8_t type = 0, zero = 0;
  prefix(magic), prefix(version), prefix(type), prefix(zero), prefix(crc);
  if (magic != kMagic || zero != 0) return absl::InvalidArgumentError("not a control message");
  if (version != kVersion)
    return absl::InvalidArgumentError(
        absl::StrCat("transfer protocol version ", version, ", this end speaks ", kVersion));
  if (crc != MessageCrc(bytes))
    return absl::DataLossError("control message damaged (CRC32C differs)");
  if (type < 1 || type > std::variant_size_v<Message>)
    return absl::InvalidArgumentError(absl::StrCat("control message of unknown type ", type));
  Message message = MessageOfType(type - size_t{1});
  Reader reader(bytes.substr(kPrefixBytes));
  std::visit([&reader](auto& m) { Visit(reader, m); }, message);
  if (!reader.Finished())
    return absl::InvalidArgumentError(
        absl::StrCat("control message of type ", type, " with wrong length ", bytes.size()));
  return message;
}

void Sign(const ClusterKey& key, Hello& hello) { hello.mac = MacOf(key, hello); }
void Sign(const ClusterKey& key, HelloAck& ack) { ack.mac = MacOf(key, ack); }
bool Verify(const ClusterKey& key, const Hello& hello) { return MacMatches(key, hello); }
bool Verify(const ClusterKey& key, const HelloAck& ack) { return MacMatches(key, ack); }

ChunkHeaderBytes Encode(const ChunkHeader& header) {
  std::string bytes = EncodeUpToPayloadCrc(header);
  Writer payload_crc;
  payload_crc(header.payload_crc);
  bytes += payload_crc.Take();
  Writer header_crc;
  header_crc(Crc32c(bytes.data(), bytes.size()));
  bytes += header_crc.Take();
  ChunkHeaderBytes result;
  BATON_CHECK(bytes.size() == result.size());
  std::copy(bytes.begin(), bytes.end(), result.begin());
  return result;
}

absl::StatusOr<ChunkHeader> DecodeChunkHeader(std::string_view bytes) {
  if (bytes.size() != kChunkHeaderBytes)
    return absl::InvalidArgumentError(absl::StrCat("chunk header of ", bytes.size(), " bytes"));
  Reader reader(bytes);
  uint32_t magic = 0, reserved = 0, header_crc = 0;
  uint16_t version = 0, zero = 0;
  ChunkHeader header;
  reader(magic), reader(version), reader(zero);
  VisitHeader(reader, header);
  reader(reserved), reader(header.payload_crc), reader(header_crc);
  if (magic != kMagic || version != kVersion || zero != 0 || reserved != 0)
    return absl::InvalidArgumentError("not a chunk header of this protocol version");
  if (header_crc != Crc32c(bytes.data(), kHeaderCrcAt))
    return absl::DataLossError("chunk header damaged (CRC32C differs)");
  return header;
}

uint32_t IdentityCrc(const ChunkHeader& header) {
  const std::string bytes = EncodeUpToPayloadCrc(header);
  return Crc32c(bytes.data() + kIdentityBegin, kIdentityEnd - kIdentityBegin);
}

uint64_t ChunkDigest(uint32_t chunk_seq, uint32_t payload_crc) {
  // The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of the two words.
  uint64_t x = uint64_t{chunk_seq} << 32 | payload_crc;
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

const Handoff* HandoffOf(const Message& message) {
  return std::visit(
      [](const auto& m) -> const Handoff* {
        if constexpr (requires { m.handoff; }) return &m.handoff;
        return nullptr;
      },
      message);
}

absl::Status ToStatus(uint32_t code, const std::string& text) {
  if (code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated))
    return absl::UnknownError(text);
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

}  // namespace baton::wire
