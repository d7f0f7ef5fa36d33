#include "server/http/body_rate.h"

namespace baton {

void BodyRate::Start(absl::Time now) {
  start_ = now;
  marks_.clear();
  n_bytes_ = 0;
}

void BodyRate::Add(absl::Time now, size_t n_bytes) {
  if (marks_.empty() || now - marks_.back().since >= look_every()) marks_.push_back({now, 0});
  marks_.back().n_bytes += n_bytes;
  n_bytes_ += n_bytes;
}

bool BodyRate::IsTooSlow(absl::Time now) {
  while (!marks_.empty() && marks_.front().since + look_every() <= now - window_) {
    n_bytes_ -= marks_.front().n_bytes;
    marks_.pop_front();
  }
  const absl::Duration spent = now - start_;
  if (spent < grace_) return false;
  return static_cast<double>(n_bytes_) <
         kMinBodyBytesPerSecond * absl::ToDoubleSeconds(std::min(spent, window_));
}

}  // namespace baton
