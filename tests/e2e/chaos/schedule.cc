#include "tests/e2e/chaos/schedule.h"

#include "tests/e2e/chaos/dice.h"

namespace baton {
namespace {

constexpr absl::Duration kCalmStart = absl::Seconds(2), kCalmEnd = absl::Seconds(2);

FaultKind Draw(Dice& dice, const Profile& profile) {
  double sum = 0;
  for (const double weight : profile.weights) sum += weight;
  double at = dice.Share() * sum;
  int kind = 0;
  while (kind + 1 < kFaultKinds && at >= profile.weights[kind]) at -= profile.weights[kind++];
  return static_cast<FaultKind>(kind);
}

}  // namespace

const char* MomentName(Moment moment) {
  static constexpr const char* kNames[] = {"any moment", "prefill", "transfer", "decode"};
  return kNames[static_cast<int>(moment)];
}

std::vector<Fault> MakeSchedule(const Profile& profile, absl::Duration length, uint64_t seed) {
  std::vector<Fault> faults;
  if (profile.mean_interval == absl::InfiniteDuration()) return faults;
  Dice dice(seed);
  for (absl::Duration at = kCalmStart;;) {
    at += dice.Time(0.2 * profile.mean_interval, 1.8 * profile.mean_interval);
    if (at > length - kCalmEnd) return faults;
    Fault fault;
    fault.at = at;
    fault.kind = Draw(dice, profile);
    const bool dispatched = !IsNetworkFault(fault.kind) && dice.Chance(0.5);
    if (dispatched) fault.moment = static_cast<Moment>(dice.Between(1, 3));
    fault.victim = static_cast<uint64_t>(dice.Between(0, 1 << 20));
    fault.other = static_cast<uint64_t>(dice.Between(0, 1 << 20));
    // Most durations are short, some long; a uniform logarithmic scale would make long ones too
    // rare.
    const double share = dice.Share();
    fault.lasts = profile.min_lasting + share * share * (profile.max_lasting - profile.min_lasting);
    fault.after_moment = dice.Time(absl::ZeroDuration(), absl::Milliseconds(10));
    faults.push_back(fault);
  }
}

}  // namespace baton
