#include "decode_worker/page_lender.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

PageLender::PageLender(KvPool* pool, bool eager, int pages_per_turn)
    : pool_(pool), eager_(eager), pages_per_turn_(pages_per_turn) {
  BATON_CHECK(pages_per_turn > 0);
}

void PageLender::Arrived(int n_pages) {
  lent_ -= n_pages;
  BATON_CHECK(lent_ >= 0);
}

void PageLender::Returned(const PagesReturned& event) {
  const int n = static_cast<int>(event.pages.size());
  BATON_CHECK(n <= lent_);
  lent_ -= n;
  pool_->Give(event.pages);
  reclaiming_ = false;
}

void PageLender::Changed(const ReceivePoolChanged& event) {
  unpromised_ = event.free_pages;
  waiting_ = event.waiting;
  reclaiming_ = false;
  if (waiting_ == 0 || event.promises != promises_) passed_pages_ = 0;
  promises_ = event.promises;
}

void PageLender::PromptsTook(int n_pages) {
  if (waiting_ > 0) passed_pages_ += n_pages;
}

bool PageLender::Balance(const LenderNeeds& needs, std::vector<TransferCommand>* out) {
  if (closed_) return false;
  // Promised pages cannot be asked back.
  const int kept = (sequences_first() ? 0 : needs.wanted_pages) + needs.growth_pages;
  const int missing = std::min(kept - pool_->free(), unpromised_);
  if (missing > 0 && !reclaiming_) {
    reclaiming_ = true;
    out->emplace_back(ReclaimPages{.n = missing});
    return false;
  }
  int lend = pool_->free() - kept;
  if (!eager_) lend = waiting_ > 0 ? std::min(lend, needs.sequence_pages - lent_) : 0;
  const int now = std::clamp(lend, 0, pages_per_turn_);
  // A changed wait is told even without pages, when it is worth the message.
  const int64_t wait_us = needs.expected_wait_us;
  const bool tell = wait_us > 2 * reported_wait_us_ || 2 * wait_us < reported_wait_us_;
  if (now == 0 && !tell) return false;
  LendPages command;
  command.expected_wait_us = reported_wait_us_ = wait_us;
  BATON_CHECK(pool_->Take(now, &command.pages));
  lent_ += now;
  out->emplace_back(std::move(command));
  return now < lend;
}

void PageLender::Close(std::vector<TransferCommand>* out) {
  closed_ = true;
  if (lent_ > 0) out->emplace_back(ReclaimPages{.n = lent_});
}

}  // namespace baton
