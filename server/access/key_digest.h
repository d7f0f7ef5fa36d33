// The SHA-256 of a key: all that Baton keeps of it. Plain data, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// There is no operator==: Equals is the only comparison, so that none tells by its time how many
// bytes were right.
class KeyDigest {
 public:
  KeyDigest() = default;
  static KeyDigest Of(std::string_view key);
  // Nothing: not 64 hex digits, of either case.
  static std::optional<KeyDigest> FromHex(std::string_view hex);
  std::string Hex() const;                    // 64 digits in lower case
  bool Equals(const KeyDigest& other) const;  // takes the same time whatever the bytes are

 private:
  std::array<uint8_t, 32> bytes_{};
};

}  // namespace baton
