#include "common/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr int kCells = 24;
constexpr size_t kWindow = 16;                                    // samples of the rate
constexpr absl::Duration kSampleEvery = absl::Milliseconds(500);  // so the rate is that of 8 s
constexpr double kKnownFrom = 0.02;  // a share below says little of the time that is left
constexpr std::array<const char*, 5> kByteUnits = {"B", "KiB", "MiB", "GiB", "TiB"};

struct Scale {
  double divisor = 1;
  const char* unit = kByteUnits[0];
};

Scale ScaleOf(double bytes) {
  Scale scale;
  for (size_t i = 1; i < kByteUnits.size() && bytes / scale.divisor >= 1024; ++i) {
    scale.divisor *= 1024;
    scale.unit = kByteUnits[i];
  }
  return scale;
}

// Columns of a text in UTF-8 whose characters take one each.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Cut(std::string text, int width) {
  while (Columns(text) > static_cast<size_t>(std::max(width, 1))) {
    while ((text.back() & 0xc0) == 0x80) text.pop_back();
    text.pop_back();
  }
  return text;
}

}  // namespace

std::string BytesOf(double done, double total) {
  const Scale scale = ScaleOf(std::max(done, total));
  return absl::StrFormat("%.1f/%.1f %s", done / scale.divisor, total / scale.divisor, scale.unit);
}

std::string DurationLeft(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 100) return absl::StrCat(whole, " s");
  if (whole < 6000) return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

ProgressLine::ProgressLine(std::string what, ProgressUnit unit, double total, absl::Time start)
    : what_(std::move(what)), unit_(unit), total_(total), now_(start) {}

void ProgressLine::Take(double done, absl::Time now) {
  done_ = done;
  now_ = now;
  if (samples_.empty() || now - samples_.back().at >= kSampleEvery)
    samples_.push_back({.at = now, .done = done});
  if (samples_.size() > kWindow) samples_.pop_front();
}

double ProgressLine::fraction() const {
  return total_ > 0 ? std::clamp(done_ / total_, 0.0, 1.0) : 0;
}

double ProgressLine::Rate() const {
  if (samples_.empty()) return 0;
  const double seconds = absl::ToDoubleSeconds(now_ - samples_.front().at);
  return seconds < 0.5 ? 0 : std::max(0.0, (done_ - samples_.front().done) / seconds);
}

std::string ProgressLine::Left() const {
  const double rate = Rate();
  if (rate <= 0 || fraction() < kKnownFrom || done_ >= total_) return "";
  return absl::StrCat(DurationLeft((total_ - done_) / rate), " left");
}

std::string ProgressLine::Amount() const {
  if (unit_ == ProgressUnit::kBytes) return BytesOf(done_, total_);
  if (unit_ == ProgressUnit::kParts) return absl::StrFormat("%.0f/%.0f", done_, total_);
  return "";
}

std::string ProgressLine::RateText() const {
  const double rate = Rate();
  if (unit_ != ProgressUnit::kBytes || rate <= 0) return "";
  const Scale scale = ScaleOf(rate);
  return absl::StrFormat("%.1f %s/s", rate / scale.divisor, scale.unit);
}

std::string ProgressLine::Bar(std::string_view part, int width) const {
  std::string cells;
  for (int i = 0; i < kCells; ++i) cells += i < fraction() * kCells ? "█" : "░";
  std::string text = absl::StrFormat("%s  [%s] %3.0f%%", what_, cells, 100 * fraction());
  for (const std::string& each : {Amount(), RateText(), Left(), std::string(part)}) {
    if (!each.empty()) absl::StrAppend(&text, "  ", each);
  }
  return Cut(std::move(text), width);
}

std::string ProgressLine::Plain() const {
  std::string text = absl::StrFormat("%s: %.0f %%", what_, 100 * fraction());
  for (const std::string& each : {Amount(), RateText(), Left()}) {
    if (!each.empty()) absl::StrAppend(&text, ", ", each);
  }
  return text;
}

}  // namespace baton
