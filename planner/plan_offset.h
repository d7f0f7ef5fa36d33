// Learns what predictions of the first token lack, in seconds: messages on their way, the promise,
// the drawing of the token, and what a prompt finds cached within a page, which no index tells. One
// worker alone is predicted from its costs and its queue only; the rest is nearly the same for
// prompts of any length, so short ones show it best. Learned by kind of plan. A plain object, one
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace baton {

class PlanOffset {
 public:
  // Plans of one worker, by whether KV goes to another worker and whether prompts are before it.
  struct Kind {
    bool hands_over = false, waits = false;
  };

  // A plan predicted by costs and queue to need `seconds` took `took`: both positive.
  void Add(Kind kind, double seconds, double took);
  // Seconds to add to such a prediction, which remains half of itself at least; may be
  // negative. 0 before the second plan of the kind.
  double Of(Kind kind, double seconds) const;

 private:
  struct Plan {
    double offset = 0, weight = 0;
  };
  struct Record {
    std::vector<Plan> plans{};  // the newest ones; a ring
    size_t next = 0;
    double median = 0;  // of their offsets, by weight
  };
  static size_t IndexOf(Kind kind) { return (kind.hands_over ? 2u : 0u) + (kind.waits ? 1u : 0u); }
  std::array<Record, 4> records_{};
};

}  // namespace baton
