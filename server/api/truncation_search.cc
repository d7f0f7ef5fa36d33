#include "server/api/truncation_search.h"

#include <algorithm>

namespace baton {

TruncationSearch::TruncationSearch(const std::vector<size_t>& message_bytes, int64_t n_tokens,
                                   int64_t room)
    : room_(static_cast<double>(room)) {
  bytes_before_.reserve(message_bytes.size() + 1);
  for (const size_t n_bytes : message_bytes) {
    bytes_before_.push_back(total_);
    total_ += static_cast<double>(n_bytes);
  }
  bytes_before_.push_back(total_);
  too_long_ = {0, total_, static_cast<double>(n_tokens)};
  fits_ = {message_bytes.size(), 0, 0};
}

std::optional<size_t> TruncationSearch::Next() {
  if (fits_.n_left_out <= too_long_.n_left_out + 1 || n_tries_ == kMaxTries) return std::nullopt;
  ++n_tries_;
  // The last try without a number found is the last message alone.
  const bool is_last_hope = n_tries_ == kMaxTries && !found();
  next_ = is_last_hope ? fits_.n_left_out - 1 : Guess();
  return next_;
}

// On the line between the two points; from the middle where that has brought little.
size_t TruncationSearch::Guess() const {
  constexpr int kMaxGuesses = 4;
  const size_t first = too_long_.n_left_out + 1, last = fits_.n_left_out - 1;
  const double tokens = too_long_.tokens - fits_.tokens;
  if (n_tries_ > kMaxGuesses || tokens <= 0) return first + (last - first) / 2;
  const double share = (room_ - fits_.tokens) / tokens;
  const double wanted = fits_.bytes + share * (too_long_.bytes - fits_.bytes);
  // The first number with which so many bytes or fewer are left.
  const auto found = std::lower_bound(bytes_before_.begin(), bytes_before_.end(), total_ - wanted);
  return std::clamp(static_cast<size_t>(found - bytes_before_.begin()), first, last);
}

void TruncationSearch::OnFits(int64_t n_tokens) {
  fits_ = {next_, BytesWithout(next_), static_cast<double>(n_tokens)};
}

void TruncationSearch::OnTooLong(int64_t n_tokens) {
  too_long_ = {next_, BytesWithout(next_), static_cast<double>(n_tokens)};
}

std::optional<size_t> TruncationSearch::found() const {
  if (fits_.n_left_out + 1 == bytes_before_.size()) return std::nullopt;
  return fits_.n_left_out;
}

}  // namespace baton
