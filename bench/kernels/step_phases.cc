#include "bench/kernels/step_phases.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {

namespace {

PhaseClock::Time Sum(const PhaseClock& clock) {
  PhaseClock::Time sum;
  for (int i = 0; i < kPhases; ++i) {
    sum.seconds += clock.time(static_cast<Phase>(i)).seconds;
    sum.waiting += clock.time(static_cast<Phase>(i)).waiting;
  }
  return sum;
}

}  // namespace

std::vector<KernelResult> PhaseLines(const std::string& name, std::span<const PhaseClock> runs,
                                     int steps_each) {
  std::vector<const PhaseClock*> fastest;
  for (const PhaseClock& run : runs) fastest.push_back(&run);
  std::sort(fastest.begin(), fastest.end(), [](const PhaseClock* a, const PhaseClock* b) {
    return Sum(*a).seconds < Sum(*b).seconds;
  });
  fastest.resize((fastest.size() + 1) / 2);
  const int n_steps = steps_each * static_cast<int>(fastest.size());
  PhaseClock::Time all;
  std::array<PhaseClock::Time, kPhases> times = {};
  for (const PhaseClock* run : fastest) {
    all.seconds += Sum(*run).seconds;
    all.waiting += Sum(*run).waiting;
    for (int i = 0; i < kPhases; ++i) {
      PhaseClock::Time& time = times[static_cast<size_t>(i)];
      time.seconds += run->time(static_cast<Phase>(i)).seconds;
      time.waiting += run->time(static_cast<Phase>(i)).waiting;
    }
  }
  const auto ms = [&](double seconds) { return 1e3 * seconds / n_steps; };
  std::vector<KernelResult> lines;
  const auto add = [&](const std::string& part, double seconds, std::string note) {
    KernelResult& line = lines.emplace_back();
    line.name = absl::StrCat(name, "/", part);
    line.value = ms(seconds);
    line.unit = "ms";
    line.whole = ms(all.seconds);
    line.note = std::move(note);
  };
  const auto add_phase = [&](Phase phase) {
    const PhaseClock::Time& time = times[static_cast<size_t>(phase)];
    if (time.seconds == 0) return;
    add(std::string(PhaseName(phase)), time.seconds - time.waiting,
        absl::StrFormat("and %.3f ms waiting", ms(time.waiting)));
  };
  add("step", all.seconds, absl::StrFormat("the average of %d, the faster half", n_steps));
  for (int i = 0; i < kPhases; ++i) {
    if (static_cast<Phase>(i) != Phase::kRest) add_phase(static_cast<Phase>(i));
  }
  add("waiting", all.waiting, "");
  add_phase(Phase::kRest);
  return lines;
}

}  // namespace baton
