// Server-sent events (WHATWG HTML, "Server-sent events"), as clients of the APIs read them.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// `data` is one line.
inline std::string SseEvent(std::string_view data) {
  std::string event = "data: ";
  event += data;
  event += "\n\n";
  return event;
}

// An event with a name, as clients of Anthropic's API read them.
inline std::string SseEvent(std::string_view name, std::string_view data) {
  std::string event = "event: ";
  event += name;
  event += '\n';
  return event + SseEvent(data);
}

inline constexpr char kSseDone[] = "data: [DONE]\n\n";
// Into a stream that is silent for long. Three newlines are the one form that all known clients
// skip without taking them for a token.
inline constexpr char kSseKeepAlive[] = "\n\n\n";

}  // namespace baton
