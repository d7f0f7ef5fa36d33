#include "common/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "common/clock.h"

namespace baton {
namespace {

constexpr absl::Duration kLineEvery = absl::Seconds(5);
constexpr absl::Duration kBarEvery = absl::Milliseconds(100);
constexpr int kWidthUnknown = 80;

int WidthOf(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1
                                                                           : kWidthUnknown;
}

}  // namespace

ProgressBar::ProgressBar(std::string what, ProgressUnit unit, double total, std::FILE* out)
    : ProgressBar(std::move(what), unit, total, out, ::isatty(::fileno(out)) != 0) {}

ProgressBar::ProgressBar(std::string what, ProgressUnit unit, double total, std::FILE* out,
                         bool is_terminal)
    : out_(out),
      is_terminal_(is_terminal),
      line_(std::move(what), unit, total, MonotonicNow()),
      last_shown_(is_terminal ? absl::InfinitePast() : MonotonicNow()) {}

void ProgressBar::Show(double done, std::string_view part) {
  const absl::Time now = MonotonicNow();
  line_.Take(done, now);
  const bool is_due = now - last_shown_ >= (is_terminal_ ? kBarEvery : kLineEvery);
  const bool is_full_bar = is_terminal_ && line_.fraction() >= 1;
  if (!is_due && !is_full_bar) return;
  last_shown_ = now;
  if (!is_terminal_) {
    std::fprintf(out_, "%s\n", line_.Plain().c_str());
    std::fflush(out_);
    return;
  }
  std::string bar = line_.Bar(part, WidthOf(out_));
  if (bar == bar_) return;
  Clear();
  bar_ = std::move(bar);
  std::fputs(bar_.c_str(), out_);
  std::fflush(out_);
}

void ProgressBar::Next(std::string_view part) { Show(parts_begun_++, part); }

void ProgressBar::Clear() {
  if (bar_.empty()) return;
  std::fputs("\r\x1b[K", out_);
  bar_.clear();
}

void ProgressBar::Note(const std::string& line) {
  const std::string bar = bar_;
  Clear();
  std::fprintf(out_, "%s\n", line.c_str());
  if (!bar.empty()) {
    bar_ = bar;
    std::fputs(bar.c_str(), out_);
  }
  std::fflush(out_);
}

void ProgressBar::Finish() {
  Clear();
  if (is_terminal_) last_shown_ = absl::InfinitePast();
  std::fflush(out_);
}

}  // namespace baton
