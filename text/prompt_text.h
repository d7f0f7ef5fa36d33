// The text of a prompt, and which of its special tokens count. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace baton {

struct PromptText {
  struct Place {
    uint32_t begin, end;  // bytes of `text`
    bool operator==(const Place&) const = default;
  };

  std::string text{};
  // Special tokens that a chat template wrote, ascending: only these become tokens, and what the
  // text spells elsewhere (a message, a tool's result) is text. Absent: a plain prompt, in which
  // every spelling becomes its token.
  std::optional<std::vector<Place>> controls{};
  // Bytes at the end that are the text of the last message, with which the answer goes on.
  size_t continued = 0;
};

}  // namespace baton
