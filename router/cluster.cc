#include "router/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

// A part sent this shortly before a load report came may not be in it yet.
constexpr absl::Duration kReportLag = absl::Milliseconds(50);
// Before any worker has measured itself.
constexpr double kUnknownTokensPerS = 1000, kUnknownStepMs = 20;
// Measured, what a relay can be planned with: one prompt that is worth sharing.
constexpr int32_t kKnownTokens = 256;

// A fit that changes what such a prompt costs by so much is another one.
constexpr int32_t kNotedTokens = 1024;
constexpr double kNotedChange = 0.05;

constexpr double kNewestFound = 0.1;  // weight of the newest prompt in the moving average

constexpr StateRow kMemberStates[] = {
    {"present", "worker_silence since it was heard of",
     "gone: its stream is closed, its requests are dispatched anew"},
    {"draining", "worker_silence since it was heard of",
     "gone: its stream is closed, its requests are dispatched anew"},
    {"gone", "", ""},
};
constexpr TransitionRow kMemberTransitions[] = {
    Move(MemberState::kPresent, MemberState::kDraining),
    Move(MemberState::kPresent, MemberState::kGone),
    Move(MemberState::kDraining, MemberState::kGone),
};

absl::Status CheckSame(const char* field, const WorkerAnnounce& here, const std::string& value_here,
                       const WorkerAnnounce& newcomer, const std::string& value_new) {
  if (value_here == value_new) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("worker %s has %s %s, but worker %s of this cluster has %s: start them with "
                      "the same model, build and KV settings",
                      newcomer.name, field, value_new, here.name, value_here));
}

// A first token that is the last one needs no place in the context.
bool FitsPrefill(const WorkerAnnounce& worker, const AttemptSpec& shape) {
  return shape.n_prompt <= worker.max_context &&
         PromptPages(shape, worker.page_tokens) <= worker.pages_total;
}

bool FitsDecode(const WorkerAnnounce& worker, const AttemptSpec& shape) {
  return int64_t{shape.n_prompt} + shape.max_tokens <= worker.max_context &&
         WholePages(shape, worker.page_tokens) <= worker.pages_total && worker.max_batch > 0;
}

}  // namespace

const MachineTable& MembershipTable() {
  static constexpr MachineTable kTable{.machine = "membership",
                                       .owner = "Cluster of the Router, front thread",
                                       .states = kMemberStates,
                                       .transitions = kMemberTransitions};
  return kTable;
}

absl::Status Cluster::Join(const WorkerAnnounce& worker, absl::Time now) {
  if (workers_.contains(worker.incarnation))
    return absl::FailedPreconditionError(
        absl::StrFormat("worker %s announced itself twice on one stream", worker.name));
  RETURN_IF_ERROR(CheckTable(worker));
  if (!workers_.empty()) {
    const WorkerAnnounce& here = workers_.begin()->second.about;
    RETURN_IF_ERROR(CheckSame("model_fingerprint", here,
                              absl::StrFormat("%016x", here.model_fingerprint), worker,
                              absl::StrFormat("%016x", worker.model_fingerprint)));
    RETURN_IF_ERROR(CheckSame("numerics_id", here, here.numerics_id, worker, worker.numerics_id));
    RETURN_IF_ERROR(CheckSame("layout_id", here, here.layout_id, worker, worker.layout_id));
    RETURN_IF_ERROR(CheckSame("page_tokens", here, absl::StrCat(here.page_tokens), worker,
                              absl::StrCat(worker.page_tokens)));
  }
  workers_.try_emplace(worker.incarnation, worker, now, transitions_);
  return absl::OkStatus();
}

absl::Status Cluster::CheckTable(const WorkerAnnounce& worker) const {
  const PartitionTable* const table = relays_.sharing->table();
  if (table == nullptr || (table->model_fingerprint == worker.model_fingerprint &&
                           table->numerics_id == worker.numerics_id))
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the partition table was tuned for model %s (%016x, %s), worker %s has %016x, %s: tune it "
      "with this model (baton tune), or set lab.partition to closed",
      table->model, table->model_fingerprint, table->numerics_id, worker.name,
      worker.model_fingerprint, worker.numerics_id));
}

std::vector<RequestId> Cluster::Leave(Incarnation worker) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return {};
  std::vector<RequestId> requests;
  for (const auto& [request, part] : it->second.parts) requests.push_back(request);
  it->second.state = MemberState::kGone;
  workers_.erase(it);
  return requests;
}

void Cluster::OnHeard(Incarnation worker, absl::Time now) {
  if (const auto it = workers_.find(worker); it != workers_.end()) it->second.heard_at = now;
}

void Cluster::ForgiveSilence(absl::Time now) {
  for (auto& [id, worker] : workers_) worker.heard_at = now;
}

std::vector<Incarnation> Cluster::NotHeardSince(absl::Time time) const {
  std::vector<Incarnation> silent;
  for (const auto& [id, worker] : workers_)
    if (worker.heard_at < time) silent.push_back(id);
  return silent;
}

bool Cluster::reuses_kv() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.about.reuses_kv; });
}

bool Cluster::serves() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.state == MemberState::kPresent; });
}

void Cluster::OnLoad(Incarnation worker, const WorkerLoad& load, absl::Time now) {
  Worker& w = workers_.at(worker);
  w.load = load;
  w.load_at = now;
  if (load.draining) w.state = MemberState::kDraining;
  if (load.prefill_fit.n_seen > 0) RecordFit(&w);
}

// Relays that did not pay may, by another cost.
void Cluster::RecordFit(Worker* worker) {
  const double prompt_ms =
      WorkMs(CostOf(worker->about, worker->load.prefill_fit), PrefillWork::Of(kNotedTokens, 0));
  if (std::abs(prompt_ms - worker->recorded_prompt_ms) <= kNotedChange * worker->recorded_prompt_ms)
    return;
  worker->recorded_prompt_ms = prompt_ms;
  record_.Refitted();
}

void Cluster::OnFirstToken(RequestId request, const Plan& plan, const FirstTokenOutcome& outcome) {
  const auto was_shared = [&](Incarnation worker) {
    const auto w = workers_.find(worker);
    if (w == workers_.end()) return true;
    const auto part = w->second.parts.find(request);
    return part == w->second.parts.end() || part->second.was_shared;
  };
  record_.Add(
      outcome.n_tokens, outcome.n_ranks,
      {.predicted = absl::ToDoubleSeconds(outcome.predicted),
       .actual = absl::ToDoubleSeconds(outcome.actual),
       .alone = absl::ToDoubleSeconds(outcome.alone),
       .was_shared = was_shared(plan.prefill) ||
                     std::any_of(plan.heads.begin(), plan.heads.end(),
                                 [&](const auto& head) { return was_shared(head.worker); })});
}

void Cluster::OnNoRoom(Incarnation worker, absl::Duration expected_wait, absl::Time now) {
  workers_.at(worker).no_room_until = now + expected_wait;
}

const WorkerAnnounce* Cluster::Find(Incarnation worker) const {
  const auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : &it->second.about;
}

std::vector<Incarnation> Cluster::Workers() const {
  std::vector<Incarnation> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  return ids;
}

LinkRate Cluster::LinkOf(Incarnation from, Incarnation to) const {
  if (const auto it = workers_.find(from); it != workers_.end())
    for (const LinkRate& link : it->second.load.links)
      if (link.peer == to) return link;
  return {.peer = to};
}

// The worker's own cost, or that of the fastest worker that has measured its own.
PrefillCost Cluster::CostAt(const Worker& worker) const {
  const PrefillFit* fit = &worker.load.prefill_fit;
  if (fit->n_seen == 0)
    for (const auto& [id, other] : workers_)
      if (other.load.prefill_fit.n_seen > 0 &&
          (fit->n_seen == 0 || other.load.prefill_fit.token < fit->token))
        fit = &other.load.prefill_fit;
  return fit->n_seen > 0 ? CostOf(worker.about, *fit) : CostOf(worker.about, kUnknownTokensPerS);
}

double Cluster::StepMsAt(const Worker& worker) const {
  if (worker.load.decode_step_ms > 0) return worker.load.decode_step_ms;
  double best_ms = std::numeric_limits<double>::infinity();
  for (const auto& [id, other] : workers_)
    if (other.load.decode_step_ms > 0)
      best_ms = std::min<double>(best_ms, other.load.decode_step_ms);
  return std::isfinite(best_ms) ? best_ms : kUnknownStepMs;
}

// Never more than the ledger; less by what the worker reports as done, without trusting the report
// about parts it may not have seen.
PrefillWork Cluster::Queued(const Worker& worker) {
  PrefillWork outstanding;
  PrefillWork reported{.tokens = worker.load.prefill_queued_tokens,
                       .pairs = worker.load.prefill_queued_pairs};
  for (const auto& [request, part] : worker.parts) {
    outstanding += part.prefill;
    if (part.sent > worker.load_at - kReportLag) reported += part.prefill;
  }
  return outstanding.tokens < reported.tokens ? outstanding : reported;
}

// A slice waits for those that are there, and so for what passes them. What the worker has done
// already was of what goes before, as far as that reaches.
double Cluster::AheadMs(const Worker& worker, const PrefillCost& cost, int32_t tokens,
                        bool is_slice) {
  int64_t longest = tokens;
  for (const auto& [request, part] : worker.parts)
    if (is_slice && part.is_slice) longest = std::max(longest, part.prefill.tokens);
  PrefillWork all, ahead;
  for (const auto& [request, part] : worker.parts) {
    all += part.prefill;
    if (part.prefill.tokens <= longest) ahead += part.prefill;
  }
  const double done_ms = WorkMs(cost, all) - WorkMs(cost, Queued(worker));
  return std::max(0.0, WorkMs(cost, ahead) - done_ms);
}

int Cluster::Passed(const Worker& worker, int32_t tokens) {
  int passed = 0;
  for (const auto& [request, part] : worker.parts) passed += part.prefill.tokens > tokens;
  return passed;
}

int Cluster::WaitingPrompts() const {
  int prompts = 0;
  for (const auto& [id, worker] : workers_)
    for (const auto& [request, part] : worker.parts) prompts += part.prefill.tokens > 0;
  return prompts;
}

int Cluster::PrefillWorkers() const {
  int workers = 0;
  for (const auto& [id, worker] : workers_) workers += worker.about.role != Role::kDecode;
  return std::max(1, workers);
}

Candidate Cluster::Consider(const Worker& worker, const AttemptSpec& shape, absl::Time now) const {
  Candidate out{.worker = worker.about.incarnation,
                .role = worker.about.role,
                .fits_prefill = FitsPrefill(worker.about, shape),
                .fits_decode = FitsDecode(worker.about, shape),
                .cpu_group = worker.about.cpu_group,
                .cpu_share = worker.about.cpu_share,
                .last_chosen = worker.last_chosen};
  out.cost = CostAt(worker);
  const int32_t own_tokens = shape.PrefillTokensAt(out.worker);
  out.prompt_ms = 1e3 * out.cost.Alone(own_tokens, shape.n_prompt - own_tokens);
  out.uncached_ms = 1e3 * out.cost.Alone(shape.n_prompt, 0);
  out.passed = Passed(worker, own_tokens);
  out.ahead_ms = AheadMs(worker, out.cost, own_tokens, false);
  out.slice_ahead_ms = AheadMs(worker, out.cost, shape.n_prompt, true);
  out.prefill_ms = out.ahead_ms + out.prompt_ms * (1 + out.passed);
  if (worker.about.link_bytes_per_second > 0)
    out.link.bytes_per_second = worker.about.link_bytes_per_second;
  out.links = worker.load.links;
  if (worker.about.max_slice_tokens > 0) out.max_slice_tokens = worker.about.max_slice_tokens;
  const DecodeRoom room{.pages_free = worker.about.pages_total - worker.pages_held,
                        .rows = worker.rows_held,
                        .max_batch = worker.about.max_batch,
                        .step_ms = StepMsAt(worker)};
  const int32_t pages = PromisePages(shape, worker.about.page_tokens);
  double wait_ms = 0;
  if (room.pages_free < pages || room.rows >= room.max_batch) {
    std::vector<DecodeReservation> holdings;
    for (const auto& [request, part] : worker.parts)
      if (part.decodes) holdings.push_back(part.holding);
    wait_ms = CapacityWaitMs(room, std::move(holdings), pages);
  }
  wait_ms = std::max(wait_ms, absl::ToDoubleMilliseconds(worker.no_room_until - now));
  out.room_wait_ms = wait_ms;
  out.decode_ms = DecodeMs(room, wait_ms);
  return out;
}

std::vector<Candidate> Cluster::Candidates(const AttemptSpec& shape,
                                           const std::vector<Incarnation>& avoid,
                                           absl::Time now) const {
  std::vector<Candidate> candidates;
  for (const auto& [id, worker] : workers_)
    if (worker.state != MemberState::kDraining &&
        std::find(avoid.begin(), avoid.end(), id) == avoid.end())
      candidates.push_back(Consider(worker, shape, now));
  return candidates;
}

std::optional<Plan> Cluster::Choose(const AttemptSpec& shape, const std::vector<Incarnation>& avoid,
                                    absl::Time now) const {
  std::vector<Candidate> candidates = Candidates(shape, avoid, now);
  std::optional<Plan> plan = ChoosePlan(candidates, shape);
  const bool of_all = !plan && !avoid.empty();
  if (of_all) {
    candidates = Candidates(shape, {}, now);
    plan = ChoosePlan(candidates, shape);
  }
  if (!plan) return plan;
  const Candidate& first =
      *std::find_if(candidates.begin(), candidates.end(),
                    [&](const Candidate& c) { return c.worker == plan->prefill; });
  plan->first_token_ms = plan->alone_ms =
      FirstTokenMs(candidates, plan->decode, first.ahead_ms, first.prompt_ms);
  if (of_all || !WantsRelay(shape)) return plan;
  // Prompts that come later will wait too, as recent ones did.
  const double waiting =
      std::max<double>(WaitingPrompts(), found_waiting_) / static_cast<double>(PrefillWorkers());
  return ShareWithHeads(*plan, candidates, shape, page_tokens(), waiting, relays_, record_);
}

std::optional<Plan> Cluster::Replace(const Plan& relay, Incarnation lost, const AttemptSpec& shape,
                                     const std::vector<Incarnation>& avoid, absl::Time now) const {
  return ReplaceWorker(relay, lost, Candidates(shape, avoid, now), shape);
}

int32_t Cluster::page_tokens() const {
  return workers_.empty() ? 0 : workers_.begin()->second.about.page_tokens;
}

std::vector<CachedPrefix> Cluster::Cached(const std::vector<uint64_t>& pages) const {
  std::vector<CachedPrefix> cached;
  for (const auto& [id, worker] : workers_)
    if (const size_t n = worker.prefixes.Find(pages); n > 0)
      cached.push_back({id, static_cast<int32_t>(n) * page_tokens(), worker.prefixes.adds()});
  return cached;
}

void Cluster::OnPrefixFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages,
                            int32_t found_tokens) {
  const auto worker = workers_.find(hoped.worker);
  if (worker == workers_.end() || found_tokens >= hoped.tokens) return;
  worker->second.prefixes.Lacks(pages[static_cast<size_t>(found_tokens / page_tokens())],
                                hoped.adds);
}

// A rank has all up to the end of its last slice.
void Cluster::OnPromptCached(const Plan& plan, const AttemptSpec& shape,
                             const std::vector<uint64_t>& pages) {
  const std::vector<int32_t> ends = plan.SliceEnds(shape);
  for (size_t slice = ends.size() - plan.n_ranks(); slice < ends.size(); ++slice) {
    const auto worker = workers_.find(plan.WorkerOf(slice));
    if (worker == workers_.end()) continue;
    const auto n_pages = static_cast<size_t>(ends[slice] / page_tokens());
    worker->second.prefixes.Add(std::span(pages).first(std::min(n_pages, pages.size())));
  }
}

// KV that an earlier attempt left somewhere is worth more than further workers. And while nobody
// has measured what prompts cost, one worker does it.
bool Cluster::WantsRelay(const AttemptSpec& shape) const {
  return relays_.min_tokens > 0 && shape.may_relay && shape.n_prompt >= relays_.min_tokens &&
         shape.kept_at == 0 && (relays_.min_ranks > 1 || KnowsCosts());
}

bool Cluster::KnowsCosts() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.load.prefill_fit.n_tokens >= kKnownTokens;
  });
}

double Cluster::OwnPrefillMs(const Plan& plan, const AttemptSpec& shape) const {
  const auto own_ms = [&](Incarnation worker) {
    return WorkMs(CostAt(workers_.at(worker)), plan.PrefillWorkAt(worker, shape));
  };
  double longest_ms = own_ms(plan.prefill);
  for (const Plan::Head& head : plan.heads) longest_ms = std::max(longest_ms, own_ms(head.worker));
  return longest_ms;
}

void Cluster::Reserve(RequestId request, const Plan& plan, const AttemptSpec& shape,
                      absl::Time now) {
  ++choices_;
  found_waiting_ += kNewestFound * (WaitingPrompts() - found_waiting_);
  ReservePrefill(request, plan.prefill, plan, shape, now);
  for (const Plan::Head& head : plan.heads) ReservePrefill(request, head.worker, plan, shape, now);
  if (plan.decode == 0) return;
  Worker& decode = workers_.at(plan.decode);
  decode.last_chosen = choices_;
  Part& sequence = decode.parts[request];
  sequence.sent = now;
  sequence.decodes = true;
  sequence.shape = shape;
  sequence.holding = {.pages = PromisePages(shape, decode.about.page_tokens),
                      .tokens_left = shape.max_tokens};
  decode.pages_held += sequence.holding.pages;
  ++decode.rows_held;
}

void Cluster::ReservePrefill(RequestId request, Incarnation worker, const Plan& plan,
                             const AttemptSpec& shape, absl::Time now) {
  Worker& w = workers_.at(worker);
  w.last_chosen = choices_;
  Part& part = w.parts[request];
  part.prefill = plan.PrefillWorkAt(worker, shape);
  part.is_slice = plan.is_relay();
  part.sent = now;
  for (auto& [other_request, other] : w.parts) {
    if (other_request == request || other.prefill.tokens == 0) continue;
    other.was_shared = part.was_shared = true;
  }
}

void Cluster::OnPrefillComputed(Incarnation worker, RequestId request) {
  const auto w = workers_.find(worker);
  if (w == workers_.end()) return;
  if (const auto part = w->second.parts.find(request); part != w->second.parts.end())
    part->second.prefill = {};
}

void Cluster::OnTokensLeft(Incarnation worker, RequestId request, int32_t tokens_left) {
  const auto w = workers_.find(worker);
  if (w == workers_.end()) return;
  const auto it = w->second.parts.find(request);
  if (it == w->second.parts.end() || !it->second.decodes) return;
  Part& part = it->second;
  const int32_t pages =
      HeldPages(part.shape, part.shape.max_tokens - tokens_left, w->second.about.page_tokens);
  w->second.pages_held += pages - part.holding.pages;
  part.holding = {.pages = pages, .tokens_left = tokens_left};
}

void Cluster::Release(RequestId request, const Plan& plan) {
  ReleaseAt(plan.prefill, request);
  if (plan.decode != plan.prefill) ReleaseAt(plan.decode, request);
  for (const Plan::Head& head : plan.heads) ReleaseAt(head.worker, request);
}

void Cluster::ReleaseAt(Incarnation worker, RequestId request) {
  const auto w = workers_.find(worker);
  if (w == workers_.end()) return;
  const auto part = w->second.parts.find(request);
  if (part == w->second.parts.end()) return;
  if (part->second.decodes) {
    w->second.pages_held -= part->second.holding.pages;
    --w->second.rows_held;
    BATON_DCHECK(w->second.pages_held >= 0 && w->second.rows_held >= 0);
  }
  w->second.parts.erase(part);
}

void Cluster::FillView(ClusterView* view) const {
  if (!workers_.empty()) {  // Join compared them
    view->model_fingerprint = workers_.begin()->second.about.model_fingerprint;
    view->numerics_id = workers_.begin()->second.about.numerics_id;
  }
  for (const auto& [id, worker] : workers_) {
    view->kv_pages_promised += worker.pages_held;
    if (worker.state == MemberState::kDraining) continue;
    if (worker.about.role != Role::kDecode) ++view->prefill_workers;
    const int64_t context = worker.about.max_context;
    view->max_context = view->max_context == 0 ? context : std::min(view->max_context, context);
    if (worker.about.role == Role::kPrefill) continue;
    ++view->decode_workers;
    view->kv_pages_total += worker.about.pages_total;
    view->kv_pages_free += worker.load_at == absl::InfinitePast()
                               ? worker.about.pages_total
                               : std::min(worker.load.pages_free, worker.about.pages_total);
  }
}

}  // namespace baton
