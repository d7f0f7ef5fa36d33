#include "router/ledger.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewestFound = 0.1;  // weight of the newest prompt in the moving average

}  // namespace

void Ledger::Reserve(RequestId request, const Plan& plan, const AttemptSpec& spec,
                     int32_t page_tokens, absl::Time now) {
  ++choices_;
  found_waiting_ += kNewestFound * (PromptsNow() - found_waiting_);
  for (const Incarnation worker : plan.Workers()) {
    Account& account = accounts_[worker];
    account.last_chosen = choices_;
    Part& part = account.parts[request];
    part.sent = now;
    if (plan.Computes(worker)) {
      part.prefill = plan.PrefillWorkAt(worker, spec);
      part.is_slice = plan.is_relay();
    }
    if (worker != plan.decode) continue;
    part.decodes = true;
    part.spec = spec;
    part.page_tokens = page_tokens;
    part.held = {.pages = spec.PromisePages(page_tokens), .tokens_left = spec.max_tokens};
    account.pages_held += part.held.pages;
    ++account.rows_held;
  }
}

Ledger::Part* Ledger::Find(Incarnation worker, RequestId request) {
  const auto account = accounts_.find(worker);
  if (account == accounts_.end()) return nullptr;
  const auto part = account->second.parts.find(request);
  return part == account->second.parts.end() ? nullptr : &part->second;
}

void Ledger::OnPrefillComputed(Incarnation worker, RequestId request) {
  if (Part* const part = Find(worker, request)) part->prefill = {};
}

void Ledger::OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left) {
  Part* const part = Find(worker, request);
  if (part == nullptr || !part->decodes) return;
  const int32_t pages =
      part->spec.HeldPages(part->spec.max_tokens - tokens_left, part->page_tokens);
  accounts_.at(worker).pages_held += pages - part->held.pages;
  part->held = {.pages = pages, .tokens_left = tokens_left};
}

void Ledger::Release(RequestId request, const Plan& plan) {
  for (const Incarnation worker : plan.Workers()) {
    const Part* const part = Find(worker, request);
    if (part == nullptr) continue;
    Account& account = accounts_.at(worker);
    if (part->decodes) {
      account.pages_held -= part->held.pages;
      --account.rows_held;
      BATON_DCHECK(account.pages_held >= 0 && account.rows_held >= 0);
    }
    account.parts.erase(request);
  }
}

std::vector<RequestId> Ledger::Leave(Incarnation worker) {
  std::vector<RequestId> requests;
  for (const auto& [request, part] : At(worker).parts) requests.push_back(request);
  accounts_.erase(worker);
  return requests;
}

const Ledger::Account& Ledger::At(Incarnation worker) const {
  static const Account kEmpty;
  const auto account = accounts_.find(worker);
  return account == accounts_.end() ? kEmpty : account->second;
}

int Ledger::PromptsNow() const {
  int prompts = 0;
  for (const auto& [worker, account] : accounts_)
    for (const auto& [request, part] : account.parts) prompts += part.prefill.tokens > 0;
  return prompts;
}

double Ledger::waiting_prompts() const { return std::max<double>(PromptsNow(), found_waiting_); }

int64_t Ledger::pages_held() const {
  int64_t pages = 0;
  for (const auto& [worker, account] : accounts_) pages += account.pages_held;
  return pages;
}

}  // namespace baton
