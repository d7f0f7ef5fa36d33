#include "text/native.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace baton::native {

uint64_t LimitNs(absl::Duration limit) {
  if (limit == absl::InfiniteDuration()) return UINT64_MAX;
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(limit)));
}

absl::Status ToStatus(baton_status status, const Bytes& error) {
  const std::string text(error.view());
  switch (status) {
    case BATON_TEXT_OK:
      return absl::OkStatus();
    case BATON_TEXT_INVALID:
      return absl::InvalidArgumentError(text);
    case BATON_TEXT_EXHAUSTED:
      return absl::ResourceExhaustedError(text);
    case BATON_TEXT_LATE:
      return absl::DeadlineExceededError(text);
    case BATON_TEXT_INTERNAL:
      break;
  }
  return absl::InternalError(text);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  constexpr std::streamoff kMaxBytes = 512 << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  const std::streamoff size = file.tellg();
  if (size < 0 || size > kMaxBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file of at most 512 MiB"));
  std::string content(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(content.data(), size))
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  return content;
}

}  // namespace baton::native
