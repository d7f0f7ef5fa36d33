#include "router/router_dispatch.h"

#include <algorithm>
#include <iterator>

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

// A request waits for KV that another one computes if that is expected to take at most so many
// times what it would take alone.
constexpr double kWorthFollowing = 1.5;
// A request that follows waits for so many times what was expected, within bounds: whoever gives up
// computes beside the other one and delays it further, so this is for leaders that hang.
constexpr double kBorneFollowing = 4;
constexpr absl::Duration kMinFollowing = absl::Seconds(2), kMaxFollowing = absl::Seconds(30);

// A ticket is good for so long until its first OPEN: longer than a prompt waits for its turn. Then
// the times of its handoff's states count.
constexpr absl::Duration kTicketLife = absl::Hours(1);

// A relay goes on with another worker before a token has come, and once per request: who loses
// workers again and again is better off alone.
bool IsMendable(const Request& request) {
  return request.attempt()->plan().is_relay() && !request.mended && !request.attempt()->spoke();
}

// The command for a worker's share of the prompt: `slices`, in order.
PrefillRequest PrefillPart(const Request& request, std::vector<SliceSpec> slices) {
  const GenerateRequest& wanted = request.wanted();
  PrefillRequest out{
      .request_id = request.id(),
      .epoch = request.epoch(),
      .tokens = request.Tokens(),
      .want_digests = wanted.want_digests,
      .prompt_logprobs = wanted.prompt_logprobs,
      .cache_salt = wanted.cache_salt,
      .max_total_tokens = static_cast<int32_t>(wanted.prompt.size()) + wanted.max_tokens,
      .slices = std::move(slices)};
  const int32_t end = out.slices.back().end;
  out.wants_first_token = end == static_cast<int32_t>(out.tokens.size());
  out.tokens.resize(static_cast<size_t>(end));
  if (!out.wants_first_token) return out;  // it draws no token
  out.n_generated = static_cast<int32_t>(request.produced().size());
  out.sampling = wanted.sampling;
  out.stop_tokens = wanted.stop_tokens;
  return out;
}

DecodeRequest DecodePart(const Request& request, const TicketId& ticket_id) {
  const GenerateRequest& wanted = request.wanted();
  return {.request_id = request.id(),
          .epoch = request.epoch(),
          .ticket_id = ticket_id,
          .tokens = request.Tokens(),
          .n_generated = static_cast<int32_t>(request.produced().size()),
          .max_tokens = request.attempt()->spec().max_tokens,
          .cache_salt = wanted.cache_salt,
          .is_local = request.attempt()->plan().prefill() == request.attempt()->plan().decode,
          .sampling = wanted.sampling,
          .stop_tokens = wanted.stop_tokens,
          .want_digests = wanted.want_digests};
}

}  // namespace

void RouterDispatch::Try(Request& request, absl::Time now) {
  const GenerateRequest& wanted = request.wanted();
  request.pages.clear();
  request.cached.clear();
  request.tails.clear();
  request.follows_until.reset();
  if (ReusesKv(request)) {
    const std::vector<int32_t> tokens = request.Tokens();
    request.pages = cluster_.prefixes.NamesOf(tokens, std::ssize(wanted.prompt) + wanted.max_tokens,
                                              wanted.cache_salt);
    request.cached = cluster_.prefixes.Find(request.pages);
    request.tails =
        cluster_.tails.Find(PageName::Beginning(wanted.cache_salt, false), request.pages, tokens,
                            request.cached, cluster_.members.page_tokens());
  }
  const std::optional<Plan> plan =
      cluster_.predictor.Choose(request.NextSpec(), request.failures.avoid(), now);
  if (!plan) return;  // the request waits for a worker or its alarm
  if (!Follow(request, *plan, now)) DispatchTo(request, *plan, now);
}

// Waits for another request that computes at least half of what `plan` would have to compute, if
// that one is expected to be soon enough.
bool RouterDispatch::Follow(Request& request, const Plan& plan, absl::Time now) {
  if (!request.may_follow || !ReusesKv(request)) return false;
  const PromptsUnderWay::Leader leader = cluster_.under_way.Find(request.pages);
  const AttemptSpec spec = request.NextSpec();
  const int32_t to_compute = spec.PrefillTokensAt(plan.prefill());
  const int32_t others = static_cast<int32_t>(leader.n_pages) * cluster_.members.page_tokens();
  const int32_t saved = others - (spec.n_prompt - to_compute);
  if (saved <= 0 || 2 * saved < to_compute) return false;
  const absl::Duration alone = cluster_.predictor.Expected(plan, spec);
  const absl::Duration wait = leader.done_at - now;
  if (wait > kWorthFollowing * alone) return false;
  request.follows_until = now + std::clamp(kBorneFollowing * wait, kMinFollowing, kMaxFollowing);
  cluster_.under_way.Follow(request.id(), leader.id);
  ++totals_.followed;
  return true;
}

void RouterDispatch::DispatchTo(Request& request, const Plan& plan, absl::Time now) {
  Attempt::Order order{.epoch = request.epoch() + 1, .plan = plan, .spec = request.NextSpec()};
  if (order.epoch == 1) {
    PrefillWork work;
    for (const Incarnation worker : plan.PrefillWorkers())
      work += plan.PrefillWorkAt(worker, order.spec);
    cluster_.sizing.OnRequest(static_cast<double>(work.tokens), work.pairs, now);
  }
  cluster_.ledger.Reserve(request.id(), plan, order.spec, cluster_.members.page_tokens(), now);
  for (const Incarnation worker : plan.Workers())
    order.names[worker] = cluster_.members.At(worker).about.name;
  order.expected = cluster_.predictor.Expected(plan, order.spec);
  const std::vector<SliceSpec> slices = MintSlices(request.id(), &order, now);
  for (const auto& [ticket, hop] : order.handoffs)
    cluster_.broken_links.OnUsed(hop.first, hop.second, now);
  if (ReusesKv(request))
    cluster_.under_way.Enter(request.id(), request.pages, now + order.expected);
  request.Dispatch(std::move(order), now);
  SendAttempt(request, slices);
}

// The worker of the prompt has its KV, and the one that decoded has that of all tokens but the
// last. What they have lost of it since, or of another RoPE range, makes a prediction wrong and no
// more.
// The names of its pages were made when it was dispatched, and only new ones are made here: texts
// are long, and all requests wait meanwhile.
void RouterDispatch::NoteTails(Request& request) {
  if (!ReusesKv(request) || !request.dispatched() || request.produced().empty()) return;
  const GenerateRequest& wanted = request.wanted();
  const Plan& plan = request.attempt()->plan();
  const auto page = static_cast<size_t>(cluster_.members.page_tokens());
  const size_t n_tokens = wanted.prompt.size() + request.produced().size();
  std::vector<PageName>& names = request.pages;
  if (page == 0 || names.size() * page > n_tokens) return;
  cluster_.prefixes.Extend(request.Tokens(names.size() * page, n_tokens),
                           std::ssize(wanted.prompt) + wanted.max_tokens, wanted.cache_salt,
                           &names);
  const auto enter = [&](Incarnation worker, size_t end) {
    if (cluster_.members.Find(worker) == nullptr) return;  // has left since
    cluster_.tails.Enter(worker, PageName::Beginning(wanted.cache_salt, false),
                         request.Tokens(0, std::min(page, end)));
    if (const size_t whole = std::min(names.size(), end / page); whole > 0)
      cluster_.tails.Enter(worker, names[whole - 1],
                           request.Tokens(whole * page, std::min((whole + 1) * page, end)));
  };
  if (plan.prefill() != plan.decode) enter(plan.prefill(), wanted.prompt.size());
  if (plan.decode != 0) enter(plan.decode, n_tokens - 1);
}

// A promise of kv_pages at `sink`; promise_pages is 0 for a rank, which names pages it has.
Ticket RouterDispatch::MintPromise(RequestId request, Epoch epoch, Incarnation sink,
                                   int32_t kv_pages, int32_t promise_pages, absl::Time now) {
  const int64_t life_us = absl::ToInt64Microseconds(kTicketLife);
  return {.epoch = epoch,
          .request_id = request,
          .sink = sink,
          .promise = {.high = random_(), .low = random_()},
          .kv_pages = kv_pages,
          .promise_pages = promise_pages,
          .expires_us = sink == 0 ? 0 : cluster_.members.ClockOf(sink, now) + life_us};
}

// The prompt's pages [first_page, end_page) for a promise that begins at page `begin` of the
// prompt. The ticket of the promise's last range has its id.
KvOutput RouterDispatch::MintOutput(const Ticket& promise, Incarnation source, int32_t begin,
                                    int32_t first_page, int32_t end_page) {
  Ticket ticket = promise;
  ticket.source = source;
  ticket.first_page = first_page - begin;
  ticket.n_pages = end_page - first_page;
  ticket.id = promise.promise;
  if (!ticket.is_last()) ticket.id = {.high = random_(), .low = random_()};
  SignTicket(key_, ticket);
  return {.ticket = ticket,
          .peer = cluster_.members.Find(promise.sink)->transfer,
          .first_page = first_page};
}

// Makes the plan's slices, and notes their handoffs in the order. All but the last one's KV goes to
// the next slice's worker, as far as that one lacks it; each slice's own KV, or all with the last
// one, to the decode worker.
std::vector<SliceSpec> RouterDispatch::MintSlices(RequestId request, Attempt::Order* order,
                                                  absl::Time now) {
  const Plan& plan = order->plan;
  const AttemptSpec& spec = order->spec;
  const std::vector<int32_t> hops = plan.HopTokens();
  const int32_t page_tokens = cluster_.members.Find(plan.prefill())->page_tokens;
  Ticket decode = MintPromise(request, order->epoch, plan.decode, spec.PromptPages(page_tokens),
                              spec.PromisePages(page_tokens), now);
  decode.held_pages = (spec.n_prompt - spec.PrefillTokensAt(plan.decode)) / page_tokens;
  std::vector<SliceSpec> slices(plan.slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    SliceSpec& slice = slices[i];
    const Incarnation worker = plan.slices[i].worker;
    slice.begin = plan.BeginOf(i);
    slice.end = plan.slices[i].end;
    const bool is_last = i + 1 == slices.size();
    const int32_t own_page = slice.begin / page_tokens;
    const int32_t end_page = is_last ? decode.kv_pages : slice.end / page_tokens;
    if (!is_last && plan.slices[i + 1].worker != worker) {
      const int32_t n_pages = hops[i] / page_tokens, first_page = end_page - n_pages;
      const Ticket promise =
          MintPromise(request, order->epoch, plan.slices[i + 1].worker, n_pages, 0, now);
      slice.outputs.push_back(MintOutput(promise, worker, first_page, first_page, end_page));
      slices[i + 1].inflow = promise.promise;
    }
    if (plan.decode != 0 && (is_last || plan.push == RelayPush::kAll)) {
      const int32_t first_page = plan.push == RelayPush::kAll ? own_page : 0;
      slice.outputs.push_back(MintOutput(decode, worker, 0, first_page, end_page));
    }
    for (const KvOutput& output : slice.outputs)
      order->handoffs[output.ticket.id] = {worker, output.peer.incarnation};
  }
  return slices;
}

// Sends to receivers before senders, so that a receiver knows its part before OPEN comes. If the
// wires reorder the messages, or the ranks form a ring, the decode worker needs no more than the
// ticket, and a rank answers OPEN with NO_ROOM until its own message is there.
void RouterDispatch::SendAttempt(const Request& request, std::span<const SliceSpec> slices) {
  const Plan& plan = request.attempt()->plan();
  if (plan.decode != 0)
    Send(plan.decode, DecodePart(request, slices.back().outputs.front().ticket.promise));
  if (!plan.HeadWorkers().empty()) {
    totals_.relays_in_rounds += plan.n_rounds() > 1;
    ++totals_.relays;
    ++totals_.relays_by_push[static_cast<size_t>(plan.push)];
  }
  std::vector<Incarnation> workers = plan.PrefillWorkers();
  std::reverse(workers.begin(), workers.end());  // each is the receiver of the one after it
  for (const Incarnation worker : workers) {
    std::vector<SliceSpec> own;
    for (size_t i = 0; i < slices.size(); ++i)
      if (plan.slices[i].worker == worker) own.push_back(slices[i]);
    PrefillRequest part = PrefillPart(request, std::move(own));
    part.pages_at_once = plan.TakesPagesAtOnce(worker);
    Send(worker, std::move(part));
  }
}

void RouterDispatch::TakeBack(const Request& request, const std::optional<Plan>& next) {
  const auto goes_on = [&](Incarnation worker) { return next && next->Computes(worker); };
  for (const Incarnation worker : request.attempt()->OpenWorkers()) {
    if (goes_on(worker)) continue;  // the next attempt ends this one there
    if (cluster_.members.Find(worker) == nullptr) continue;
    Send(worker, CancelRequest{.request_id = request.id(), .epoch = request.epoch()});
  }
  cluster_.ledger.Release(request.id(), request.attempt()->plan());
  cluster_.under_way.Leave(request.id());
}

absl::Status RouterDispatch::Retry(Request& request, const AttemptFailure& failure,
                                   absl::Time now) {
  ++totals_.failovers[static_cast<size_t>(failure.cause)];
  const Attempt& attempt = *request.attempt();
  for (const auto& [source, sink] : attempt.fault().broken_hops()) RecordBroken(source, sink, now);
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
    totals_.replaced_in_rounds += attempt.plan().n_rounds() > 1;
  }
  TakeBack(request, mended);
  request.Recall(request.recompute_reason, failure, now);
  if (mended)
    DispatchTo(request, *mended, now);
  else if (exhausted.ok())
    Try(request, now);
  return exhausted;
}

// A worker whose process ended takes no part in it for long: it is lost, and comes again as
// another.
void RouterDispatch::RecordBroken(Incarnation source, Incarnation sink, absl::Time now) {
  const WorkerAnnounce* const from = cluster_.members.Find(source);
  const WorkerAnnounce* const to = cluster_.members.Find(sink);
  if (from == nullptr || to == nullptr) return;
  if (const auto pause = cluster_.broken_links.OnBroken(source, sink, now))
    LogWarn("a handoff from %s to %s broke though both are here; others are preferred for %.0f s",
            from->name, to->name, absl::ToDoubleSeconds(*pause));
}

void RouterDispatch::Redo(Request& request, absl::Time now) {
  request.recompute_reason = kFailoverCauses;
  Cancel(request);
  request.Recall(request.recompute_reason,
                 {.message = request.attempt()->preempted() ? "its pages went to older requests"
                                                            : "another worker has room for it"},
                 now);
  Try(request, now);
}

void RouterDispatch::LogMend(const Request& request, const Plan& mended,
                             const AttemptFailure& failure) const {
  const Attempt& attempt = *request.attempt();
  const Plan& plan = attempt.plan();
  const Incarnation culprit = attempt.fault().Culprit();
  std::string slices;
  Incarnation stand_in = mended.decode;
  for (size_t slice = 0; slice < plan.slices.size(); ++slice) {
    if (plan.slices[slice].worker != culprit) continue;
    stand_in = mended.slices[slice].worker;
    absl::StrAppend(&slices, slices.empty() ? "" : ",", plan.BeginOf(slice), "-",
                    plan.slices[slice].end);
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
  spec.kept = {{.worker = plan.slices.front().worker, .tokens = plan.slices.front().end}};
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
  if (const std::optional<Attempt::Outcome> outcome = attempt.TakeOutcome();
      outcome && !outcome->found_more)
    cluster_.predictor.OnFirstToken(plan, attempt.spec(), outcome->ratio);
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
  const double stay_seconds =
      absl::ToDoubleSeconds(expected_wait) + cluster_.predictor.OwnPrefillSeconds(plan, spec);
  if (!other || other->decode == plan.decode || other->predicted_seconds >= stay_seconds)
    return false;
  ++request.moves;
  Redo(request, now);
  return true;
}

}  // namespace baton
