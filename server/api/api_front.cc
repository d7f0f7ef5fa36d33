#include "server/api/api_front.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/api/json_document.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr int kClientGone = 499;  // as nginx counts it; nobody reads this answer

// A client's id may stand in headers and logs only if it is plain.
std::string RequestIdText(const std::string& given) {
  const bool plain = !given.empty() && given.size() <= kMaxRequestId &&
                     std::all_of(given.begin(), given.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '_' || c == ':' || c == '-';
                     });
  return plain ? given : absl::StrFormat("%016x", RandomId());
}

// Returns the beginning of a client's text, for an error that shows it.
std::string Shown(const std::string& text) {
  constexpr size_t kMaxShown = 100;
  if (text.size() <= kMaxShown) return text;
  return absl::StrCat(std::string(BeginningOf(text, kMaxShown)), "...");
}

double Ms(absl::Duration d) { return absl::ToDoubleMilliseconds(d); }

}  // namespace

// One request for tokens, from its body to its end.
struct ApiFront::Running {
  const GenerationApi* api = nullptr;
  ApiCall call;  // the body is gone
  absl::Time arrived, last_token, last_write;
  absl::Duration text_time;
  bool stream = false, stream_started = false, cancelled = false, is_gone = false;
  RequestId request = 0;  // 0: not submitted yet
  TextPool::JobId text_job = 0;
  int64_t max_tokens = 0;
  std::unique_ptr<Answer> answer;

  const std::string& id() const { return call.request.request_id; }
};

// Result of the text work on a body.
struct ApiFront::Prepared {
  ApiRequest request;
  GenerateRequest generate;
  std::optional<ApiError> error;
};

ApiFront::ApiFront(EventLoop* loop, const ServedModel* model, Generator* generator, TextPool* pool,
                   MetricsRegistry* registry, std::span<const Route> routes,
                   const ApiFrontOptions& options, const ApiFrontFacts& facts)
    : loop_(loop),
      model_(model),
      generator_(generator),
      pool_(pool),
      registry_(registry),
      routes_(routes),
      options_(options),
      facts_(facts),
      metrics_(registry, model->name, model->max_context, facts.version),
      metrics_page_(loop, kMetricsPause, [this] { return MetricsText(); }),
      keepalive_timer_(loop) {}

ApiFront::~ApiFront() = default;

void ApiFront::Drain(std::function<void()> drained) {
  draining_ = true;
  generator_->Drain();
  server_->Drain(std::move(drained));
}

// --- calls --------------------------------------------------------------------------------------

std::optional<HttpReply> ApiFront::OnHead(const HttpRequest& request) {
  const auto refuse = [&](int status, std::string message, std::string code = "") {
    HttpRequest named = request;
    named.request_id = RequestIdText(request.request_id);
    return Decorated(ErrorReply(HttpError(status, std::move(message), std::move(code))), named);
  };
  if (request.method == "OPTIONS") return std::nullopt;
  const FoundRoute found = FindRoute(routes_, request.method, request.path);
  if (found.methods.empty()) {
    return refuse(
        404,
        absl::StrCat("There is no endpoint ", Shown(request.method), " ", Shown(request.path),
                     "; paths of the API begin with /v1/, as POST /v1/completions."),
        "not_found");
  }
  if (found.route == nullptr) {
    const std::string methods = absl::StrJoin(found.methods, ", ");
    HttpReply reply =
        refuse(405, absl::StrCat("This path takes ", methods, "."), "method_not_allowed");
    reply.headers.emplace_back(
        "Allow", absl::StrCat(absl::StrReplaceAll(methods, {{"GET", "GET, HEAD"}}), ", OPTIONS"));
    return reply;
  }
  if (found.route->method != "POST") return std::nullopt;
  if (!request.content_encoding.empty() &&
      !absl::EqualsIgnoreCase(request.content_encoding, "identity")) {
    return refuse(415, "Content-Encoding is not supported; send the body as it is.");
  }
  if (!request.content_type.empty() &&
      !absl::StartsWithIgnoreCase(request.content_type, "application/json")) {
    return refuse(415, "Send the body with Content-Type: application/json.");
  }
  return std::nullopt;
}

void ApiFront::OnRequest(ExchangeId id, HttpRequest request) {
  ApiCall call;
  call.exchange = id;
  call.request = std::move(request);
  call.request.request_id = RequestIdText(call.request.request_id);
  if (call.request.method == "OPTIONS") {
    Reply(call, Preflight());
    return;
  }
  FoundRoute found = FindRoute(routes_, call.request.method, call.request.path);
  BATON_CHECK(found.route != nullptr);  // OnHead refused all others
  call.argument = std::move(found.argument);
  found.route->answer(*this, std::move(call));
}

HttpReply ApiFront::OnBadRequest(int status, const std::string& message) {
  return ErrorReply(HttpError(status, message, status == 413 ? "request_too_large" : ""));
}

HttpReply ApiFront::Preflight() const {
  HttpReply reply;
  reply.content_type.clear();
  if (!options_.cors_origin.empty()) {
    reply.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                     {"Access-Control-Allow-Headers", "*"},
                     {"Access-Control-Max-Age", "600"}};
  }
  return reply;
}

void ApiFront::Reply(const ApiCall& call, HttpReply reply) {
  server_->Reply(call.exchange, Decorated(std::move(reply), call.request));
}

HttpReply ApiFront::Decorated(HttpReply reply, const HttpRequest& request) const {
  reply.headers.emplace_back("X-Request-Id", request.request_id);
  if (!options_.cors_origin.empty() && !request.origin.empty()) {
    reply.headers.emplace_back("Access-Control-Allow-Origin", options_.cors_origin);
    reply.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
  }
  return reply;
}

bool ApiFront::IsReady() const {
  const ClusterView view = generator_->View();
  return !draining_ && !view.draining && view.prefill_workers > 0 && view.decode_workers > 0;
}

ApiError ApiFront::NotReady() const {
  if (draining_) return HttpError(503, "The server is shutting down.", "shutting_down");
  const ClusterView view = generator_->View();
  const int present = view.prefill_workers + view.decode_workers;
  std::string message = "Loading model";
  if (facts_.expected_workers > 0) {
    absl::StrAppend(&message, " (", std::min(present, facts_.expected_workers), " of ",
                    facts_.expected_workers, " workers are ready)");
  }
  return HttpError(503, message, present == 0 ? "model_loading" : "no_workers");
}

std::string ApiFront::MetricsText() {
  metrics_.SetView(generator_->View(), IsReady());
  return registry_->Text();
}

// --- requests for tokens ------------------------------------------------------------------------

void ApiFront::Generate(const GenerationApi& api, ApiCall call) {
  const ExchangeId id = call.exchange;
  std::string body = std::move(call.request.body);
  auto owned = std::make_unique<Running>();
  Running* running = owned.get();
  running->api = &api;
  running->call = std::move(call);
  running->arrived = MonotonicNow();
  running_.emplace(id, std::move(owned));
  if (draining_) {
    Refuse(running, NotReady());
    return;
  }
  const bool is_short = static_cast<int64_t>(body.size()) <= options_.inline_text;
  const int64_t max_context = generator_->View().max_context;
  auto prepare = [parse = api.parse, max_context, model = model_, body = std::move(body)] {
    Prepared prepared;
    prepared.error = parse(body, &prepared.request);
    if (!prepared.error && !model->IsCalled(prepared.request.model)) {
      prepared.error = UnknownModel(prepared.request.model);
      prepared.error->param = "model";
    }
    if (!prepared.error) {
      const auto now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
      prepared.error =
          BuildGenerateRequest(*model, prepared.request, max_context, now, &prepared.generate);
    }
    return prepared;
  };
  if (is_short) {
    OnPrepared(id, prepare());
    return;
  }
  running->text_job = pool_->TryRun([this, id, loop = loop_, prepare = std::move(prepare)] {
    auto prepared = std::make_shared<Prepared>(prepare());
    loop->Post([this, id, prepared] { OnPrepared(id, std::move(*prepared)); });
  });
  if (running->text_job == 0) {
    Refuse(running, FromClusterStatus(absl::ResourceExhaustedError(
                        "Too many long prompts are waiting to be tokenized; try again later.")));
  }
}

void ApiFront::OnPrepared(ExchangeId id, Prepared prepared) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;  // gone meanwhile
  Running* running = found->second.get();
  running->stream = prepared.request.stream;
  running->text_time = MonotonicNow() - running->arrived;
  if (prepared.error) {
    Refuse(running, *prepared.error);
    return;
  }
  running->max_tokens = prepared.generate.max_tokens;
  running->answer = running->api->answer(*model_, prepared.request, prepared.generate,
                                         running->id(), absl::ToUnixSeconds(absl::Now()));
  prepared.generate.name = running->id();
  auto submitted = generator_->Submit(std::move(prepared.generate));
  if (!submitted.ok()) {
    const bool none_yet =
        absl::IsUnavailable(submitted.status()) && generator_->View().prefill_workers == 0;
    Refuse(running, none_yet ? NotReady() : FromClusterStatus(submitted.status()));
    return;
  }
  metrics_.OnStarted();
  running->request = *submitted;
  running->last_write = MonotonicNow();
  by_request_.emplace(*submitted, running);
  if (running->stream && !keepalive_set_) KeepAlive();
}

void ApiFront::Refuse(Running* running, const ApiError& error) {
  Reply(running->call, running->api->refusal(error));
  FinishedRequest finished = Finished(*running, {});
  finished.http_status = error.status;
  finished.finish = "";
  if (LogEnabled(LogLevel::kInfo)) {
    LogInfo("request %s  refused %d %s  param %s", running->id(), error.status,
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
    server_->StartStream(running->call.exchange, Decorated(std::move(head), running->call.request));
  }
  server_->Write(running->call.exchange, events);
  running->last_write = MonotonicNow();
}

void ApiFront::OnToken(const EmitToken& token) {
  const auto found = by_request_.find(token.request_id);
  if (found == by_request_.end()) return;
  Running* running = found->second;
  if (running->cancelled) return;
  const absl::Time now = MonotonicNow();
  if (running->answer->text().n_tokens() == 0) {
    metrics_.OnFirstToken(now - running->arrived);
  } else {
    metrics_.OnNextToken(now - running->last_token);
  }
  running->last_token = now;
  Send(running, running->answer->OnToken(token));
  if (running->answer->text().stopped()) {
    running->cancelled = true;
    generator_->Cancel(running->request);
  }
}

void ApiFront::OnEnd(const EmitEnd& end) {
  const auto found = by_request_.find(end.request_id);
  if (found == by_request_.end()) return;
  Running* running = found->second;
  FinishedRequest finished = Finished(*running, end);
  const bool completed = end.reason == EndReason::kStopToken || end.reason == EndReason::kLength ||
                         running->answer->text().stopped();
  if (running->is_gone) {
    finished.http_status = kClientGone;
    finished.finish = "abort";
  } else if (!completed) {
    finished.http_status = 500;
    EndWithError(running, end);
  } else {
    const std::string rest = running->answer->OnEnd(end, running->text_time);
    if (running->stream) {
      Send(running, rest);
      server_->EndStream(running->call.exchange);
    } else {
      HttpReply reply;
      reply.body = rest;
      Reply(running->call, std::move(reply));
    }
  }
  Forget(running, finished);
}

void ApiFront::EndWithError(Running* running, const EmitEnd& end) {
  const absl::Status status =
      end.status.ok() ? absl::DeadlineExceededError("The request was cancelled.") : end.status;
  LogWarn("request %s failed: %s", running->id(), std::string(status.message()));
  const ApiError error = FromClusterStatus(status);
  if (running->stream_started) {
    Send(running, running->answer->OnError(error));
    server_->EndStream(running->call.exchange);
  } else {
    Reply(running->call, running->api->refusal(error));
  }
}

void ApiFront::OnGone(ExchangeId id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Running* running = found->second.get();
  if (running->request == 0) {
    pool_->Drop(running->text_job);
    FinishedRequest finished = Finished(*running, {});
    finished.http_status = kClientGone;
    Forget(running, finished);
    return;
  }
  running->is_gone = true;
  const RequestId request = running->request;
  const bool cancel = !running->cancelled;
  running->cancelled = true;
  gone_.emplace(request, std::move(found->second));
  running_.erase(found);
  if (cancel) generator_->Cancel(request);
}

FinishedRequest ApiFront::Finished(const Running& running, const EmitEnd& end) const {
  FinishedRequest finished;
  finished.endpoint = running.api->name;
  finished.stream = running.stream;
  if (running.answer) {
    const GeneratedText& text = running.answer->text();
    finished.finish = text.FinishReason(end.reason);
    finished.n_prompt = text.n_prompt();
    finished.n_tokens = text.n_tokens();
  }
  finished.max_tokens = running.max_tokens;
  finished.text_time = running.text_time;
  finished.total = MonotonicNow() - running.arrived;
  finished.timeline = end.timeline;
  return finished;
}

void ApiFront::Forget(Running* running, const FinishedRequest& f) {
  metrics_.OnFinished(f);
  if (!f.finish.empty() && LogEnabled(LogLevel::kInfo)) {
    const Timeline& t = f.timeline;
    LogInfo(
        "request %s %d %s  prompt %d  reused %d  output %d  ms: text %.2f  route %.2f  "
        "prefill queue %.2f  prefill %.2f  transfer %.2f  decode queue %.2f  decode %.2f  "
        "ttft %.2f  total %.2f  unaccounted %.2f  via %s%s %s  attempts %d  ranks %d  rounds %d  "
        "slices %s  push %s  "
        "first token %.2f predicted %.2f",
        running->id(), f.http_status, std::string(f.finish), f.n_prompt, t.reused_tokens,
        f.n_tokens, Ms(f.text_time), Ms(t.router_queue), Ms(t.prefill_queue), Ms(t.prefill),
        Ms(t.transfer), Ms(t.decode_queue), Ms(t.decode), Ms(t.ttft), Ms(f.total),
        Ms(t.unaccounted() + f.total - f.text_time - t.total),
        t.prefill_heads.empty() ? "" : t.prefill_heads + "+",
        t.prefill_worker.empty() ? "-" : t.prefill_worker,
        t.decode_worker.empty() ? "-" : t.decode_worker, t.attempts, t.slices.size(), t.rounds,
        t.slices.empty() ? "-" : absl::StrJoin(t.slices, ","), std::string(NameOf(t.push)),
        Ms(t.took), Ms(t.predicted));
  }
  const RequestId request = running->request;
  if (request != 0) by_request_.erase(request);
  if (running->is_gone) {
    gone_.erase(request);
  } else {
    running_.erase(running->call.exchange);
  }
}

// A sign of life into streams that were silent for long, and the next look at them.
void ApiFront::KeepAlive() {
  const absl::Time now = MonotonicNow();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, running] : running_) {
    if (!running->stream || running->request == 0) continue;
    if (now - running->last_write >= options_.sse_keepalive) Send(running.get(), kSseKeepAlive);
    next = std::min(next, running->last_write + options_.sse_keepalive);
  }
  keepalive_set_ = next != absl::InfiniteFuture();
  if (keepalive_set_) keepalive_timer_.Set(next, [this] { KeepAlive(); });
}

}  // namespace baton
