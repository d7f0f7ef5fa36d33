// Ends a stream of text at the first stop string, across the borders of the pieces. Emits
// everything before the match and nothing of the match. Holds back only the longest suffix that is
// a proper prefix of a stop string, because it may still become a match. Matches on bytes, so
// pieces may cut characters; if every piece has whole characters, so has every result (stop strings
// are UTF-8). The first match is the match that ends first, and the longest of those, so that no
// shorter stop string hides inside. Aho-Corasick (CACM 18/6, 1975): constant work per byte. Owned
// by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 1024;  // bytes of one stop string

class StopMatcher {
 public:
  // InvalidArgument: too many stop strings, an empty one, or one that is too long. With no stop
  // string the matcher passes text through.
  static absl::StatusOr<StopMatcher> Create(const std::vector<std::string>& stops);

  struct Result {
    std::string text;  // safe to send now
    int stop = -1;     // index of the stop string that matched, or -1
  };
  // Takes the next piece of the stream. Returns nothing after a match.
  Result Push(std::string_view piece);
  // Ends the stream. Returns the bytes held back.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;
    int32_t failure = 0;  // the longest proper suffix that is a node
    int32_t depth = 0;    // bytes from the root
    int32_t stop = -1;    // the longest stop string that ends here
    int32_t length = 0;   // bytes of that stop string
  };
  StopMatcher() = default;
  int32_t Child(int32_t node, uint8_t byte) const;
  int32_t Next(int32_t node, uint8_t byte) const;
  void Insert(std::string_view stop, int index);
  void Link();

  std::vector<Node> nodes_;
  int32_t state_ = 0;
  std::string held_;  // always the nodes_[state_].depth last bytes seen
  bool stopped_ = false;
};

}  // namespace baton
