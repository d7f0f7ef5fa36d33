#include "server/api/api_front.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/api/guarded_work.h"
#include "server/api/reply_headers.h"
#include "server/api/request_form.h"
#include "server/api/request_spans.h"
#include "server/api/requested_tools.h"
#include "server/api/sse_event.h"
#include "server/api/text_speed.h"
#include "server/tracing/tracer.h"

namespace baton {
namespace {

constexpr int kClientGone = 499;  // as nginx counts it; nobody reads this answer

void SendReply(const ApiCall& call, HttpReply reply, const std::string& cors_origin) {
  call.writer->Reply(call.exchange, Decorated(std::move(reply), call.request, cors_origin));
}

HttpReply RefusalOf(const ApiCall& call, ApiError error) {
  error.request_id = call.request.request_id;
  return call.refusal(error);
}

HttpReply TextReply(const ApiCall& call, ApiFront::TextAnswer answer) {
  if (const auto* error = std::get_if<ApiError>(&answer)) return RefusalOf(call, *error);
  HttpReply reply;
  reply.body = std::get<std::string>(std::move(answer));
  return reply;
}

// Names the model and the numerics: logits and tokens are equal where both are.
std::string SystemFingerprint(const ClusterView& view) {
  if (view.numerics_id.empty()) return "";
  return absl::StrFormat("baton-%016x-%s", view.model_fingerprint, view.numerics_id);
}

ApiError BadGrammar(const ApiRequest& request, const absl::Status& status) {
  const std::string path = GrammarPath(request);
  return InvalidField(path, absl::StrCat(path, ": ", std::string(status.message())));
}

TextCalls::Caller CallerOf(const ApiCall& call) { return {call.exchange, call.request.client}; }

ApiError TooMuchText() {
  return FromClusterStatus(absl::ResourceExhaustedError(
      "Too many long prompts are waiting to be tokenized; try again later."));
}

}  // namespace

ApiFront::ApiFront(EventLoop* loop, const ServedModel* model, Generator* generator, TextPool* pool,
                   MetricsRegistry* registry, std::span<const Route> routes,
                   const ApiFrontOptions& options, const ApiFrontFacts& facts)
    : model_(model),
      generator_(generator),
      pool_(pool),
      registry_(registry),
      routes_(routes),
      options_(options),
      facts_(facts),
      choices_(generator),
      answers_(options_.answers, &choices_),
      metrics_(registry, model->name, model->max_context),
      process_(registry, facts.version),
      guard_(facts.keys, facts.hosts, registry, model->name),
      metrics_page_(loop, kMetricsPause,
                    [this] {
                      process_.Update();
                      metrics_.SetView({generator_->View(), !NotReady(), pool_->load(),
                                        http_->stats(), options_.slo});
                      return registry_->Text();
                    }),
      text_calls_(loop, pool, InlineTextBytes(options.inline_text, *model)),
      long_texts_(&text_calls_, this),
      deadlines_(loop,
                 [this](ExchangeId id) {
                   const auto found = running_.find(id);
                   if (found == running_.end()) return;
                   EndWithError(found->second.get(), found->second->TooLate());
                 }),
      keepalive_timer_(loop) {}

ApiFront::~ApiFront() = default;

void ApiFront::Drain(std::function<void()> drained) {
  draining_ = true;
  generator_->Drain();
  const auto n_open = std::make_shared<int>(other_ == nullptr ? 1 : 2);
  const auto one_drained = [n_open, drained = std::move(drained)] {
    if (--*n_open == 0) drained();
  };
  if (other_ != nullptr) other_->Drain(one_drained);
  http_->Drain(one_drained);
}

// --- calls --------------------------------------------------------------------------------------

std::optional<HttpReply> ApiFront::OnHead(HttpRequest* request) {
  const FoundRoute found = FindRoute(routes_, request->method, request->path);
  auto error = guard_.Admit(found, request);
  if (!error) error = CheckForm(found, *request);
  if (!error) return std::nullopt;
  metrics_.OnRefused(RouteLabel(routes_, request->path), error->status);
  HttpReply reply = EarlyRefusal(*request, *error, options_.cors_origin);
  if (error->status == 405) {
    const std::string methods = absl::StrJoin(found.methods, ", ");
    reply.headers.emplace_back(
        "Allow", absl::StrCat(absl::StrReplaceAll(methods, {{"GET", "GET, HEAD"}}), ", OPTIONS"));
  }
  return reply;
}

void ApiFront::OnRequest(ExchangeId id, HttpRequest request) {
  ApiCall call{.exchange = id,
               .writer = http_,
               .refusal = RefusalAt(request.path),
               .label = RouteLabel(routes_, request.path),
               .request = std::move(request),
               .admitted = true};
  if (call.request.method == "OPTIONS") {
    call.request.request_id = RequestIdText(call.request.request_id);
    Reply(call, Preflight(call.request, options_.cors_origin));
    return;
  }
  OnCall(routes_, std::move(call));  // OnHead refused requests for which there is no row
}

void ApiFront::OnCall(std::span<const Route> routes, ApiCall call) {
  call.request.request_id = RequestIdText(call.request.request_id);
  FoundRoute found = FindRoute(routes, call.request.method, call.request.path);
  BATON_CHECK(found.route != nullptr);
  if (!call.admitted) {
    if (auto error = guard_.Admit(found, &call.request)) {
      Reply(call, RefusalOf(call, *std::move(error)));
      return;
    }
  }
  call.argument = std::move(found.argument);
  found.route->answer(*this, std::move(call));
}

HttpReply ApiFront::OnBadRequest(const HttpRequest& request, int status,
                                 const std::string& message) {
  metrics_.OnRefused(RouteLabel(routes_, request.path), status);
  ApiError error = HttpError(status, message, status == 413 ? "request_too_large" : "");
  if (status == 429) error.type = "rate_limit_error", error.code = "too_many_connections";
  if (status == 429 || status == 503) error.retry_after = absl::Seconds(1);
  return EarlyRefusal(request, std::move(error), options_.cors_origin);
}

void ApiFront::Reply(const ApiCall& call, HttpReply reply) {
  const bool is_refusal = reply.status >= 400 && reply.status < 500;
  if (is_refusal) metrics_.OnRefused(call.label, reply.status);
  SendReply(call, std::move(reply), options_.cors_origin);
}

std::optional<ApiError> ApiFront::NotReady() const {
  if (draining_) return HttpError(503, "The server is shutting down.", "shutting_down");
  const ClusterView view = generator_->View();
  if (!view.draining && view.prefill_workers > 0 && view.decode_workers > 0) return std::nullopt;
  const int present = view.prefill_workers + view.decode_workers;
  std::string message = "Loading model";
  if (view.standing_workers > 0) {
    message = absl::StrCat("The engines of ", view.standing_workers, " workers stand still");
  } else if (facts_.expected_workers > 0) {
    absl::StrAppend(&message, " (", std::min(present, facts_.expected_workers), " of ",
                    facts_.expected_workers, " workers are ready)");
  }
  const bool are_loading = present + view.standing_workers == 0;
  return HttpError(503, message, are_loading ? "model_loading" : "no_workers");
}

std::string ApiFront::LiveText(std::string_view cursor) const {
  LiveView view{.model = model_->name,
                .version = facts_.version,
                .is_ready = !NotReady(),
                .now = MonotonicNow(),
                .date = absl::Now(),
                .cluster = generator_->View(),
                .workers = generator_->Workers()};
  std::vector<const Running*> newest;
  for (const auto& [id, running] : running_)
    if (!running->choices.empty()) newest.push_back(running.get());  // else its text is being read
  std::sort(newest.begin(), newest.end(),
            [](const Running* a, const Running* b) { return a->arrived > b->arrived; });
  if (newest.size() > LiveRecord::kMaxRequests) newest.resize(LiveRecord::kMaxRequests);
  for (const Running* running : newest) {
    const auto open = std::find_if(running->choices.begin(), running->choices.end(),
                                   [](const Running::Choice& choice) { return !choice.ended; });
    if (open != running->choices.end()) view.Add(*running, generator_->Progress(open->id));
  }
  return live_.Text(view, cursor);
}

void ApiFront::AnswerText(ApiCall call, TextWork work) {
  std::string body = std::move(call.request.body);
  const auto shared = std::make_shared<ApiCall>(std::move(call));
  const bool runs = text_calls_.Run(
      CallerOf(*shared), std::move(body),
      [this, work, shared, max_context = model_->MaxContext(generator_->View().max_context)](
          const std::string& text) -> TextCalls::Finish {
        const auto answer = std::make_shared<TextAnswer>();
        const auto problem = GuardedWork([&]() -> std::optional<ApiError> {
          *answer = work(*model_, max_context, text);
          return std::nullopt;
        });
        if (problem) *answer = *problem;
        return [this, shared, answer] { Reply(*shared, TextReply(*shared, std::move(*answer))); };
      });
  if (!runs) Reply(*shared, TextReply(*shared, TooMuchText()));
}

// --- requests for tokens ------------------------------------------------------------------------

void ApiFront::Generate(const GenerationApi& api, ApiCall call) {
  const ExchangeId id = call.exchange;
  std::string body = std::move(call.request.body);
  auto owned = std::make_unique<Running>();
  Running* running = owned.get();
  running->api = &api;
  running->limits = options_.slo;
  running->call = std::move(call);
  running->arrived = MonotonicNow();
  if (facts_.tracer != nullptr) facts_.tracer->Begin(&running->call.request.trace);
  running_.emplace(id, std::move(owned));
  running->SetDeadline(options_.request_timeout);
  deadlines_.Add(id, running->deadline);
  if (draining_) {
    Refuse(running, *NotReady());
    return;
  }
  const int64_t max_context = model_->MaxContext(generator_->View().max_context);
  const bool runs =
      text_calls_.Run(CallerOf(running->call), std::move(body),
                      [this, running, max_context, &api, tenant = running->call.tenant()](
                          const std::string& text) -> TextCalls::Finish {
                        const auto prepared = std::make_shared<PreparedRequest>();
                        prepared->Read(api, *model_, options_.requests, max_context, text, tenant);
                        return [this, running, prepared] { OnPrepared(running, prepared); };
                      });
  if (!runs) Refuse(running, TooMuchText());
}

// The conversation of a response that the request goes on with is found here, where the store is.
// A grammar is compiled before anything is submitted, so that a wrong one is a 400; on the pool,
// for that takes long.
void ApiFront::OnPrepared(Running* running, Prepared prepared) {
  if (prepared->needs_conversation()) {
    std::string conversation;
    if (auto problem = answers_.FindConversation(prepared->request, &conversation)) {
      Refuse(running, *problem);
      return;
    }
    const bool runs = text_calls_.Run(
        CallerOf(running->call), std::move(conversation),
        [this, running, prepared, max_context = model_->MaxContext(generator_->View().max_context)](
            const std::string& whole) -> TextCalls::Finish {
          prepared->GoOn(*model_, max_context, whole);
          return [this, running, prepared] { OnPrepared(running, prepared); };
        });
    if (!runs) Refuse(running, TooMuchText());
    return;
  }
  // All prompts of a request have one grammar.
  const GrammarSpec grammar =
      prepared->error ? GrammarSpec() : prepared->prompts.front().generate.sampling.grammar;
  const bool compiles =
      grammar.kind != GrammarKind::kNone && model_->grammars->Find(grammar) == nullptr;
  if (!compiles) {
    Submit(running, *prepared);
    return;
  }
  size_t bytes = grammar.text.size();
  for (const PreparedPrompt& prompt : prepared->prompts)
    bytes += prompt.generate.prompt.size() * sizeof(int32_t);
  const bool runs = text_calls_.RunOnPool(
      CallerOf(running->call), bytes, [this, running, prepared, grammar]() -> TextCalls::Finish {
        const auto compiled = model_->grammars->Compile(grammar);
        if (!compiled.ok()) prepared->error = BadGrammar(prepared->request, compiled.status());
        return [this, running, prepared] { Submit(running, *prepared); };
      });
  if (!runs) Refuse(running, TooMuchText());
}

void ApiFront::Submit(Running* running, const PreparedRequest& prepared) {
  running->stream = prepared.request.stream;
  running->text_time = MonotonicNow() - running->arrived;
  if (prepared.error) {
    Refuse(running, *prepared.error);
    return;
  }
  const ClusterView view = generator_->View();
  const AnswerAbout about{.id = running->id(),
                          .created = absl::ToUnixSeconds(absl::Now()),
                          .system_fingerprint = SystemFingerprint(view),
                          .text_time = running->text_time,
                          .unique_id = absl::StrFormat("%016x%016x", RandomId(), RandomId()),
                          .tenant = prepared.request.tenant,
                          .store = &answers_.store(),
                          .reasoning_names = options_.reasoning_names};
  auto answer = running->api->answer(*model_, prepared.request, prepared.prompts, about);
  if (const auto error = guard_.AdmitTokens(running->call.request, answer->n_prompt())) {
    Refuse(running, *error);
    return;
  }
  const absl::Status refused = choices_.Submit(running, prepared.prompts, answer->n_choices());
  if (!refused.ok()) {
    const bool none_yet = absl::IsUnavailable(refused) && view.prefill_workers == 0;
    Refuse(running, none_yet ? *NotReady() : FromClusterStatus(refused));
    return;
  }
  AccessGuard::TakeTokens(running->call.request, answer->n_prompt());
  metrics_.OnStarted();
  running->answer = std::move(answer);
  answers_.OnStarted(running);
  running->last_write = MonotonicNow();
  if (running->stream && !keepalive_set_) KeepAlive();
}

void ApiFront::Refuse(Running* running, const ApiError& error) {
  SendReply(running->call, RefusalOf(running->call, error), options_.cors_origin);
  FinishedRequest finished = running->Finished(MonotonicNow());
  finished.http_status = error.status;
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo("request %s  refused %d %s  param %s", running->log_name(), error.status,
            error.code.empty() ? "-" : error.code, error.param.empty() ? "-" : error.param);
  }
  Forget(running, finished);
}

void ApiFront::Send(Running* running, const std::string& events) {
  if (events.empty() || running->is_gone) return;
  if (!running->stream_started) {
    running->stream_started = true;
    HttpReply head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    running->call.writer->StartStream(
        running->call.exchange,
        Decorated(std::move(head), running->call.request, options_.cors_origin));
  }
  running->call.writer->Write(running->call.exchange, events, running->answer->prompt_bytes());
  running->last_write = MonotonicNow();
}

void ApiFront::OnToken(const EmitToken& token) {
  const auto found = choices_.Find(token.request_id);
  if (!found) return;
  const auto [running, index] = *found;
  Running::Choice& choice = running->choices[index];
  if (choice.cancelled || long_texts_.Holds(running, index, token)) return;
  AccessGuard::TakeTokens(running->call.request, 1);
  const absl::Time now = MonotonicNow();
  const bool is_first = !running->ttft;
  if (const auto gap = running->OnToken(index, now)) {
    metrics_.OnNextToken(*gap);
    live_.OnNextToken(*gap, now);
  } else {
    metrics_.OnOtherToken();
    if (is_first) metrics_.OnFirstToken(*running->ttft);
    if (is_first) live_.OnFirstToken(*running->ttft, now);
  }
  Send(running, running->answer->OnToken(index, token));
  if (running->answer->text(index).stopped()) choices_.Cancel(*found);
}

void ApiFront::OnEnd(const EmitEnd& end) {
  const auto found = choices_.Find(end.request_id);
  if (!found) return;
  const auto [running, index] = *found;
  if (long_texts_.Holds(running, end)) return;
  choices_.Forget(end.request_id);
  running->OnChoiceEnd(index, end);
  const bool completed = end.reason == EndReason::kStopToken || end.reason == EndReason::kLength ||
                         running->answer->text(index).stopped() || running->answer->cancelled();
  if (running->is_gone) {
    if (!running->ended()) return;
    if (!running->answer->stored_id().empty()) running->answer->OnChoiceEnd(index, end);
    Complete(running);
  } else if (!completed) {
    EndWithError(running, FromClusterStatus(end.status.ok() ? absl::DeadlineExceededError(
                                                                  "The request was cancelled.")
                                                            : end.status));
  } else {
    Send(running, running->answer->OnChoiceEnd(index, end));
    if (running->ended()) Complete(running);
  }
}

void ApiFront::Complete(Running* running) {
  auto finish = [this, running,
                 finished = running->Finished(MonotonicNow())](std::string rest) mutable {
    running->answer->Store();
    if (running->is_gone) {
      finished.http_status = kClientGone;
      if (running->answer->cancelled()) finished.finish = "abort";
    } else if (running->stream) {
      Send(running, rest);
      running->call.writer->EndStream(running->call.exchange);
    } else {
      SendReply(running->call, TextReply(running->call, std::move(rest)), options_.cors_origin);
    }
    Forget(running, finished);
  };
  if (running->is_gone && running->answer->stored_id().empty()) return finish("");  // unread
  long_texts_.WriteEnd(running, finish);
}

void ApiFront::EndWithError(Running* running, const ApiError& error) {
  if (running->choices.empty()) {  // its text is not ready
    text_calls_.OnGone(running->call.exchange);
    Refuse(running, error);
    return;
  }
  if (running->writing == Running::Writing::kEnd) return;  // it has ended
  long_texts_.Drop(running, /*retold=*/false);
  LogWarn("request %s failed: %s", running->log_name(), error.message);
  choices_.CancelAll(running, /*forget=*/true);
  long_texts_.WriteError(running, error, [this, running, error](const std::string& rest) {
    running->answer->Store();
    FinishedRequest finished = running->Failed(error.status, MonotonicNow());
    if (running->is_gone) {
      finished.http_status = kClientGone;
    } else if (running->stream_started) {
      Send(running, rest);
      running->call.writer->FailStream(running->call.exchange, RefusalOf(running->call, error));
    } else {
      SendReply(running->call, RefusalOf(running->call, error), options_.cors_origin);
    }
    Forget(running, finished);
  });
}

void ApiFront::OnGone(ExchangeId id) {
  const auto found = running_.find(id);
  if (found == running_.end()) {
    text_calls_.OnGone(id);
    return;
  }
  Running* running = found->second.get();
  if (running->choices.empty()) {
    text_calls_.OnGone(id);
    FinishedRequest finished = running->Finished(MonotonicNow());
    finished.http_status = kClientGone;
    Forget(running, finished);
    return;
  }
  running->is_gone = true;
  gone_.emplace(id, std::move(found->second));
  running_.erase(found);
  if (running->writing == Running::Writing::kEnd) return;  // it has ended; what follows comes
  running->answer->Cancel();
  choices_.CancelAll(running, /*forget=*/false);
  long_texts_.Drop(running, /*retold=*/true);
}

void ApiFront::Forget(Running* running, const FinishedRequest& finished) {
  answers_.OnForgotten(*running);
  deadlines_.Remove(running->call.exchange, running->deadline);
  metrics_.OnFinished(finished);
  if (!finished.finish.empty()) live_.OnFinished(*running, finished);
  if (!finished.finish.empty()) running->Log(finished);
  if (running->is_traced())
    facts_.tracer->Send(SpansOf(*running, finished, model_->name, MonotonicNow(), absl::Now()));
  const ExchangeId id = running->call.exchange;
  if (running->is_gone) {
    gone_.erase(id);
  } else {
    running_.erase(id);
  }
}

// A sign of life into streams that were silent for long, and the next look at them.
void ApiFront::KeepAlive() {
  const absl::Time now = MonotonicNow();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, running] : running_) {
    const std::string keep_alive(running->api->keep_alive);
    if (!running->stream || running->choices.empty() || keep_alive.empty()) continue;
    if (now - running->last_write >= options_.sse_keepalive) Send(running.get(), keep_alive);
    next = std::min(next, running->last_write + options_.sse_keepalive);
  }
  keepalive_set_ = next != absl::InfiniteFuture();
  if (keepalive_set_) keepalive_timer_.Set(next, [this] { KeepAlive(); });
}

}  // namespace baton
