#include "kvtransfer/protocol/wire.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <boost/pfr/core.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton::wire {
namespace {

// In front of a control message.
struct Prefix {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint8_t type = 0, zero = 0;
  uint32_t crc = 0;
};
constexpr size_t kPrefixBytes = 12;
// In front of a chunk header.
struct HeaderPrefix {
  uint32_t magic = kMagic;
  uint16_t version = kVersion, zero = 0;
};
constexpr size_t kTypeAt = 6, kCrcAt = 8;
constexpr size_t kIdentityBegin = 8, kIdentityEnd = 48;
constexpr size_t kHeaderCrcAt = 100;

// Texts of peers go to logs: they are printable ASCII, whatever a peer sends.
bool IsPlain(char c) { return c >= ' ' && c <= '~'; }

// Writer and Reader walk the fields of a struct in the order of their declaration.
class Writer {
 public:
  template <typename T>
  requires std::is_aggregate_v<T>
  void operator()(const T& value) {
    boost::pfr::for_each_field(value, [this](auto& field) { (*this)(field); });
  }
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  template <size_t kN>
  void operator()(const std::array<uint8_t, kN>& bytes) {
    bytes_.append(bytes.begin(), bytes.end());
  }
  void operator()(const std::string& text) {
    const auto n = static_cast<uint16_t>(std::min(text.size(), kMaxTextBytes));
    (*this)(n);
    for (size_t i = 0; i < n; ++i) bytes_.push_back(IsPlain(text[i]) ? text[i] : '?');
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  requires std::is_aggregate_v<T>
  void operator()(T& value) {
    boost::pfr::for_each_field(value, [this](auto& field) { (*this)(field); });
  }
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T& value) {
    uint64_t bits = 0;
    const std::string_view bytes = Take(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i)
      bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    value = static_cast<T>(bits);
  }
  template <size_t kN>
  void operator()(std::array<uint8_t, kN>& to) {
    const std::string_view bytes = Take(to.size());
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  void operator()(std::string& text) {
    uint16_t n = 0;
    (*this)(n);
    if (n > kMaxTextBytes) ok_ = false;
    text = std::string(Take(n));
    if (!std::all_of(text.begin(), text.end(), IsPlain)) ok_ = false;
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

template <size_t kIndex = 0>
Message MessageOfType(size_t index) {
  if constexpr (kIndex + 1 < std::variant_size_v<Message>) {
    if (index != kIndex) return MessageOfType<kIndex + 1>(index);
  }
  return std::variant_alternative_t<kIndex, Message>{};
}

template <typename M>
std::array<uint8_t, 32> MacOf(const ClusterKey& key, std::string_view said, M message) {
  message.mac.fill(0);
  const std::string bytes = absl::StrCat(std::string(said), Encode(Message(std::move(message))));
  return ClusterMac(key, bytes.data(), bytes.size());
}

template <typename M>
bool MacMatches(const ClusterKey& key, std::string_view said, const M& message) {
  const auto mac = MacOf(key, said, message);
  return CRYPTO_memcmp(mac.data(), message.mac.data(), mac.size()) == 0;
}

// CRC of an encoded control message, without its magic, version and CRC.
uint32_t MessageCrc(std::string_view bytes) {
  return ExtendCrc32c(Crc32c(bytes.data() + kTypeAt, kCrcAt - kTypeAt), bytes.data() + kPrefixBytes,
                      bytes.size() - kPrefixBytes);
}

}  // namespace

std::string Encode(const Message& message) {
  Writer writer;
  writer(Prefix{.type = static_cast<uint8_t>(message.index() + 1)});
  std::visit(writer, message);
  std::string bytes = writer.bytes();
  BATON_CHECK(bytes.size() <= kMaxControlBytes);
  Writer crc;
  crc(MessageCrc(bytes));
  return bytes.replace(kCrcAt, 4, crc.bytes());
}

absl::StatusOr<Message> Decode(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes || bytes.size() > kMaxControlBytes)
    return absl::InvalidArgumentError(absl::StrCat("control message of ", bytes.size(), " bytes"));
  Prefix prefix;
  Reader(bytes.substr(0, kPrefixBytes))(prefix);
  const auto [magic, version, type, zero, crc] = prefix;
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
  std::visit(reader, message);
  if (!reader.Finished())
    return absl::InvalidArgumentError(
        absl::StrCat("control message of type ", type, " with wrong length ", bytes.size()));
  return message;
}

bool IsGreeting(std::string_view bytes) {
  if (bytes.size() <= kTypeAt) return false;
  const auto index = static_cast<size_t>(static_cast<uint8_t>(bytes[kTypeAt])) - 1;
  return index == Message(Challenge()).index() || index == Message(Hello()).index() ||
         index == Message(HelloAck()).index();
}

void Sign(const ClusterKey& key, std::string_view said, Hello& hello) {
  hello.mac = MacOf(key, said, hello);
}
void Sign(const ClusterKey& key, std::string_view said, HelloAck& ack) {
  ack.mac = MacOf(key, said, ack);
}
bool Verify(const ClusterKey& key, std::string_view said, const Hello& hello) {
  return MacMatches(key, said, hello);
}
bool Verify(const ClusterKey& key, std::string_view said, const HelloAck& ack) {
  return MacMatches(key, said, ack);
}

ChunkHeaderBytes Encode(const ChunkHeader& header) {
  Writer writer;
  writer(HeaderPrefix()), writer(header);
  writer(Crc32c(writer.bytes().data(), kHeaderCrcAt));
  ChunkHeaderBytes result;
  BATON_CHECK(writer.bytes().size() == result.size());
  std::copy(writer.bytes().begin(), writer.bytes().end(), result.begin());
  return result;
}

absl::StatusOr<ChunkHeader> DecodeChunkHeader(std::string_view bytes) {
  if (bytes.size() != kChunkHeaderBytes)
    return absl::InvalidArgumentError(absl::StrCat("chunk header of ", bytes.size(), " bytes"));
  HeaderPrefix prefix;
  ChunkHeader header;
  uint32_t header_crc = 0;
  Reader reader(bytes);
  reader(prefix), reader(header), reader(header_crc);
  if (prefix.magic != kMagic || prefix.version != kVersion || prefix.zero != 0 || header.zero != 0)
    return absl::InvalidArgumentError("not a chunk header of this protocol version");
  if (header_crc != Crc32c(bytes.data(), kHeaderCrcAt))
    return absl::DataLossError("chunk header damaged (CRC32C differs)");
  return header;
}

uint32_t IdentityCrc(const ChunkHeader& header) {
  return Crc32c(Encode(header).data() + kIdentityBegin, kIdentityEnd - kIdentityBegin);
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
  if (code == 0 || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated))
    return absl::UnknownError(text);
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

}  // namespace baton::wire
