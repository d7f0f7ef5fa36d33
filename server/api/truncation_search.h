// The search for the fewest messages to leave out at a conversation's beginning so that its prompt
// fits. Each try is a whole prompt, so there are few: tokens are guessed from bytes, and after
// kMaxTries the best number so far is taken, which may be more than the fewest. Pure: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace baton {

class TruncationSearch {
 public:
  static constexpr int kMaxTries = 8;

  // message_bytes: of each message, the oldest first. n_tokens: of the prompt with all of them,
  // which has room for `room`.
  TruncationSearch(const std::vector<size_t>& message_bytes, int64_t n_tokens, int64_t room);

  // The number of messages to leave out in the next try. Nothing: the search is over.
  std::optional<size_t> Next();
  // The outcome of that try. n_tokens of a prompt that does not fit: 0 if unknown.
  void OnFits(int64_t n_tokens);
  void OnTooLong(int64_t n_tokens);

  // Nothing: no number of messages is known with which the prompt fits.
  std::optional<size_t> found() const;

 private:
  struct Point {
    size_t n_left_out;
    double bytes, tokens;  // of the rest
  };
  double BytesWithout(size_t n_left_out) const { return total_ - bytes_before_[n_left_out]; }
  size_t Guess() const;

  std::vector<double> bytes_before_;  // of the messages before each, and at the end of all
  double total_ = 0;
  const double room_;
  Point too_long_, fits_;  // fits_: with no message at first, which is not tried
  size_t next_ = 0;
  int n_tries_ = 0;
};

}  // namespace baton
