#include "server/http/paced_page.h"

#include <utility>

#include "common/clock.h"

namespace baton {

void PacedPage::Get(std::function<void(const std::string&)> use) {
  waiting_.push_back(std::move(use));
  if (waiting_.size() > 1) return;  // the timer is set
  if (MonotonicNow() - made_ >= pause_) {
    Make();
  } else {
    timer_.Set(made_ + pause_, [this] { Make(); });
  }
}

void PacedPage::Make() {
  made_ = MonotonicNow();
  const std::string page = make_();
  for (const auto& use : std::exchange(waiting_, {})) use(page);
}

}  // namespace baton
