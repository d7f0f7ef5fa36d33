#include "router/router_dispatch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"

namespace baton {
namespace {

// Moves to a worker with room are no failures, but each throws away a place in a queue.
constexpr int kMaxMoves = 4;

// A relay may be late by so many times what one worker alone would take. Queues make relays late
// that one worker would not make sooner: a trace at saturation wants more than 2 (docs/PLANNER.md).
constexpr double kBorneLateness = 4;

// A relay goes on with another worker before a token has come, and once per request: who loses
// workers again and again is better off alone.
bool IsMendable(const Request& request) {
  return request.attempt()->plan().is_relay() && !request.mended && !request.attempt()->spoke();
}

// The command for a prefill part that hands its KV over with `ticket`, to `sink`.
PrefillRequest PrefillPart(const Request& request, const Ticket& ticket, const TransferPeer& sink,
                           const Inflow& inflow) {
  const GenerateRequest& wanted = request.wanted();
  const std::vector<int32_t>& produced = request.produced();
  PrefillRequest out{
      .request_id = request.id(),
      .epoch = request.epoch(),
      .ticket = ticket,
      .sink = sink,
      .tokens = wanted.prompt,
      .n_generated = static_cast<int32_t>(produced.size()),
      .sampling = wanted.sampling,
      .stop_tokens = wanted.stop_tokens,
      .want_digests = wanted.want_digests,
      .prompt_logprobs = wanted.prompt_logprobs,
      .cache_salt = wanted.cache_salt,
      .max_total_tokens = static_cast<int32_t>(wanted.prompt.size()) + wanted.max_tokens,
      .inflow = inflow};
  out.tokens.insert(out.tokens.end(), produced.begin(), produced.end());
  return out;
}

// The command for the head that computes `slice` as its last one. A head draws no token.
PrefillRequest HeadPart(const Request& request, const RelayRound& slice) {
  PrefillRequest out = PrefillPart(request, slice.ticket, slice.sink, slice.inflow);
  out.tokens.resize(static_cast<size_t>(slice.tokens));
  out.n_generated = 0;
  out.sampling = {};
  out.stop_tokens.clear();
  out.push = slice.push;
  out.is_head = true;
  return out;
}

DecodeRequest DecodePart(const Request& request, const TicketId& ticket_id) {
  const GenerateRequest& wanted = request.wanted();
  const std::vector<int32_t>& produced = request.produced();
  DecodeRequest out{.request_id = request.id(),
                    .epoch = request.epoch(),
                    .ticket_id = ticket_id,
                    .n_prompt = request.attempt()->spec().n_prompt,
                    .max_tokens = request.attempt()->spec().max_tokens,
                    .n_generated = static_cast<int32_t>(produced.size()),
                    .sampling = wanted.sampling,
                    .stop_tokens = wanted.stop_tokens,
                    .want_digests = wanted.want_digests};
  if (NeedsHistory(out.sampling, out.n_generated)) {
    out.history = wanted.prompt;
    out.history.insert(out.history.end(), produced.begin(), produced.end());
  }
  return out;
}

}  // namespace

void RouterDispatch::Try(Request& request, absl::Time now) {
  request.cached.clear();
  if (!request.is_scored() && !cluster_.prefixes.empty())  // else no KV is reused
    request.cached = cluster_.prefixes.Find(request.Pages(cluster_.members.page_tokens()));
  const std::optional<Plan> plan =
      cluster_.predictor.Choose(request.NextSpec(), request.failures.avoid(), now);
  if (plan) DispatchTo(request, *plan, now);  // else the request waits for a worker or its alarm
}

void RouterDispatch::DispatchTo(Request& request, const Plan& plan, absl::Time now) {
  Attempt::Order order{.plan = plan, .spec = request.NextSpec()};
  cluster_.ledger.Reserve(request.id(), plan, order.spec, cluster_.members.page_tokens(), now);
  for (const Incarnation worker : plan.Workers())
    order.names[worker] = cluster_.members.At(worker).about.name;
  order.expected = cluster_.predictor.Expected(plan, order.spec);
  request.Dispatch(std::move(order), now);
  SendAttempt(request);
}

Ticket RouterDispatch::MintTicket(const Request& request, Incarnation sink, Ticket ticket) {
  ticket.id = {.high = random_(), .low = random_()};
  if (ticket.promise == TicketId{}) {  // a promise of its own; others bring the pages before
    ticket.promise = ticket.id;
    ticket.n_pages = ticket.kv_pages - ticket.first_page;
  }
  ticket.epoch = request.epoch();
  ticket.request_id = request.id();
  ticket.sink = sink;
  SignTicket(key_, ticket);
  return ticket;
}

// Sends to receivers before senders, so that a receiver knows its part before OPEN comes. If the
// wires reorder the messages, or the ranks form a ring, the decode worker needs no more than the
// ticket, and a rank answers OPEN with NO_ROOM until its own message is there.
void RouterDispatch::SendAttempt(const Request& request) {
  const Plan& plan = request.attempt()->plan();
  const AttemptSpec& spec = request.attempt()->spec();
  const WorkerAnnounce& prefill = *cluster_.members.Find(plan.prefill);
  TransferPeer sink;
  Ticket handoff;
  if (plan.decode != 0) {
    sink = cluster_.members.Find(plan.decode)->transfer;
    handoff.kv_pages = spec.PromptPages(prefill.page_tokens);
    handoff.promise_pages = spec.PromisePages(prefill.page_tokens);
  }
  if (plan.push == RelayPush::kAll)
    handoff.first_page = *(plan.SliceEnds(spec).end() - 2) / prefill.page_tokens;
  const Ticket ticket = MintTicket(request, plan.decode, handoff);
  if (plan.decode != 0) Send(plan.decode, DecodePart(request, ticket.id));
  if (!plan.HeadWorkers().empty()) {
    totals_.relays_in_rounds += plan.n_rounds() > 1;
    ++totals_.relays;
    ++totals_.relays_by_push[static_cast<size_t>(plan.push)];
  }
  const std::vector<RelayRound> slices = MintSlices(request, ticket);
  const size_t n_ranks = plan.n_ranks();
  // From the tail to the first head: each is the receiver of the one before it.
  for (size_t rank = n_ranks; rank-- > 0;) {
    if (rank + 1 < n_ranks && plan.StaysThere(rank)) continue;  // it has been sent
    const size_t last = slices.size() - n_ranks + rank;
    PrefillRequest part = rank + 1 == n_ranks
                              ? PrefillPart(request, ticket, sink, slices[last].inflow)
                              : HeadPart(request, slices[last]);
    for (size_t slice = 0; slice < last; ++slice)
      if (plan.WorkerOf(slice) == plan.WorkerOf(last)) part.earlier.push_back(slices[slice]);
    if (part.is_head) part.pages_at_once = plan.TakesPagesAtOnce(rank);
    Send(plan.WorkerOf(rank), std::move(part));
  }
}

// Makes the slices of the plan: each with the inflow before it and, all but the last one, with the
// receiver of its KV. main: the ticket of the handoff to the decode worker.
std::vector<RelayRound> RouterDispatch::MintSlices(const Request& request, const Ticket& main) {
  const Plan& plan = request.attempt()->plan();
  const AttemptSpec& spec = request.attempt()->spec();
  const std::vector<int32_t> ends = plan.SliceEnds(spec), hops = plan.HopTokens(spec);
  const int32_t page_tokens = cluster_.members.Find(plan.prefill)->page_tokens;
  std::vector<RelayRound> slices(ends.size());
  for (size_t slice = 0; slice + 1 < slices.size(); ++slice) {
    RelayRound& round = slices[slice];
    const Incarnation next = plan.WorkerOf(slice + 1);
    round.tokens = ends[slice];
    if (plan.push == RelayPush::kAll)
      round.push = PushOf(request, main, slice == 0 ? 0 : ends[slice - 1], ends[slice]);
    if (plan.StaysThere(slice)) continue;
    round.ticket = MintTicket(request, next, {.kv_pages = hops[slice] / page_tokens});
    round.sink = cluster_.members.Find(next)->transfer;
    slices[slice + 1].inflow = {.ticket_id = round.ticket.id, .tokens = ends[slice]};
  }
  return slices;
}

// A slice, tokens [begin, end), for the promise of the main handoff.
Push RouterDispatch::PushOf(const Request& request, const Ticket& main, int32_t begin,
                            int32_t end) {
  const WorkerAnnounce& decode = *cluster_.members.Find(request.attempt()->plan().decode);
  return {.ticket = MintTicket(request, decode.incarnation,
                               {.promise = main.promise,
                                .kv_pages = main.kv_pages,
                                .promise_pages = main.promise_pages,
                                .first_page = begin / decode.page_tokens,
                                .n_pages = (end - begin) / decode.page_tokens}),
          .sink = decode.transfer};
}

void RouterDispatch::TakeBack(const Request& request, const std::optional<Plan>& next) {
  const auto goes_on = [&](Incarnation worker) {
    return next && (next->prefill == worker || next->IsHead(worker));
  };
  for (const Incarnation worker : request.attempt()->OpenWorkers()) {
    if (goes_on(worker)) continue;  // the next attempt ends this one there
    if (cluster_.members.Find(worker) == nullptr) continue;
    Send(worker, CancelRequest{.request_id = request.id(), .epoch = request.epoch()});
  }
  cluster_.ledger.Release(request.id(), request.attempt()->plan());
}

absl::Status RouterDispatch::Retry(Request& request, const AttemptFailure& failure,
                                   absl::Time now) {
  ++totals_.failovers[static_cast<size_t>(failure.cause)];
  const Attempt& attempt = *request.attempt();
  const absl::Status exhausted = request.failures.Count(failure, attempt.got_on());
  const std::optional<Plan> mended = exhausted.ok() ? Mend(request, now) : std::optional<Plan>();
  if (mended)
    request.failures.Blame(attempt.fault().Culprit());
  else if (failure.cause == FailoverCause::kHandoffFailed)
    request.failures.BlameHandoff(attempt.plan(), attempt.spoke());
  if (attempt.plan().is_relay()) request.may_relay = false;
  request.recompute_reason = static_cast<int>(failure.cause);
  if (mended) {
    LogMend(request, *mended, failure);
    request.mended = true;
    ++(mended->decode == attempt.plan().decode ? totals_.ranks_replaced : totals_.sinks_replaced);
    totals_.replaced_in_rounds += mended->n_rounds() > 1;
  }
  TakeBack(request, mended);
  request.Recall(now);
  if (mended)
    DispatchTo(request, *mended, now);
  else if (exhausted.ok())
    Try(request, now);
  return exhausted;
}

void RouterDispatch::Redo(Request& request, absl::Time now) {
  request.recompute_reason = kFailoverCauses;
  Cancel(request);
  request.Recall(now);
  Try(request, now);
}

void RouterDispatch::LogMend(const Request& request, const Plan& mended,
                             const AttemptFailure& failure) const {
  const Attempt& attempt = *request.attempt();
  const Plan& plan = attempt.plan();
  const Incarnation culprit = attempt.fault().Culprit();
  const std::vector<int32_t> ends = plan.SliceEnds(attempt.spec());
  std::string slices;
  Incarnation stand_in = mended.decode;
  for (size_t slice = 0; slice < ends.size(); ++slice) {
    if (plan.WorkerOf(slice) != culprit) continue;
    stand_in = mended.WorkerOf(slice);
    absl::StrAppend(&slices, slices.empty() ? "" : ",", slice == 0 ? 0 : ends[slice - 1], "-",
                    ends[slice]);
  }
  LogInfo("request %s goes on as a relay after %s  worker %s in place of %s  computes again %s",
          request.wanted().name, failure.message, cluster_.members.Find(stand_in)->name,
          attempt.NameOf(culprit), slices.empty() ? "nothing" : "tokens " + slices);
}

// The ranks that are left have kept their slices, and go on with them if another worker takes the
// lost one's place. What is kept makes nobody wait, and whoever stands out of the order of pages
// does not wait either (docs/RELAY.md). Where no other worker is there, one of the ranks that are
// left is it.
std::optional<Plan> RouterDispatch::Mend(const Request& request, absl::Time now) const {
  const Attempt& attempt = *request.attempt();
  const Incarnation culprit = attempt.fault().Culprit();
  if (!IsMendable(request) || culprit == 0) return std::nullopt;
  for (const Incarnation worker : attempt.plan().Workers())
    if (worker != culprit && cluster_.members.Find(worker) == nullptr) return std::nullopt;
  return cluster_.predictor.Replace(attempt.plan(), culprit, attempt.spec(),
                                    request.failures.avoid(), now);
}

bool RouterDispatch::MayMend(const Request& request, absl::Time now) const {
  if (!IsMendable(request)) return false;
  const Attempt& attempt = *request.attempt();
  const std::vector<Incarnation>& avoid = request.failures.avoid();
  for (const Incarnation worker : attempt.plan().Workers())
    if (cluster_.predictor.Replace(attempt.plan(), worker, attempt.spec(), avoid, now)) return true;
  return false;
}

// Whatever makes the relay late, its links or its other ranks, one worker does without; what it is
// expected to take grows with the queues and with how late other prompts were.
std::optional<AttemptFailure> RouterDispatch::GiveUpLate(Request& request, absl::Time now) const {
  Attempt& attempt = *request.attempt();
  const Plan& plan = attempt.plan();
  AttemptSpec spec = attempt.spec();
  spec.may_relay = false;
  spec.kept = {.worker = plan.heads.front().worker, .tokens = plan.SliceEnds(spec).front()};
  const std::optional<Plan> one = cluster_.predictor.Choose(spec, request.failures.avoid(), now);
  const absl::Duration alone =
      one ? cluster_.predictor.Expected(*one, spec) : absl::InfiniteDuration();
  attempt.BearLateness(kBorneLateness * alone);
  if (!attempt.IsLate(now)) return std::nullopt;
  const std::string message = absl::StrFormat(
      "the relay has no token, which was expected after %.2f s; one worker alone may take %.2f s",
      absl::ToDoubleSeconds(attempt.order().expected), absl::ToDoubleSeconds(alone));
  LogWarn("request %s is dispatched anew: %s", request.wanted().name, message);
  attempt.OnGivenUp(spec.kept, now);
  if (const std::optional<double> ratio = attempt.TakeOutcome())
    cluster_.predictor.OnFirstToken(plan, attempt.spec(), *ratio);
  return AttemptFailure{.cause = FailoverCause::kLate, .message = message};
}

// Prefill has not begun (it waits for the promise, and a relay's head for the pages of its tail),
// so another worker with room loses nothing but the place in the queue; predictions decide whether
// that is sooner.
bool RouterDispatch::Reassign(Request& request, absl::Duration expected_wait, absl::Time now) {
  const Attempt& attempt = *request.attempt();
  if (attempt.spoke() || attempt.a_head_ended() || request.moves >= kMaxMoves) return false;
  const Plan& plan = attempt.plan();
  const AttemptSpec& spec = attempt.spec();
  cluster_.ledger.Release(request.id(), plan);
  const std::optional<Plan> other = cluster_.predictor.Choose(spec, request.failures.avoid(), now);
  cluster_.ledger.Reserve(request.id(), plan, spec, cluster_.members.page_tokens(), now);
  const double stay_ms =
      absl::ToDoubleMilliseconds(expected_wait) + cluster_.predictor.OwnPrefillMs(plan, spec);
  if (!other || other->decode == plan.decode || other->predicted_ms >= stay_ms) return false;
  ++request.moves;
  Redo(request, now);
  return true;
}

}  // namespace baton
