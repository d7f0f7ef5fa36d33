#include "router/ledger.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewestFound = 0.1;  // weight of the newest prompt in the moving average

void Add(std::vector<TokensTo>* sums, const TokensTo& more) {
  const auto sum = std::find_if(sums->begin(), sums->end(),
                                [&](const TokensTo& each) { return each.worker == more.worker; });
  if (sum == sums->end())
    sums->push_back(more);
  else if ((sum->tokens += more.tokens) == 0)
    sums->erase(sum);
}

}  // namespace

void Ledger::Reserve(RequestId request, const Plan& plan, const AttemptSpec& spec,
                     int32_t page_tokens, absl::Time now) {
  ++choices_;
  found_waiting_ += kNewestFound * (n_prompts_ - found_waiting_);
  for (const Incarnation worker : plan.Workers()) {
    Account& account = accounts_[worker];
    account.last_chosen = choices_;
    Part& part = account.parts[request];
    if (plan.Computes(worker)) {
      const PrefillWork work = plan.PrefillWorkAt(worker, spec);
      account.prompts[request] = {
          .work = work, .left = work.tokens, .is_slice = plan.is_relay(), .sent = now};
      account.arrivals.Add(work, now);
      ++n_prompts_;
      if (const int32_t tokens = plan.TokensSent(worker, spec); tokens > 0)
        Add(&account.sending, *(part.sending = TokensTo{plan.decode, tokens}));
    }
    if (worker != plan.decode) continue;
    part.decodes = true;
    part.spec = spec;
    part.page_tokens = page_tokens;
    part.sources = plan.PrefillWorkers();
    Hold(&account, &part, 0, spec.max_tokens);
  }
}

void Ledger::Count(Account* account, const Part& part, int sign) {
  const auto count = [&](RowSums* sums) {
    sums->rows += sign * part.row.rows;
    sums->keys += sign * part.row.keys;
    sums->tokens_left += sign * part.row.tokens_left;
  };
  count(&account->held);
  if (part.runs) count(&account->running);
}

// Enters what the row has now, in place of what it had.
void Ledger::Hold(Account* account, Part* part, int32_t made, int32_t tokens_left) const {
  const AttemptSpec& spec = part->spec;
  const DecodeReservation now{.pages = spec.HeldPages(made, part->page_tokens),
                              .tokens_left = outputs_.Left(spec.n_made + made, tokens_left)};
  account->pages_held += now.pages - part->held.pages;
  part->held = now;
  Count(account, *part, -1);
  part->row = {.rows = 1, .keys = spec.n_prompt + made, .tokens_left = now.tokens_left};
  part->runs = made > 0;
  Count(account, *part, 1);
}

Ledger::Part* Ledger::Find(Incarnation worker, RequestId request) {
  const auto account = accounts_.find(worker);
  if (account == accounts_.end()) return nullptr;
  const auto part = account->second.parts.find(request);
  return part == account->second.parts.end() ? nullptr : &part->second;
}

void Ledger::OnPrefillComputed(Incarnation worker, RequestId request) {
  if (const auto account = accounts_.find(worker); account != accounts_.end())
    n_prompts_ -= static_cast<int>(account->second.prompts.erase(request));
}

// Workers tell what other routers have queued, too: then nothing counts as done.
void Ledger::OnQueued(Incarnation worker, int64_t tokens, absl::Time seen_until) {
  const auto account = accounts_.find(worker);
  if (account == accounts_.end()) return;
  std::vector<Prompt*> seen;
  int64_t done = -tokens;
  for (auto& [request, prompt] : account->second.prompts) {
    if (prompt.sent > seen_until) continue;
    seen.push_back(&prompt);
    done += prompt.left;
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [](const Prompt* a, const Prompt* b) { return a->left < b->left; });
  if (done < 0) std::reverse(seen.begin(), seen.end());  // was taken too early: goes back
  for (Prompt* const prompt : seen) {
    const int64_t before = prompt->left;
    prompt->left = std::clamp<int64_t>(before - done, 0, prompt->work.tokens);
    done -= before - prompt->left;
  }
}

void Ledger::OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left) {
  Part* const part = Find(worker, request);
  if (part == nullptr || !part->decodes) return;
  for (const Incarnation source : std::exchange(part->sources, {})) Arrived(source, request);
  Hold(&accounts_.at(worker), part, part->spec.max_tokens - tokens_left, tokens_left);
}

void Ledger::Arrived(Incarnation source, RequestId request) {
  Part* const part = Find(source, request);
  if (part == nullptr || !part->sending) return;
  const TokensTo sent = *std::exchange(part->sending, std::nullopt);
  Add(&accounts_.at(source).sending, {sent.worker, -sent.tokens});
}

void Ledger::Release(RequestId request, const Plan& plan) {
  for (const Incarnation worker : plan.Workers()) {
    const Part* const part = Find(worker, request);
    if (part == nullptr) continue;
    OnPrefillComputed(worker, request);
    Arrived(worker, request);
    Account& account = accounts_.at(worker);
    if (part->decodes) {
      account.pages_held -= part->held.pages;
      Count(&account, *part, -1);
      BATON_DCHECK(account.pages_held >= 0 && account.held.rows >= 0 && account.running.rows >= 0);
    }
    account.parts.erase(request);
  }
}

std::vector<RequestId> Ledger::Leave(Incarnation worker) {
  std::vector<RequestId> requests;
  const Account& account = At(worker);
  for (const auto& [request, part] : account.parts) requests.push_back(request);
  n_prompts_ -= static_cast<int>(account.prompts.size());
  accounts_.erase(worker);
  return requests;
}

const Ledger::Account& Ledger::At(Incarnation worker) const {
  static const Account kEmpty;
  const auto account = accounts_.find(worker);
  return account == accounts_.end() ? kEmpty : account->second;
}

double Ledger::waiting_prompts() const { return std::max<double>(n_prompts_, found_waiting_); }

int64_t Ledger::pages_held() const {
  int64_t pages = 0;
  for (const auto& [worker, account] : accounts_) pages += account.pages_held;
  return pages;
}

}  // namespace baton
