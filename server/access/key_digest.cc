#include "server/access/key_digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace baton {

KeyDigest KeyDigest::Of(std::string_view key) {
  KeyDigest digest;
  static_assert(sizeof(digest.bytes_) == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.bytes_.data());
  return digest;
}

std::optional<KeyDigest> KeyDigest::FromHex(std::string_view hex) {
  KeyDigest digest;
  const bool is_hex =
      std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (hex.size() != 2 * digest.bytes_.size() || !is_hex) return std::nullopt;
  const std::string bytes = absl::HexStringToBytes(absl::string_view(hex.data(), hex.size()));
  std::copy(bytes.begin(), bytes.end(), digest.bytes_.begin());
  return digest;
}

std::string KeyDigest::Hex() const {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()));
}

bool KeyDigest::Equals(const KeyDigest& other) const {
  return CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

}  // namespace baton
