#include "router/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "router/mixed_steps.h"

namespace baton {
namespace {

// Before any worker has measured itself.
constexpr double kUnknownTokenSeconds = 1e-3;
constexpr double kUnknownStepSeconds = 0.02;
// Share of a worker's time that prompts which come later are taken to have at most.
constexpr double kMaxBusy = .7;

// Tokens of a full step of prompts alone, of pairs as the worker had queued when it told; 0:
// unknown.
double StepTokens(const WorkerLoad& load) {
  const double queued = load.prefill_queued_tokens;
  const double pairs = queued > 0 ? load.prefill_queued_pairs / queued : 0;
  const double of_token = load.prefill_cost.Work(1, pairs);
  return of_token > 0 ? load.prompt_step_seconds / of_token : 0;
}

// Seconds of a worker's queue, in steps of their own: all, and what runs before a prompt of
// `tokens`, or before a slice of it; by what is left of each prompt (Ledger), less what has been
// computed since of the step under way: the worker reports between steps. A slice waits for the
// slices that are there, and so for what passes them. A prompt waits for the step under way of a
// longer one, too.
struct QueueSeconds {
  PromptSeconds all, ahead;
  double step_left = 0;  // of a step of prompts alone
  PrefillWork behind;    // of the first longer prompt, which fills up steps; beside rows none does
  RowSums rows_ahead;    // that prompts ahead become
  // Prompts that are longer as a whole. Some of which little is left count too: by what is left,
  // relays would be chosen more near saturation than pays (replay_test).
  int passed = 0;
};

// Pairs of the next token of a prompt of which this is left.
double NextPairs(const PrefillWork& left) {
  const auto tokens = static_cast<double>(left.tokens);
  return tokens > 0 ? left.pairs / tokens - tokens / 2 : 0;
}

// none: of the worker, without prompts.
QueueSeconds QueueOf(const Membership::Member& worker, const Ledger::Account& account,
                     const PromptSteps& none, int32_t tokens, bool is_slice, absl::Time now) {
  int64_t longest = tokens;
  for (const auto& [request, prompt] : account.prompts)
    if (is_slice && prompt.is_slice) longest = std::max(longest, prompt.left);
  const bool has_rows = account.running.rows > 0;
  PromptSteps all = none, ahead = none;
  RowSums rows_ahead;
  PrefillWork behind;
  absl::Time all_since = absl::InfiniteFuture(), ahead_since = absl::InfiniteFuture();
  int passed = 0;
  for (const auto& [request, prompt] : account.prompts) {
    if (prompt.left == 0) continue;  // its token is on its way
    const PrefillWork left = prompt.work.Last(prompt.left);
    all.Add(left.tokens, left.pairs);
    all_since = std::min(all_since, prompt.sent);
    passed += prompt.work.tokens > tokens;
    if (prompt.left > longest) {
      const bool is_next = behind.tokens == 0 || left.tokens < behind.tokens;
      if (is_next && !prompt.is_slice && !has_rows) behind = left;
      continue;
    }
    ahead.Add(left.tokens, left.pairs);
    ahead_since = std::min(ahead_since, prompt.sent);
    if (const auto part = account.parts.find(request); part != account.parts.end())
      rows_ahead.Add(part->second.row);
  }
  ahead.FillFrom(behind.tokens, NextPairs(behind));
  QueueSeconds queue{.all = all.seconds(),
                     .ahead = ahead.seconds(),
                     .behind = behind,
                     .rows_ahead = rows_ahead,
                     .passed = passed};
  if (has_rows) return queue;  // beside rows a step takes few prompt tokens
  const double of_step = std::min(worker.load.prompt_step_seconds, queue.all.alone);
  const absl::Time began = std::max(worker.load_at, all_since);
  const double done = std::clamp(absl::ToDoubleSeconds(now - began), 0.0, of_step);
  const double of_longer = ahead_since <= began ? 0 : of_step;
  queue.step_left = of_step - done;
  const auto less = [](PromptSeconds* seconds, double by) {
    for (double* const each : {&seconds->work, &seconds->alone}) *each = std::max(0.0, *each - by);
  };
  less(&queue.all, done);
  less(&queue.ahead, done - of_longer);
  // A short step of a longer prompt comes first while this one's promise is asked for.
  if (behind.tokens > 0 && ahead_since == absl::InfiniteFuture() &&
      worker.about.role == Role::kPrefill) {
    PromptSteps asking = none;
    const int64_t n = std::min<int64_t>(kAskingTokens, behind.tokens);
    asking.Add(n, static_cast<double>(n) * NextPairs(behind));
    queue.ahead.alone += asking.seconds().alone;
  }
  return queue;
}

// A first token that is the last one needs no place in the context.
bool FitsPrefill(const WorkerAnnounce& about, const AttemptSpec& spec) {
  return spec.n_prompt <= about.max_context &&
         spec.PromptPages(about.page_tokens) <= about.pages_total;
}

bool FitsDecode(const WorkerAnnounce& about, const AttemptSpec& spec) {
  return int64_t{spec.n_prompt} + spec.max_tokens <= about.max_context &&
         spec.WholePages(about.page_tokens) <= about.pages_total && about.max_batch > 0;
}

double RoomWaitSeconds(const WorkerAnnounce& about, const Ledger::Account& account,
                       const AttemptSpec& spec, double step_seconds) {
  const DecodeRoom room{.pages_free = about.pages_total - account.pages_held,
                        .rows = account.held.rows,
                        .max_batch = about.max_batch,
                        .step_seconds = step_seconds};
  const int32_t pages = spec.PromisePages(about.page_tokens);
  if (room.Has(pages)) return 0;
  std::vector<DecodeReservation> held;
  for (const auto& [request, part] : account.parts)
    if (part.decodes) held.push_back(part.held);
  return CapacityWaitSeconds(room, std::move(held), pages);
}

PlanOffset::Kind KindOf(const Plan& plan) {
  return {.hands_over = plan.decode != 0 && plan.decode != plan.prefill(),
          .waits = plan.queue_seconds > 0};
}

}  // namespace

void Predictor::OnFirstToken(const Plan& plan, const AttemptSpec& spec, double ratio) {
  record_.Add(spec.n_prompt, static_cast<int>(plan.PrefillWorkers().size()), ratio);
}

void Predictor::OnUsualFirstToken(const Plan& plan, double ratio) {
  if (ratio > 0)
    offsets_.Add(KindOf(plan), plan.first_token_seconds + plan.passed_seconds,
                 ratio * plan.first_token_seconds);
}

void Predictor::OnGaps(const Plan& plan, double seconds) {
  if (plan.gap_seconds > 0 && seconds > 0)
    gap_offsets_.Add(KindOf(plan), plan.gap_seconds, seconds);
}

absl::Duration Predictor::Expected(const Plan& plan, const AttemptSpec& spec) const {
  if (plan.first_token_seconds <= 0) return absl::InfiniteDuration();
  const double margin =
      record_.margin(spec.n_prompt, static_cast<int>(plan.PrefillWorkers().size()));
  return margin * absl::Seconds(plan.first_token_seconds);
}

// A worker that has measured little is like the fastest one: what it does next says more.
PrefillCost Predictor::CostAt(const Membership::Member& worker, const KnownCosts& known) const {
  PrefillCost cost = worker.load.prefill_cost;
  const bool is_believed =
      worker.load.knows_prefill() || (cost.is_known() && cost.token <= known.prefill.token);
  if (is_believed) return cost;
  if (known.prefill.is_known()) return known.prefill;
  cost.token = kUnknownTokenSeconds / cost.n_layers;
  return cost;
}

Predictor::KnownCosts Predictor::Known() const {
  KnownCosts known;
  for (const auto& [id, worker] : members_.all()) {
    const PrefillCost& prefill = worker.load.prefill_cost;
    const StepCost& step = worker.load.step_cost;
    if (prefill.is_known() && (!known.prefill.is_known() || prefill.token < known.prefill.token))
      known.prefill = prefill;
    if (step.is_known() &&
        (!known.step.is_known() || step.Seconds(1, 0) < known.step.Seconds(1, 0)))
      known.step = step;
  }
  if (!known.step.is_known()) known.step.base = kUnknownStepSeconds;
  return known;
}

Candidate Predictor::Consider(const Membership::Member& worker, const AttemptSpec& spec,
                              const KnownCosts& known, absl::Time now) const {
  const WorkerAnnounce& about = worker.about;
  const Ledger::Account& account = ledger_.At(about.incarnation);
  const StepCost step = worker.load.step_cost.is_known() ? worker.load.step_cost : known.step;
  Candidate out{.worker = about.incarnation,
                .role = about.role,
                .fits_prefill = FitsPrefill(about, spec),
                .fits_decode = FitsDecode(about, spec),
                .cost = CostAt(worker, known),
                .links = worker.load.links,
                .sending = account.sending,
                .cpu_group = about.cpu_group,
                .cpu_share = about.cpu_share,
                .last_chosen = account.last_chosen};
  if (about.link_bytes_per_second > 0) out.link.bytes_per_second = about.link_bytes_per_second;
  if (about.max_slice_tokens > 0) out.max_slice_tokens = about.max_slice_tokens;

  // The prompt.
  const double min_share = about.min_mixed_tokens * out.cost.Work(1, spec.n_prompt / 2.0);
  const MixedSteps mixed(step, account.running, about.itl_stretch, min_share);
  const int32_t own_tokens = spec.ComputedTokensAt(out.worker);
  const PromptSteps none(out.cost, StepTokens(worker.load));
  const auto alone = [&](int32_t tokens, const PrefillWork& behind) {
    PromptSteps steps = none;
    steps.Add(tokens, out.cost.Pairs(tokens, spec.n_prompt - tokens));
    steps.FillFrom(behind.tokens, NextPairs(behind));
    PromptSeconds seconds = steps.seconds();
    seconds.alone += out.cost.head;
    return seconds;
  };
  const QueueSeconds queue = QueueOf(worker, account, none, own_tokens, false, now);
  const PromptSeconds own = alone(own_tokens, queue.behind);
  const QueueSeconds of_slice = QueueOf(worker, account, none, spec.n_prompt, true, now);
  const double slowed = mixed.Slowed(queue.ahead);
  const double wait = mixed.WaitForStep(queue.all.work > 0);
  out.ahead_seconds = wait + slowed;
  out.slice_ahead_seconds = wait + mixed.Slowed(of_slice.ahead);
  if (queue.rows_ahead.rows == 0) {
    out.prompt_seconds = mixed.Slowed(queue.ahead + own) - slowed;
  } else {  // prompts before it are rows by then
    RowSums rows = mixed.After(slowed);
    rows.Add(queue.rows_ahead);
    out.prompt_seconds = MixedSteps(step, rows, about.itl_stretch, min_share).Slowed(own);
  }
  out.uncached_seconds = mixed.Slowed(alone(spec.n_prompt, {}));
  out.passed = queue.passed;
  out.prompt_delay_seconds = out.passed * out.prompt_seconds + mixed.Lost(own.work);
  out.rows = account.held.rows;
  if (spec.prefill_only()) return out;

  // The tokens after the first: on average the row reads half of them.
  const double tokens = ledger_.outputs().Left(spec.n_made, spec.max_tokens) - 1;
  const double keys = spec.n_prompt + tokens / 2;
  const RowSums& rows = account.held;
  out.step_seconds = step.Seconds(rows.rows + 1, static_cast<double>(rows.keys) + keys);
  out.decode_seconds = tokens * out.step_seconds;
  // Some of those that wait for their KV come too late to meet the row, and rows end meanwhile.
  out.gap_seconds = step.Seconds(1 + (rows.rows + account.running.rows) / 2.0,
                                 keys + static_cast<double>(rows.keys + account.running.keys) / 2);
  out.beside_seconds = step.beside * queue.all.work;
  out.beside_done = step.beside * mixed.rate();
  out.max_beside_seconds = mixed.MaxLostBy(tokens);
  // (What is ahead has the step under way as it is alone.)
  out.local_beside_seconds = mixed.LostBy(tokens, std::max(0.0, queue.all.work - queue.ahead.work));
  out.row_delay_seconds =
      rows.rows * std::min(tokens, rows.mean_left()) * (step.row + step.key * keys);
  // A promise that counts on cached pages is given between two steps.
  const bool holds_pages = spec.PrefillTokensAt(out.worker) < spec.n_prompt;
  out.room_wait_seconds = std::max({RoomWaitSeconds(about, account, spec, out.step_seconds),
                                    absl::ToDoubleSeconds(worker.no_room_until - now),
                                    holds_pages ? wait + queue.step_left : 0});
  return out;
}

std::vector<Candidate> Predictor::Candidates(const AttemptSpec& spec,
                                             const std::vector<Incarnation>& avoid,
                                             absl::Time now) const {
  const KnownCosts known = Known();
  const bool may_try = avoid.empty();  // a request that has lost an attempt tries no broken link
  std::vector<Candidate> candidates;
  candidates.reserve(members_.all().size());
  for (const auto& [id, worker] : members_.all()) {
    if (!worker.takes_work() || std::find(avoid.begin(), avoid.end(), id) != avoid.end()) continue;
    candidates.push_back(Consider(worker, spec, known, now));
    candidates.back().broken_to = broken_links_.From(id, may_try, now);
  }
  return candidates;
}

bool Predictor::Fits(const AttemptSpec& spec) const {
  bool source = false, sink = false, both = false;
  for (const auto& [id, worker] : members_.all()) {
    if (worker.state == MemberState::kDraining) continue;
    const bool prefill = FitsPrefill(worker.about, spec), decode = FitsDecode(worker.about, spec);
    source |= prefill && worker.about.role != Role::kDecode;
    sink |= decode && worker.about.role != Role::kPrefill;
    both |= prefill && (decode || spec.prefill_only());
  }
  return both || (source && sink);
}

std::optional<Plan> Predictor::Choose(const AttemptSpec& spec,
                                      const std::vector<Incarnation>& avoid, absl::Time now) const {
  std::optional<Plan> plan = Best(spec, avoid, now);
  if (plan && !plan->is_relay()) {
    plan->passed_seconds = PassedSeconds(*plan, spec, now);
    plan->offset_seconds = offsets_.Of(KindOf(*plan), plan->told_seconds());
  }
  if (plan && plan->gap_seconds > 0)
    plan->gap_offset_seconds = gap_offsets_.Of(KindOf(*plan), plan->gap_seconds);
  return plan;
}

// Shorter prompts come while the prompt waits and is computed, as recent ones did; others come
// while these are computed, and so on: a geometric series.
double Predictor::PassedSeconds(const Plan& plan, const AttemptSpec& spec, absl::Time now) const {
  const ArrivalRecord::Rate rate =
      ledger_.At(plan.prefill()).arrivals.Shorter(spec.ComputedTokensAt(plan.prefill()), now);
  const PrefillCost cost = CostAt(members_.At(plan.prefill()), Known());
  const double busy = std::min(cost.Work(rate.tokens, rate.pairs), kMaxBusy);
  return plan.first_token_seconds * busy / (1 - busy);
}

std::optional<Plan> Predictor::Best(const AttemptSpec& spec, const std::vector<Incarnation>& avoid,
                                    absl::Time now) const {
  const PlanKinds kinds = local_ ? PlanKinds::kSparing : PlanKinds::kByRole;
  std::vector<Candidate> candidates = Candidates(spec, avoid, now);
  std::optional<Plan> plan = ChoosePlan(candidates, spec, kinds);
  const bool of_all = !plan && !avoid.empty();
  if (of_all) {
    candidates = Candidates(spec, {}, now);
    plan = ChoosePlan(candidates, spec, kinds);
  }
  if (!plan || of_all || !WantsRelay(spec)) return plan;
  const std::optional<Plan> shared = ChoosePlan(candidates, spec, PlanKinds::kShared);
  const Plan relay = ShareWithHeads(local_ && shared ? *shared : *plan, candidates, spec,
                                    members_.page_tokens(), WaitingPerWorker(), relays_, record_);
  const bool pays = relays_.min_ranks > 1 || relay.score < plan->score;
  return relay.is_relay() && pays ? relay : plan;
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
    return entry.second.load.knows_prefill();
  });
  return relays_.min_tokens > 0 && spec.may_relay && spec.n_prompt >= relays_.min_tokens &&
         spec.kept.empty() && (relays_.min_ranks > 1 || knows_costs);
}

// Prompts that come later will wait too, as recent ones did.
double Predictor::WaitingPerWorker() const {
  int prefill_workers = 0;
  for (const auto& [id, worker] : members_.all())
    prefill_workers += worker.about.role != Role::kDecode;
  return ledger_.waiting_prompts() / std::max(1, prefill_workers);
}

double Predictor::OwnPrefillSeconds(const Plan& plan, const AttemptSpec& spec) const {
  const KnownCosts known = Known();
  double longest_seconds = 0;
  for (const Incarnation worker : plan.PrefillWorkers())
    longest_seconds = std::max(longest_seconds, WorkSeconds(CostAt(members_.At(worker), known),
                                                            plan.PrefillWorkAt(worker, spec)));
  return longest_seconds;
}

}  // namespace baton
