#include "router/attempt_failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

FailoverCause CauseOf(const PartEnded& ended) {
  using enum PartFault;
  if (ended.reason != EndReason::kFailed) return FailoverCause::kPartFailed;
  if (ended.fault == kDraining) return FailoverCause::kDraining;
  if (ended.fault == kHandoff || ended.fault == kPeer) return FailoverCause::kHandoffFailed;
  return FailoverCause::kPartFailed;
}

// False: the value is there already.
template <class T>
bool AddOnce(std::vector<T>* values, const T& value) {
  if (std::find(values->begin(), values->end(), value) != values->end()) return false;
  values->push_back(value);
  return true;
}

}  // namespace

void AttemptFault::OnPartFailed(Incarnation from, const PartEnded& ended, absl::Time now) {
  if (failure_.message.empty()) failed_at_ = now;
  // The router minted the ticket, so it knows both ends.
  if (const auto it = handoffs_.find(ended.ticket_id);
      ended.fault == PartFault::kHandoff && it != handoffs_.end())
    AddOnce(&hops_, it->second);
  failure_ = {.cause = CauseOf(ended),
              .message = ended.message.empty()
                             ? absl::StrCat(ended.was_prefill ? "prefill" : "decode",
                                            " was given up by its worker")
                             : ended.message,
              .worker = from};
}

void AttemptFault::OnWorkerLost(const char* role, Incarnation worker, const std::string& name) {
  failure_ = {.cause = FailoverCause::kWorkerLost,
              .message = absl::StrFormat("%s worker %s was lost", role, name),
              .worker = worker};
}

Incarnation AttemptFault::Culprit() const {
  if (failure_.cause != FailoverCause::kHandoffFailed) return failure_.worker;
  std::vector<Incarnation> ends;
  for (const auto& [source, sink] : hops_)
    for (const Incarnation end : {sink, source})
      if (!AddOnce(&ends, end)) return end;
  return ends.empty() ? 0 : ends.front();
}

std::optional<absl::Time> AttemptFault::AwaitedUntil() const {
  if (failure_.cause != FailoverCause::kHandoffFailed) return std::nullopt;
  return failed_at_ + blame_wait_;
}

absl::Status FailureRecord::Count(const AttemptFailure& failure, bool got_on) {
  if (got_on) failures_ = losses_ = 0;
  using enum FailoverCause;
  // Draining workers are not asked again, and no relay follows a late one.
  if (failure.cause == kDraining || failure.cause == kLate) return absl::OkStatus();
  if (failure.cause == kPartFailed || failure.cause == kStuck) {
    if (++failures_ < options_.max_attempts) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrFormat("gave up after %d attempts; the router's log has the reasons", failures_));
  }
  if (++losses_ < options_.max_lost_attempts) return absl::OkStatus();
  return absl::AbortedError(absl::StrFormat(
      "gave up: %d times in a row a worker was lost while it had this request, which may be the "
      "cause",
      losses_));
}

void FailureRecord::Blame(Incarnation worker) { AddOnce(&avoid_, worker); }

void FailureRecord::BlameHandoff(const Plan& plan, bool spoke) {
  const std::vector<Incarnation> heads = plan.HeadWorkers();
  if (!heads.empty() && !spoke) {
    for (const Incarnation head : heads) Blame(head);
    return;
  }
  Blame(plan.decode);
  if (!AddOnce(&failed_senders_, plan.prefill())) Blame(plan.prefill());
}

}  // namespace baton
