#include "tests/sim/clients.h"
#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/violation.h"
#include "tests/support/drawn_sampling.h"
#include "tests/support/hash_grammar.h"
#include "tests/support/sequential_run.h"

namespace baton::sim {

void ClientCounts::Add(const ClientCounts& other) {
  submitted += other.submitted;
  complete += other.complete;
  cancelled += other.cancelled;
  late += other.late;
  failed += other.failed;
  attempts += other.attempts;
  tokens += other.tokens;
  lost += other.lost;
}

Clients::Clients(const Swarm& swarm, Agenda* agenda, SimRandom* random)
    : swarm_(swarm),
      agenda_(agenda),
      random_(random),
      turns_random_(swarm.seed ^ 0x7475726e),
      reference_(swarm.page_tokens, swarm.n_layers, swarm.windows,
                 LongropeFrom(kShortRangeTokens)) {
  auto pool = KvPool::Create(reference_.kv_layout(), swarm.largest_request_pages() + 1);
  BATON_CHECK(pool.ok());
  reference_pool_ = *std::move(pool);
}

Clients::~Clients() = default;

GenerateRequest Clients::NextOfScript() const {
  const ScriptedRequest& next = swarm_.script[requests_.size()];
  GenerateRequest request;
  request.prompt = next.prompt;
  request.max_tokens = next.max_tokens;
  request.sampling.temperature = 0;
  return request;
}

int64_t Clients::NextArrivalUs() {
  if (swarm_.script.empty())
    return agenda_->now_us() + random_->Between(0, 2 * swarm_.arrival_gap_us);
  const auto next = requests_.size();
  return requests_.front()->arrived_us + swarm_.script[next].arrives_us -
         swarm_.script.front().arrives_us;
}

// One that the other parameters leave tokens of. A third end by themselves, and a few break.
void Clients::DrawGrammar(int max_tokens, SamplingParams* sampling) {
  sampling->grammar = {GrammarKind::kRegex, absl::StrFormat("%x", random_->Next())};
  if (random_->Percent(50)) sampling->presence_penalty = 1;
  if (random_->Percent(20)) sampling->min_tokens = static_cast<int32_t>(random_->Below(10));
  const int64_t n = random_->Between(0, max_tokens);
  if (random_->Percent(30))
    absl::StrAppend(&sampling->grammar.text, " ends ", n);
  else if (random_->Percent(10))
    absl::StrAppend(&sampling->grammar.text, " breaks ", n);
}

GenerateRequest Clients::Draw() {
  if (!swarm_.script.empty()) return NextOfScript();
  GenerateRequest request;
  const bool among_long = swarm_.long_request < 0;
  const bool is_long = static_cast<int>(requests_.size()) == swarm_.long_request;
  const auto up_to = [&](int max, int max_of_short) {
    return is_long ? max : random_->Between(1, among_long ? max : max_of_short);
  };
  constexpr int kShortPrompt = 4, kShortTokens = 2;
  const int64_t n = up_to(swarm_.max_prompt, kShortPrompt);
  for (int64_t i = 0; i < n; ++i)
    request.prompt.push_back(static_cast<int32_t>(random_->Below(HashBackend::kVocab)));
  request.max_tokens = static_cast<int32_t>(up_to(swarm_.max_tokens, kShortTokens));
  request.sampling.temperature = random_->Percent(70) ? 0.0f : 1.0f;
  request.sampling.seed = random_->Next();
  if (request.sampling.seed % 2 == 0)
    request.sampling = DrawSampling(request.sampling, HashBackend::kVocab);
  else if (!is_long && random_->Percent(2 * swarm_.grammar_percent))
    DrawGrammar(request.max_tokens, &request.sampling);
  if (random_->Percent(swarm_.stop_percent))
    for (int64_t i = random_->Between(1, 4); i > 0; --i)
      request.stop_tokens.push_back(static_cast<int32_t>(random_->Below(HashBackend::kVocab)));
  constexpr uint64_t kScoredEvery = 5;
  if (among_long && request.sampling.seed % kScoredEvery == 0)
    request.prompt_logprobs = static_cast<int32_t>(request.sampling.seed % 4);
  request.want_digests = random_->Percent(swarm_.digest_percent);
  request.cache_salt = request.sampling.seed % 3;
  if (random_->Percent(swarm_.deadline_percent))
    request.timeout = absl::Microseconds(random_->Magnitude(1, 3'000'000));
  if (among_long && turns_random_.Percent(swarm_.turn_percent)) ContinueConversation(&request);
  return request;
}

// Takes the prompt of the request before, like another choice of it; or puts what one of the last
// requests sent and got so far before a little of the drawn prompt, in most cases all of it and
// under the same salt.
void Clients::ContinueConversation(GenerateRequest* request) {
  constexpr uint64_t kLast = 8;
  constexpr int kSameSalt = 90, kWhole = 80, kSamePrompt = 25;
  if (requests_.empty()) return;
  if (turns_random_.Percent(kSamePrompt)) {
    request->prompt = requests_.back()->wanted.prompt;
    request->cache_salt = requests_.back()->wanted.cache_salt;
    return;
  }
  const size_t back = turns_random_.Below(std::min(requests_.size(), kLast));
  const Request& earlier = *requests_[requests_.size() - 1 - back];
  std::vector<int32_t> prompt = earlier.wanted.prompt;
  prompt.insert(prompt.end(), earlier.tokens.begin(),
                earlier.tokens.begin() + static_cast<std::ptrdiff_t>(earlier.n_got));
  size_t n = std::min(prompt.size(), static_cast<size_t>(swarm_.max_prompt - 1));
  if (!turns_random_.Percent(kWhole)) n = turns_random_.Below(n + 1);
  prompt.resize(n);
  const size_t n_new = std::min({request->prompt.size(), swarm_.max_prompt - n,
                                 static_cast<size_t>(turns_random_.Magnitude(1, 8))});
  prompt.insert(prompt.end(), request->prompt.begin(),
                request->prompt.begin() + static_cast<std::ptrdiff_t>(n_new));
  request->prompt = std::move(prompt);
  if (turns_random_.Percent(kSameSalt)) request->cache_salt = earlier.wanted.cache_salt;
}

void Clients::Expect(Request* request) {
  const GenerateRequest& wanted = request->wanted;
  const SequentialTokens expected = SequentialRun(
      &reference_, reference_pool_.get(), wanted.prompt, wanted.max_tokens, wanted.sampling,
      wanted.stop_tokens, HashGrammarOf(wanted.sampling.grammar, HashBackend::kVocab));
  request->breaks = !expected.status.ok();
  request->tokens = expected.tokens;
  request->digests = expected.digests;
  request->logprobs = expected.logprobs;
  request->beside = expected.beside;
  if (wanted.prompt_logprobs >= 0)
    request->scores = SequentialScores(&reference_, wanted.prompt, wanted.prompt_logprobs,
                                       wanted.max_tokens, wanted.sampling.vocab_end);
}

void Clients::Arrive(const Submit& submit) {
  if (all_submitted()) return;
  GenerateRequest wanted = turned_away_ != nullptr ? std::move(*turned_away_) : Draw();
  turned_away_.reset();
  // The request is registered before any of its events can come.
  auto request = std::make_unique<Request>();
  request->wanted = wanted;
  Expect(request.get());
  const absl::StatusOr<RequestId> id = submit(wanted);
  if (!id.ok()) {
    Require(id.status().code() == absl::StatusCode::kUnavailable ||
                id.status().code() == absl::StatusCode::kResourceExhausted,
            "a request that fits was refused: %s", id.status().ToString());
    turned_away_ = std::make_unique<GenerateRequest>(std::move(wanted));
    agenda_->Add(agenda_->now_us() + random_->Between(1'000, 50'000), What::kArrival);
    return;
  }
  request->id = *id;
  request->arrived_us = agenda_->now_us();
  if (wanted.timeout != absl::InfiniteDuration())
    request->deadline_us = agenda_->now_us() + absl::ToInt64Microseconds(wanted.timeout);
  const auto index = static_cast<int>(requests_.size());
  if (random_->Percent(swarm_.cancel_percent)) {
    if (random_->Percent(50))
      request->cancel_after = static_cast<int>(random_->Between(0, wanted.max_tokens));
    else
      agenda_->Add(agenda_->now_us() + random_->Magnitude(1, 2'000'000), What::kCancel, index);
  }
  index_[*id] = index;
  requests_.push_back(std::move(request));
  ++n_running_;
  ++counts_.submitted;
  if (!all_submitted()) agenda_->Add(NextArrivalUs(), What::kArrival);
}

Clients::Request& Clients::Find(RequestId id) {
  const auto it = index_.find(id);
  Require(it != index_.end(), "something came for request %x that was never submitted", id);
  return *requests_[static_cast<size_t>(it->second)];
}

void Clients::OnToken(const EmitToken& token) {
  Request& request = Find(token.request_id);
  const auto n = static_cast<int>(request.n_got);
  Require(!request.ended, "request %x got token %d after its end", request.id, token.index);
  Require(token.index == n, "request %x got token %d, expected %d next", request.id, token.index,
          n);
  Require(request.n_got < request.tokens.size(), "request %x got more than its %d tokens",
          request.id, request.tokens.size());
  Require(token.token == request.tokens[request.n_got],
          "request %x got a wrong token at %d: %d instead of %d", request.id, n, token.token,
          request.tokens[request.n_got]);
  Require(!request.wanted.want_digests || token.digest == request.digests[request.n_got],
          "request %x got a wrong digest at %d", request.id, n);
  Require(token.logprob == request.logprobs[request.n_got] &&
              token.logprobs == request.beside[request.n_got],
          "request %x got a wrong logprob at %d", request.id, n);
  Require(token.prompt_logprobs == (n == 0 ? request.scores : std::vector<PromptLogprob>()),
          "request %x got wrong log-probabilities of its prompt at %d", request.id, n);
  ++request.n_got;
  ++counts_.tokens;
  request.last_token_us = agenda_->now_us();
  if (n == 0) request.first_token_us = agenda_->now_us();
  if (n == 0 && swarm_.long_request >= 0) CheckOvertaking(request);
  agenda_->Trace("client %x: token %d is %d", request.id, token.index, token.token);
  if (static_cast<int>(request.n_got) == request.cancel_after)
    agenda_->Add(agenda_->now_us(), What::kCancel, index_.at(request.id));
}

// Checks the bound of docs/SCHEDULING.md for the one long request of a flood.
void Clients::CheckOvertaking(const Request& request) {
  const auto the_long = static_cast<size_t>(swarm_.long_request);
  if (index_.at(request.id) <= swarm_.long_request || requests_[the_long]->n_got > 0) return;
  overtaking_ += static_cast<int64_t>(request.wanted.prompt.size());
  Require(overtaking_ <= swarm_.max_overtaking,
          "the long request waits: %d tokens of prompts that came later were computed",
          overtaking_);
}

void Clients::OnRouterLost(RouterId router) {
  for (const auto& request : requests_) {
    if (request->ended || RouterOf(request->id) != router) continue;
    request->ended = true;
    --n_running_;
    ++counts_.lost;
  }
}

void Clients::OnEnd(const EmitEnd& end) {
  Request& request = Find(end.request_id);
  Require(!request.ended, "request %x ended twice", request.id);
  request.ended = true;
  --n_running_;
  counts_.attempts += static_cast<uint64_t>(end.timeline.attempts);
  agenda_->Trace("client %x: end, reason %d, %s", request.id, static_cast<int>(end.reason),
                 end.status.ToString());
  NoteForetold(end.timeline, &request);
  const bool whole = request.n_got == request.tokens.size();
  switch (end.reason) {
    case EndReason::kLength:
    case EndReason::kStopToken: {
      Require(!request.breaks, "request %x ended, but its grammar should have broken", request.id);
      const std::vector<int32_t>& stops = request.wanted.stop_tokens;
      const bool stopped =
          std::find(stops.begin(), stops.end(), request.tokens.back()) != stops.end();
      Require(whole, "request %x ended after %d of %d tokens", request.id, request.n_got,
              request.tokens.size());
      Require(stopped == (end.reason == EndReason::kStopToken),
              "request %x ended with the wrong reason", request.id);
      ++counts_.complete;
      return;
    }
    case EndReason::kCancelled:
      Require(request.cancelled, "request %x ended as cancelled, but no client cancelled it",
              request.id);
      ++counts_.cancelled;
      return;
    case EndReason::kPreempted:
      Require(false, "request %x was told of a preemption", request.id);
      return;
    case EndReason::kFailed:
      if (agenda_->now_us() >= request.deadline_us) {
        ++counts_.late;
        return;
      }
      if (request.breaks && whole && absl::IsInvalidArgument(end.status)) {
        ++counts_.complete;
        return;
      }
      Require(!swarm_.must_complete, "request %x failed: %s", request.id, end.status.ToString());
      // Aborted: 8 workers of the request in a row were lost.
      Require(end.status.code() == absl::StatusCode::kUnavailable ||
                  end.status.code() == absl::StatusCode::kAborted,
              "request %x failed in an unexpected way: %s", request.id, end.status.ToString());
      ++counts_.failed;
      return;
  }
}

void Clients::NoteForetold(const Timeline& timeline, Request* request) {
  if (timeline.attempts > 1 || timeline.took == absl::ZeroDuration()) return;
  const auto gaps = static_cast<double>(request->n_got) - 1;
  const auto gap_us = static_cast<double>(request->last_token_us - request->first_token_us);
  request->foretold = {.predicted = absl::ToDoubleSeconds(timeline.predicted),
                       .took = absl::ToDoubleSeconds(timeline.took),
                       .predicted_gap = absl::ToDoubleSeconds(timeline.predicted_gap),
                       .gap = gaps > 0 ? gap_us / gaps / 1e6 : 0,
                       .predicted_queue = absl::ToDoubleSeconds(timeline.predicted_queue),
                       .queue = absl::ToDoubleSeconds(timeline.prefill_queue),
                       .compute = absl::ToDoubleSeconds(timeline.prefill),
                       .reused_tokens = timeline.reused_tokens,
                       .prefill_worker = timeline.prefill_worker,
                       .decode_worker = timeline.decode_worker};
}

std::vector<Foretold> Clients::Predictions() const {
  std::vector<Foretold> predictions;
  for (const auto& request : requests_)
    if (request->foretold) predictions.push_back(*request->foretold);
  return predictions;
}

std::vector<double> Clients::TimesToFirstToken() const {
  std::vector<double> seconds;
  for (const auto& request : requests_)
    if (request->first_token_us > 0)
      seconds.push_back(static_cast<double>(request->first_token_us - request->arrived_us) / 1e6);
  return seconds;
}

RequestId Clients::IdToCancel(int request) { return requests_[static_cast<size_t>(request)]->id; }

RequestId Clients::AnyRunning() {
  std::vector<RequestId> running;
  for (const auto& request : requests_)
    if (!request->ended) running.push_back(request->id);
  return running.empty() ? 0 : running[random_->Below(running.size())];
}

void Clients::NoteCancelled(RequestId id) { Find(id).cancelled = true; }

std::string Clients::DescribeRunning() const {
  std::string out;
  for (const auto& request : requests_)
    if (!request->ended)
      out += absl::StrFormat("\n  request %x: prompt %d, %d of %d tokens", request->id,
                             request->wanted.prompt.size(), request->n_got, request->tokens.size());
  return out;
}

}  // namespace baton::sim
