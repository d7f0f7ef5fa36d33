// Dispatch: chooses the workers of an attempt, sends them their parts, and decides about a request
// whose attempt broke.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "router/router_state.h"

namespace baton {
namespace {

// Moves to a worker with room are no failures, but each throws away a place in a queue.
constexpr int kMaxMoves = 4;

// A handoff broke: first the receiver is taken to be at fault, the next time the sender too. Of a
// relay that has not brought a token it may have been any handoff: the heads' parts are those that
// the next attempt can do without.
void BlameHandoff(Journey& journey) {
  const Plan& plan = journey.plan();
  const std::vector<Incarnation> heads = plan.HeadWorkers();
  if (!heads.empty() && !journey.attempt_spoke()) {
    for (const Incarnation head : heads) Blame(journey, head);
    return;
  }
  Blame(journey, plan.decode);
  std::vector<Incarnation>& in_vain = journey.failed_senders;
  if (std::find(in_vain.begin(), in_vain.end(), plan.prefill) != in_vain.end())
    Blame(journey, plan.prefill);
  else
    in_vain.push_back(plan.prefill);
}

}  // namespace

void Blame(Journey& journey, Incarnation worker) {
  if (std::find(journey.avoid.begin(), journey.avoid.end(), worker) == journey.avoid.end())
    journey.avoid.push_back(worker);
}

void Router::State::TryDispatch(Journey& journey, absl::Time now) {
  if (journey.is_scored())
    journey.cached.clear();  // no KV is reused
  else if (!cluster.prefixes.empty())
    journey.cached = cluster.prefixes.Find(journey.Pages(cluster.members.page_tokens()));
  const std::optional<Plan> plan = cluster.predictor.Choose(journey.Shape(), journey.avoid, now);
  if (plan) DispatchTo(journey, *plan, now);  // else the request waits for a worker or its alarm
}

void Router::State::DispatchTo(Journey& journey, const Plan& plan, absl::Time now) {
  waiting.erase(journey.sequence());
  cluster.ledger.Reserve(journey.id(), plan, journey.Shape(), cluster.members.page_tokens(), now);
  const auto name = [this](Incarnation worker) {
    return worker == 0 ? std::string() : cluster.members.Find(worker)->name;
  };
  PlanNames names{.prefill = name(plan.prefill), .decode = name(plan.decode), .heads = {}};
  for (const Incarnation head : plan.HeadWorkers()) names.heads.push_back(name(head));
  journey.Dispatch(plan, names, now);
  journey.crossed_before.clear();
  for (const HopProgress& hop : HopsOf(journey)) journey.crossed_before.push_back(hop.crossed);
  SetAlarm(journey);
  SendAttempt(journey);
}

Ticket Router::State::MintTicket(const Journey& journey, Incarnation sink, Ticket ticket) {
  ticket.id = {.high = random(), .low = random()};
  ticket.epoch = journey.epoch();
  ticket.request_id = journey.id();
  ticket.sink = sink;
  SignTicket(key, ticket);
  return ticket;
}

// Sends to receivers before senders, so that a receiver knows its part before OPEN comes. If the
// wires reorder the messages, or the ranks form a ring, the decode worker needs no more than the
// ticket, and a rank answers OPEN with NO_ROOM until its own message is there.
void Router::State::SendAttempt(const Journey& journey) {
  const Plan& plan = journey.plan();
  const AttemptSpec shape = journey.Shape();
  const WorkerAnnounce& prefill = *cluster.members.Find(plan.prefill);
  TransferPeer sink;
  Ticket handoff;
  if (plan.decode != 0) {
    sink = cluster.members.Find(plan.decode)->transfer;
    handoff.kv_pages = PromptPages(shape, prefill.page_tokens);
    handoff.promise_pages = PromisePages(shape, prefill.page_tokens);
  }
  if (plan.push == RelayPush::kAll)
    handoff.first_page = plan.TokensOfHeads(plan.heads.size()) / prefill.page_tokens;
  const Ticket ticket = MintTicket(journey, plan.decode, handoff);
  if (plan.decode != 0) Send(plan.decode, journey.MakeDecodeRequest(ticket.id));
  if (!plan.HeadWorkers().empty()) {
    relays_in_rounds += plan.n_rounds() > 1;
    ++relays_by_push[static_cast<size_t>(plan.push)];
  }
  const std::vector<RelayRound> slices = MintSlices(journey, ticket);
  const size_t n_ranks = plan.n_ranks();
  // From the tail to the first head: each is the receiver of the one before it.
  for (size_t rank = n_ranks; rank-- > 0;) {
    if (rank + 1 < n_ranks && plan.StaysThere(rank)) continue;  // it has been sent
    const size_t last = slices.size() - n_ranks + rank;
    PrefillRequest request = rank + 1 == n_ranks
                                 ? journey.MakePrefillRequest(ticket, sink, slices[last].inflow)
                                 : journey.MakeHeadRequest(slices[last]);
    for (size_t slice = 0; slice < last; ++slice)
      if (plan.WorkerOf(slice) == plan.WorkerOf(last)) request.earlier.push_back(slices[slice]);
    if (request.is_head) request.pages_at_once = plan.TakesPagesAtOnce(rank);
    Send(plan.WorkerOf(rank), std::move(request));
  }
}

// Makes the slices of the plan: each with the inflow before it and, all but the last one, with the
// receiver of its KV. main: the ticket of the handoff to the decode worker.
std::vector<RelayRound> Router::State::MintSlices(const Journey& journey, const Ticket& main) {
  const Plan& plan = journey.plan();
  const AttemptSpec shape = journey.Shape();
  const std::vector<int32_t> ends = plan.SliceEnds(shape), hops = plan.HopTokens(shape);
  const int32_t page_tokens = cluster.members.Find(plan.prefill)->page_tokens;
  std::vector<RelayRound> slices(ends.size());
  for (size_t slice = 0; slice + 1 < slices.size(); ++slice) {
    RelayRound& round = slices[slice];
    const Incarnation next = plan.WorkerOf(slice + 1);
    round.tokens = ends[slice];
    if (plan.push == RelayPush::kAll)
      round.push = PushOf(journey, main, slice == 0 ? 0 : ends[slice - 1], ends[slice]);
    if (plan.StaysThere(slice)) continue;
    round.ticket = MintTicket(journey, next, {.kv_pages = hops[slice] / page_tokens});
    round.sink = cluster.members.Find(next)->transfer;
    slices[slice + 1].inflow = {.ticket_id = round.ticket.id, .tokens = ends[slice]};
  }
  return slices;
}

// A slice, tokens [begin, end), as a part of the main handoff.
Push Router::State::PushOf(const Journey& journey, const Ticket& main, int32_t begin, int32_t end) {
  const WorkerAnnounce& decode = *cluster.members.Find(journey.plan().decode);
  return {.ticket = MintTicket(journey, decode.incarnation,
                               {.kv_pages = (end - begin) / decode.page_tokens,
                                .part_of = main.id,
                                .first_page = begin / decode.page_tokens}),
          .sink = decode.transfer};
}

// Takes the request away from its workers; it waits from now on.
void Router::State::Recall(Journey& journey, absl::Time now, const std::optional<Plan>& next) {
  const auto goes_on = [&](Incarnation worker) {
    return next && (next->prefill == worker || next->IsHead(worker));
  };
  for (const Incarnation worker : journey.OpenWorkers()) {
    if (goes_on(worker)) continue;  // the next attempt ends this one there
    SendCancel(worker, journey.id(), journey.epoch());
  }
  cluster.ledger.Release(journey.id(), journey.plan());
  journey.Recall(now);
  waiting[journey.sequence()] = journey.id();
  SetAlarm(journey);
}

// OK while it may be tried again.
absl::Status Router::State::WhyExhausted(Journey& journey, const Journey::Failure& failure) const {
  switch (failure.cause) {
    case FailoverCause::kDraining:  // such workers are not asked again
    case FailoverCause::kSlowLink:  // once: no relay follows
      return absl::OkStatus();
    case FailoverCause::kWorkerLost:
    case FailoverCause::kHandoffFailed:
      if (++journey.lost_attempts < options.max_lost_attempts) return absl::OkStatus();
      return absl::AbortedError(absl::StrFormat(
          "gave up: %d times in a row a worker was lost while it had this request, which may be "
          "the cause; the last time: %s",
          journey.lost_attempts, failure.message));
    case FailoverCause::kPartFailed:
    case FailoverCause::kStuck:
      break;
  }
  if (++journey.failures < options.max_attempts) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("gave up after %d attempts; the last one: %s",
                                                journey.failures, failure.message));
}

void Router::State::Retry(Journey& journey, const Journey::Failure& failure, absl::Time now) {
  ++failovers[static_cast<size_t>(failure.cause)];
  if (journey.attempt_got_on()) journey.failures = journey.lost_attempts = 0;
  const absl::Status exhausted = WhyExhausted(journey, failure);
  const std::optional<Plan> mended = exhausted.ok() ? Mend(journey, now) : std::optional<Plan>();
  if (mended)
    Blame(journey, journey.Culprit());
  else if (failure.cause == FailoverCause::kHandoffFailed)
    BlameHandoff(journey);
  if (journey.plan().is_relay()) journey.may_relay = false;
  journey.recompute_reason = static_cast<int>(failure.cause);
  const bool same_sink = mended && mended->decode == journey.plan().decode;
  if (mended) LogMend(journey, *mended, failure);
  Recall(journey, now, mended);
  if (!exhausted.ok()) return End(journey, EndReason::kFailed, exhausted, now);
  if (!mended) return TryDispatch(journey, now);
  journey.mended = true;
  ++(same_sink ? ranks_replaced : sinks_replaced);
  replaced_in_rounds += mended->n_rounds() > 1;
  DispatchTo(journey, *mended, now);
}

void Router::State::LogMend(const Journey& journey, const Plan& mended,
                            const Journey::Failure& failure) const {
  const Plan& plan = journey.plan();
  const Incarnation culprit = journey.Culprit();
  const std::vector<int32_t> ends = plan.SliceEnds(journey.Shape());
  std::string slices;
  Incarnation stand_in = mended.decode;
  for (size_t slice = 0; slice < ends.size(); ++slice) {
    if (plan.WorkerOf(slice) != culprit) continue;
    stand_in = mended.WorkerOf(slice);
    absl::StrAppend(&slices, slices.empty() ? "" : ",", slice == 0 ? 0 : ends[slice - 1], "-",
                    ends[slice]);
  }
  LogInfo("request %s goes on as a relay after %s  worker %s in place of %s  computes again %s",
          journey.name(), failure.message, cluster.members.Find(stand_in)->name,
          journey.NameOf(culprit), slices.empty() ? "nothing" : "tokens " + slices);
}

// A relay that has not brought a token lost one rank, or its decode worker: the ranks that are left
// have kept their slices, and go on with them if another worker takes the lost one's place. Once
// per request: who loses workers again and again is better off alone. What is kept makes nobody
// wait, and whoever stands out of the order of pages does not wait either (docs/RELAY.md).
// Where no other worker is there, one of the ranks that are left is it.
std::optional<Plan> Router::State::Mend(const Journey& journey, absl::Time now) {
  const Plan& plan = journey.plan();
  const Incarnation culprit = journey.Culprit();
  if (!plan.is_relay() || journey.mended || journey.attempt_spoke() || culprit == 0)
    return std::nullopt;
  for (const Incarnation worker : plan.Workers())
    if (worker != culprit && cluster.members.Find(worker) == nullptr) return std::nullopt;
  return cluster.predictor.Replace(plan, culprit, journey.Shape(), journey.avoid, now);
}

// Counts bytes that cross in all relays that share a link, so the rest is never overstated.
std::vector<HopProgress> Router::State::HopsOf(const Journey& journey) const {
  const Plan& plan = journey.plan();
  const std::vector<int32_t> tokens = plan.HopTokens(journey.Shape());
  std::vector<HopProgress> links(std::min(plan.n_ranks(), tokens.size()));
  for (size_t i = 0; i < links.size(); ++i) {
    const Incarnation next = plan.WorkerOf(i + 1);
    const WorkerAnnounce* const sender = cluster.members.Find(plan.WorkerOf(i));
    if (sender == nullptr || cluster.members.Find(next) == nullptr)
      continue;  // lost, its part had ended
    const LinkRate link = cluster.members.LinkOf(sender->incarnation, next);
    const int64_t before = i < journey.crossed_before.size() ? journey.crossed_before[i] : 0;
    links[i].crossed = std::max<int64_t>(0, link.chain_bytes - before);
    links[i].bytes_per_second = link.bytes_per_second;
    for (size_t hop = i; hop < tokens.size(); hop += plan.n_ranks())
      links[i].bytes += int64_t{tokens[hop]} * sender->kv_token_bytes * sender->n_layers;
  }
  return links;
}

// It is late. Where a link has become so slow that one worker alone would be sooner, from what the
// first rank has, that is what follows; once, for no relay comes after it.
void Router::State::LookAtRelay(Journey& journey, absl::Time now) {
  const Plan& plan = journey.plan();
  AttemptSpec shape = journey.Shape();
  shape.may_relay = false;
  shape.kept_at = plan.heads.front().worker;
  shape.kept_tokens = plan.SliceEnds(shape).front();
  const std::optional<Plan> alone = cluster.predictor.Choose(shape, journey.avoid, now);
  const std::vector<HopProgress> hops = HopsOf(journey);
  // Other causes of lateness, a busy machine for example, would make one worker late too.
  const absl::Duration alone_takes =
      alone ? journey.Lateness(now) * absl::Milliseconds(alone->first_token_ms)
            : absl::InfiniteDuration();
  const std::optional<size_t> slow = HopToLeave(hops, alone_takes);
  if (!slow) return SetAlarm(journey);
  const std::string message = absl::StrFormat(
      "relay: the link from worker %s to %s carries %.3g MB/s, %.3g MB of KV are left: %s, and one "
      "worker alone is predicted to take %s",
      cluster.members.Find(plan.WorkerOf(*slow))->name,
      cluster.members.Find(plan.WorkerOf(*slow + 1))->name, hops[*slow].bytes_per_second / 1e6,
      static_cast<double>(hops[*slow].bytes - hops[*slow].crossed) / 1e6,
      absl::FormatDuration(absl::Trunc(TimeLeft(hops[*slow]), absl::Milliseconds(1))),
      absl::FormatDuration(absl::Trunc(alone_takes, absl::Milliseconds(1))));
  LogWarn("request %s is dispatched anew: %s", journey.name(), message);
  journey.RecordFirstSlice();
  Retry(journey, {.cause = FailoverCause::kSlowLink, .message = message}, now);
}

// Whoever is at fault.
bool Router::State::MayMend(const Journey& journey, absl::Time now) {
  const Plan& plan = journey.plan();
  if (!plan.is_relay() || journey.mended || journey.attempt_spoke()) return false;
  const std::vector<Incarnation> workers = plan.Workers();
  return std::any_of(workers.begin(), workers.end(), [&](Incarnation worker) {
    return cluster.predictor.Replace(plan, worker, journey.Shape(), journey.avoid, now).has_value();
  });
}

// The decode worker is full. Prefill has not begun (it waits for the promise, and a relay's head
// for the pages of its tail), so another worker with room loses nothing but the place in the queue;
// predictions decide whether that is sooner.
void Router::State::Reassign(Journey& journey, absl::Duration expected_wait, absl::Time now) {
  if (journey.attempt_spoke() || journey.a_head_ended() || journey.moves >= kMaxMoves) return;
  const Plan plan = journey.plan();
  const AttemptSpec shape = journey.Shape();
  cluster.ledger.Release(journey.id(), plan);
  const std::optional<Plan> other = cluster.predictor.Choose(shape, journey.avoid, now);
  cluster.ledger.Reserve(journey.id(), plan, shape, cluster.members.page_tokens(), now);
  const double stay_ms =
      absl::ToDoubleMilliseconds(expected_wait) + cluster.predictor.OwnPrefillMs(plan, shape);
  if (!other || other->decode == plan.decode || other->predicted_ms >= stay_ms) return;
  ++journey.moves;
  journey.recompute_reason = kFailoverCauses;
  Recall(journey, now);
  TryDispatch(journey, now);
}

void Router::State::DispatchWaiting(absl::Time now) {
  const absl::btree_map<uint64_t, RequestId> in_order = waiting;
  for (const auto& [sequence, id] : in_order) TryDispatch(*Find(id), now);
}

}  // namespace baton
