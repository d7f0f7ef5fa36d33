// Messages of a stream as one text: each behind its length. Messages with repeated fields alone
// merge when their bytes stand one behind the other, so a client that reads slowly gets few large
// ones. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/check.h"

namespace baton {

// message: serialized, less than 4 GiB.
inline void AppendFrame(std::string_view message, std::string* frames) {
  const auto size = static_cast<uint32_t>(message.size());
  char length[sizeof(size)];
  std::memcpy(length, &size, sizeof(size));
  frames->append(length, sizeof(length));
  frames->append(message);
}

// Takes the first frame, and those behind it as long as the message stays within `max_bytes`.
inline std::string TakeMessage(size_t max_bytes, std::string* frames) {
  std::string message;
  size_t taken = 0;
  while (taken < frames->size()) {
    uint32_t size = 0;
    BATON_CHECK(frames->size() - taken >= sizeof(size));
    std::memcpy(&size, frames->data() + taken, sizeof(size));
    if (taken > 0 && message.size() + size > max_bytes) break;
    BATON_CHECK(frames->size() - taken - sizeof(size) >= size);
    message.append(*frames, taken + sizeof(size), size);
    taken += sizeof(size) + size;
  }
  frames->erase(0, taken);
  return message;
}

}  // namespace baton
