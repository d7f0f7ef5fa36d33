// Reads the bytes that libFuzzer makes as choices and texts. An input that ends gives zeros and
// empty texts, so that each input means something.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

namespace baton {

class FuzzInput {
 public:
  explicit FuzzInput(std::string_view bytes) : rest_(bytes) {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    random_.seed(hash);
  }

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  bool Bool() { return (Byte() & 1) != 0; }
  size_t Below(size_t n) { return Byte() % n; }  // n: at most 256
  // The text up to the next `end`, which is passed over, or the rest.
  std::string_view Upto(char end) {
    const size_t at = rest_.find(end);
    const std::string_view text = rest_.substr(0, at);
    rest_.remove_prefix(at == rest_.npos ? rest_.size() : at + 1);
    return text;
  }
  std::string_view Rest() {
    const std::string_view text = rest_;
    rest_ = {};
    return text;
  }
  // Numbers that do not come from the input's bytes one by one, but are the same for the same
  // input.
  std::mt19937_64& random() { return random_; }

 private:
  std::string_view rest_;
  std::mt19937_64 random_;
};

}  // namespace baton
