#include "decode_worker/page_lender.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// The share of the pool that is lent ahead of what is expected: an OPEN may come before the
// router's word of the request was heard, and is answered from it at once.
constexpr int kReserve = 16;

}  // namespace

PageLender::PageLender(KvPool* pool, bool eager, int pages_per_turn)
    : pool_(pool), eager_(eager), pages_per_turn_(pages_per_turn) {
  BATON_CHECK(pages_per_turn > 0);
}

void PageLender::On(const HandoffArrived& event, absl::Time) {
  lent_ -= static_cast<int>(event.pages.size());
  BATON_CHECK(lent_ >= 0);
}

void PageLender::On(const PagesReturned& event, absl::Time) {
  const int n = static_cast<int>(event.pages.size());
  BATON_CHECK(n <= lent_);
  lent_ -= n;
  pool_->Give(event.pages);
  reclaiming_ = false;
}

void PageLender::On(const ReceivePoolChanged& event, absl::Time) {
  unpromised_ = event.free_pages;
  waiting_ = event.waiting;
  held_ = event.held_pages;
  reclaiming_ = false;
  if (waiting_ == 0 || event.promises != promises_) passed_pages_ = 0;
  promises_ = event.promises;
}

std::optional<TransferCommand> PageLender::Balance(const LenderNeeds& needs) {
  lends_more_ = false;
  if (closed_) return std::nullopt;
  if (waiting_ > 0) passed_pages_ += needs.taken_pages;
  // Promised pages cannot be asked back.
  const int kept = (sequences_first() ? 0 : needs.wanted_pages) + needs.growth_pages;
  const int missing = std::min(kept - pool_->free(), unpromised_);
  if (missing > 0 && !reclaiming_) {
    reclaiming_ = true;
    return ReclaimPages{.n = missing};
  }
  int lend = pool_->free() - kept;
  const int expected = needs.sequence_pages - lent_;
  if (held_ > 0 && (lend < -unpromised_ || (waiting_ > 0 && lend < expected))) {
    held_ = 0;
    return ReclaimHeld{};
  }
  if (eager_)
    lend = std::min(lend, std::max(lend - pool_->cached(), expected + pool_->total() / kReserve));
  else
    lend = waiting_ > 0 ? std::min(lend, expected) : 0;
  const int now = std::clamp(lend, 0, pages_per_turn_);
  // A changed wait is told even without pages, when it is worth the message.
  const int64_t wait_us = needs.expected_wait_us;
  const bool tell = wait_us > 2 * reported_wait_us_ || 2 * wait_us < reported_wait_us_;
  if (now == 0 && !tell) return std::nullopt;
  LendPages command;
  command.expected_wait_us = reported_wait_us_ = wait_us;
  BATON_CHECK(pool_->Take(now, &command.pages));
  lent_ += now;
  lends_more_ = now < lend;
  return command;
}

std::optional<TransferCommand> PageLender::Close() {
  closed_ = true;
  lends_more_ = false;
  if (lent_ == 0) return std::nullopt;
  return ReclaimPages{.n = lent_};
}

}  // namespace baton
