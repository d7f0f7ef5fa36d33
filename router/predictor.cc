#include "router/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace baton {
namespace {

// A part sent this shortly before a load report came may not be in it yet.
constexpr absl::Duration kReportLag = absl::Milliseconds(50);
// Before any worker has measured itself.
constexpr double kUnknownTokenSeconds = 1e-3;
constexpr double kUnknownStepSeconds = 0.02;
// Measured, what a relay can be planned with: one prompt that is worth sharing.
constexpr int32_t kKnownTokens = 256;

// Seconds of the worker's queue that run before a prompt of `tokens`, or before a slice of it:
// by the ledger, less what the worker reports as done, without trusting the report about parts it
// may not have seen. A slice waits for the slices that are there, and so for what passes them.
double AheadSeconds(const Membership::Member& worker, const Ledger::Account& account,
                    const PrefillCost& cost, int32_t tokens, bool is_slice) {
  int64_t longest = tokens;
  for (const auto& [request, part] : account.parts)
    if (is_slice && part.is_slice) longest = std::max(longest, part.prefill.tokens);
  PrefillWork all, ahead;
  PrefillWork reported{.tokens = worker.load.prefill_queued_tokens,
                       .pairs = worker.load.prefill_queued_pairs};
  for (const auto& [request, part] : account.parts) {
    all += part.prefill;
    if (part.prefill.tokens <= longest) ahead += part.prefill;
    if (part.sent > worker.load_at - kReportLag) reported += part.prefill;
  }
  const PrefillWork& queued = all.tokens < reported.tokens ? all : reported;
  return std::max(0.0,
                  WorkSeconds(cost, ahead) - (WorkSeconds(cost, all) - WorkSeconds(cost, queued)));
}

}  // namespace

void Predictor::OnFirstToken(const Plan& plan, const AttemptSpec& spec, double ratio) {
  record_.Add(spec.n_prompt, static_cast<int>(plan.PrefillWorkers().size()), ratio);
}

absl::Duration Predictor::Expected(const Plan& plan, const AttemptSpec& spec) const {
  if (plan.first_token_seconds <= 0) return absl::InfiniteDuration();
  const double margin =
      record_.margin(spec.n_prompt, static_cast<int>(plan.PrefillWorkers().size()));
  return margin * absl::Seconds(plan.first_token_seconds);
}

// The worker's own cost, or that of the fastest worker that has measured its own.
PrefillCost Predictor::CostAt(const Membership::Member& worker) const {
  PrefillCost cost = worker.load.prefill_cost;
  if (cost.is_known()) return cost;
  for (const auto& [id, other] : members_.all())
    if (const PrefillCost& known = other.load.prefill_cost;
        known.is_known() && (!cost.is_known() || known.token < cost.token))
      cost = known;
  if (!cost.is_known()) cost.token = kUnknownTokenSeconds / cost.n_layers;
  return cost;
}

double Predictor::StepSecondsAt(const Membership::Member& worker) const {
  if (worker.load.decode_step_seconds > 0) return worker.load.decode_step_seconds;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const auto& [id, other] : members_.all())
    if (other.load.decode_step_seconds > 0)
      best_seconds = std::min(best_seconds, other.load.decode_step_seconds);
  return std::isfinite(best_seconds) ? best_seconds : kUnknownStepSeconds;
}

Candidate Predictor::Consider(const Membership::Member& worker, const AttemptSpec& spec,
                              absl::Time now) const {
  const WorkerAnnounce& about = worker.about;
  const Ledger::Account& account = ledger_.At(about.incarnation);
  Candidate out{.worker = about.incarnation,
                .role = about.role,
                // A first token that is the last one needs no place in the context.
                .fits_prefill = spec.n_prompt <= about.max_context &&
                                spec.PromptPages(about.page_tokens) <= about.pages_total,
                .fits_decode = int64_t{spec.n_prompt} + spec.max_tokens <= about.max_context &&
                               spec.WholePages(about.page_tokens) <= about.pages_total &&
                               about.max_batch > 0,
                .cost = CostAt(worker),
                .links = worker.load.links,
                .cpu_group = about.cpu_group,
                .cpu_share = about.cpu_share,
                .last_chosen = account.last_chosen};
  const int32_t own_tokens = spec.PrefillTokensAt(out.worker);
  out.prompt_seconds = out.cost.Alone(own_tokens, spec.n_prompt - own_tokens);
  out.uncached_seconds = out.cost.Alone(spec.n_prompt, 0);
  for (const auto& [request, part] : account.parts) out.passed += part.prefill.tokens > own_tokens;
  out.ahead_seconds = AheadSeconds(worker, account, out.cost, own_tokens, false);
  out.slice_ahead_seconds = AheadSeconds(worker, account, out.cost, spec.n_prompt, true);
  out.prefill_seconds = out.ahead_seconds + out.prompt_seconds * (1 + out.passed);
  if (about.link_bytes_per_second > 0) out.link.bytes_per_second = about.link_bytes_per_second;
  if (about.max_slice_tokens > 0) out.max_slice_tokens = about.max_slice_tokens;
  const DecodeRoom room{.pages_free = about.pages_total - account.pages_held,
                        .rows = account.rows_held,
                        .max_batch = about.max_batch,
                        .step_seconds = StepSecondsAt(worker)};
  std::vector<DecodeReservation> held;
  for (const auto& [request, part] : account.parts)
    if (part.decodes) held.push_back(part.held);
  out.room_wait_seconds =
      std::max(CapacityWaitSeconds(room, held, spec.PromisePages(about.page_tokens)),
               absl::ToDoubleSeconds(worker.no_room_until - now));
  out.decode_seconds = DecodeSeconds(room, out.room_wait_seconds);
  return out;
}

std::vector<Candidate> Predictor::Candidates(const AttemptSpec& spec,
                                             const std::vector<Incarnation>& avoid,
                                             absl::Time now) const {
  std::vector<Candidate> candidates;
  for (const auto& [id, worker] : members_.all())
    if (worker.state != MemberState::kDraining &&
        std::find(avoid.begin(), avoid.end(), id) == avoid.end())
      candidates.push_back(Consider(worker, spec, now));
  return candidates;
}

std::optional<Plan> Predictor::Choose(const AttemptSpec& spec,
                                      const std::vector<Incarnation>& avoid, absl::Time now) const {
  std::vector<Candidate> candidates = Candidates(spec, avoid, now);
  std::optional<Plan> plan = ChoosePlan(candidates, spec);
  const bool of_all = !plan && !avoid.empty();
  if (of_all) {
    candidates = Candidates(spec, {}, now);
    plan = ChoosePlan(candidates, spec);
  }
  if (!plan) return plan;
  const Candidate& first = *CandidateOf(candidates, plan->prefill());
  plan->first_token_seconds =
      FirstTokenSeconds(candidates, plan->decode, first.ahead_seconds, first.prompt_seconds);
  if (of_all || !WantsRelay(spec)) return plan;
  return ShareWithHeads(*plan, candidates, spec, members_.page_tokens(), WaitingPerWorker(),
                        relays_, record_);
}

std::optional<Plan> Predictor::Replace(const Plan& relay, Incarnation lost, const AttemptSpec& spec,
                                       const std::vector<Incarnation>& avoid,
                                       absl::Time now) const {
  return ReplaceWorker(relay, lost, Candidates(spec, avoid, now));
}

// KV that an earlier attempt left somewhere is worth more than further workers. And while nobody
// has measured what prompts cost, one worker does it.
bool Predictor::WantsRelay(const AttemptSpec& spec) const {
  const auto& members = members_.all();
  const bool knows_costs = std::any_of(members.begin(), members.end(), [](const auto& entry) {
    return entry.second.load.fitted_tokens >= kKnownTokens;
  });
  return relays_.min_tokens > 0 && spec.may_relay && spec.n_prompt >= relays_.min_tokens &&
         spec.kept.worker == 0 && (relays_.min_ranks > 1 || knows_costs);
}

// Prompts that come later will wait too, as recent ones did.
double Predictor::WaitingPerWorker() const {
  int prefill_workers = 0;
  for (const auto& [id, worker] : members_.all())
    prefill_workers += worker.about.role != Role::kDecode;
  return ledger_.waiting_prompts() / std::max(1, prefill_workers);
}

double Predictor::OwnPrefillSeconds(const Plan& plan, const AttemptSpec& spec) const {
  double longest_seconds = 0;
  for (const Incarnation worker : plan.PrefillWorkers())
    longest_seconds = std::max(longest_seconds, WorkSeconds(CostAt(members_.At(worker)),
                                                            plan.PrefillWorkAt(worker, spec)));
  return longest_seconds;
}

}  // namespace baton
