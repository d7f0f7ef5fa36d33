#include "router/relay_watch.h"

#include <algorithm>

namespace baton {
namespace {

constexpr double kWorthLeaving = 1.5, kLate = 1.5;
constexpr absl::Duration kMinLate = absl::Milliseconds(100);

}  // namespace

absl::Duration LateAfter(absl::Duration predicted) { return kLate * predicted + kMinLate; }

absl::Duration TimeLeft(const HopProgress& hop) {
  if (hop.bytes_per_second <= 0) return absl::ZeroDuration();
  const auto left = static_cast<double>(std::max<int64_t>(0, hop.bytes - hop.crossed));
  return absl::Seconds(left / hop.bytes_per_second);
}

std::optional<size_t> HopToLeave(std::span<const HopProgress> hops, absl::Duration alone) {
  std::optional<size_t> slowest;
  for (size_t i = 0; i < hops.size(); ++i)
    if (!slowest || TimeLeft(hops[i]) > TimeLeft(hops[*slowest])) slowest = i;
  if (!slowest || TimeLeft(hops[*slowest]) <= kWorthLeaving * alone) return std::nullopt;
  return slowest;
}

}  // namespace baton
