#include "bench/step_phases.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {

std::vector<KernelResult> PhaseLines(const std::string& name, const PhaseClock& clock,
                                     int n_steps) {
  PhaseClock::Time all;
  for (int i = 0; i < kPhases; ++i) {
    all.seconds += clock.time(static_cast<Phase>(i)).seconds;
    all.waiting += clock.time(static_cast<Phase>(i)).waiting;
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
    const PhaseClock::Time& time = clock.time(phase);
    if (time.seconds == 0) return;
    add(std::string(PhaseName(phase)), time.seconds - time.waiting,
        absl::StrFormat("and %.3f ms waiting", ms(time.waiting)));
  };
  add("step", all.seconds, absl::StrFormat("the average of %d", n_steps));
  for (int i = 0; i < kPhases; ++i) {
    if (static_cast<Phase>(i) != Phase::kRest) add_phase(static_cast<Phase>(i));
  }
  add("waiting", all.waiting, "");
  add_phase(Phase::kRest);
  return lines;
}

}  // namespace baton
