#include "server/process/load_progress.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "common/clock.h"

namespace baton {
namespace {
constexpr int kCells = 30;
constexpr absl::Duration kLineEvery = absl::Seconds(5);
}  // namespace

LoadProgress::LoadProgress(bool is_terminal)
    : is_terminal_(is_terminal), start_(MonotonicNow()), last_line_(start_) {}

void LoadProgress::Show(double fraction) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const absl::Time now = MonotonicNow();
  if (!is_terminal_) {
    if (now - last_line_ < kLineEvery) return;
    last_line_ = now;
    std::printf("loading the model: %.0f %%\n", 100 * fraction);
    std::fflush(stdout);
    return;
  }
  std::string cells;
  for (int i = 0; i < kCells; ++i) cells += i < fraction * kCells ? "█" : "░";
  const double spent = absl::ToDoubleSeconds(now - start_);
  std::string left;
  if (fraction > 0.05 && fraction < 1) {
    left = absl::StrFormat("  %.0f s left", spent * (1 - fraction) / fraction);
  }
  std::string bar =
      absl::StrFormat("loading the model  [%s] %3.0f%%%s", cells, 100 * fraction, left);
  if (bar == bar_) return;
  Clear();
  bar_ = std::move(bar);
  std::fputs(bar_.c_str(), stdout);
  std::fflush(stdout);
}

void LoadProgress::Clear() {
  if (bar_.empty()) return;
  std::fputs("\r\x1b[K", stdout);
  bar_.clear();
}

void LoadProgress::Note(const std::string& line) {
  const std::string bar = bar_;
  Clear();
  std::printf("%s\n", line.c_str());
  if (!bar.empty()) {
    bar_ = bar;
    std::fputs(bar.c_str(), stdout);
  }
  std::fflush(stdout);
}

void LoadProgress::Finish() {
  Clear();
  std::fflush(stdout);
}

}  // namespace baton
