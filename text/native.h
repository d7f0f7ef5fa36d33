// C++ types for the buffers and statuses of the Rust library (ffi/baton_text.h). Only .cc files of
// this room include this header. Functions: any thread; Bytes is plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/ffi/baton_text.h"

namespace baton::native {

inline baton_view View(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Owns a buffer allocated by Rust.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(baton_bytes bytes) : bytes_(bytes) {}
  ~Bytes() { baton_bytes_free(bytes_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  baton_bytes* out() { return &bytes_; }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.data), bytes_.size};
  }

 private:
  baton_bytes bytes_ = {nullptr, 0};
};

// The limit_ns of a call.
uint64_t LimitNs(absl::Duration limit);

// INVALID becomes InvalidArgument, EXHAUSTED ResourceExhausted, LATE DeadlineExceeded, INTERNAL (a
// panic in Rust) Internal; the message is `error`.
absl::Status ToStatus(baton_status status, const Bytes& error);

// Reads a file of a model folder, at most 512 MiB. NotFound or InvalidArgument name the file.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace baton::native
