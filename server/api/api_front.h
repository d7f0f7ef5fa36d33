// The API over HTTP: requests to endpoints (routes.h), and the life of those that generate: tokens
// from the generator to clients. Plain state on the front thread; sockets are HttpServer's, tokens
// the Generator's, long text work the pool's.
//
// A request for tokens: parse, template, tokenize (inline when short, else on the pool) -> Submit
// once per choice (prompts times samples) -> tokens as they come -> ends of all choices. If one
// choice is refused or fails, so is the request, and the other choices are cancelled. A client that
// goes away, or leaves too much unread, is cancelled at once with all its choices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "common/process_series.h"
#include "server/api/access_guard.h"
#include "server/api/answer_desk.h"
#include "server/api/api_front_options.h"
#include "server/api/front_metrics.h"
#include "server/api/generation_api.h"
#include "server/api/generator.h"
#include "server/api/live_record.h"
#include "server/api/long_texts.h"
#include "server/api/prepared_request.h"
#include "server/api/request_deadlines.h"
#include "server/api/routes.h"
#include "server/api/running_request.h"
#include "server/api/served_model.h"
#include "server/api/submitted_choices.h"
#include "server/api/text_calls.h"
#include "server/api/text_pool.h"
#include "server/http/event_loop.h"
#include "server/http/http_server.h"
#include "server/http/paced_page.h"

namespace baton {

class ApiFront : public HttpHandler, public GeneratorListener {
 public:
  // All must outlive the front; the loop must not run any more when it goes. Of the options
  // cors_origin, sse_keepalive, request_timeout and slo may change meanwhile, on the loop's thread.
  ApiFront(EventLoop* loop, const ServedModel* model, Generator* generator, TextPool* pool,
           MetricsRegistry* registry, std::span<const Route> routes, const ApiFrontOptions& options,
           const ApiFrontFacts& facts);
  ~ApiFront() override;

  // Before the loop runs: the server of HTTP, and another one that brings calls by OnCall (null:
  // there is none). They must not outlive the front.
  void Attach(HttpServer* http, ExchangeWriter* other = nullptr) {
    http_ = http;
    other_ = other;
  }
  // New requests are refused with 503, running ones go on; `drained` when the last byte is written.
  void Drain(std::function<void()> drained);

  std::optional<HttpReply> OnHead(HttpRequest* request) override;
  void OnRequest(ExchangeId id, HttpRequest request) override;
  void OnGone(ExchangeId id) override;  // of any server
  // Answers a call by the row of `routes` that it names; there is one.
  void OnCall(std::span<const Route> routes, ApiCall call);
  HttpReply OnBadRequest(const HttpRequest& request, int status,
                         const std::string& message) override;
  void OnToken(const EmitToken& token) override;
  void OnEnd(const EmitEnd& end) override;
  void OnReleased(const EmitReleased& released) override { metrics_.OnReleased(released); }

  // --- for endpoints ---
  const ServedModel& model() const { return *model_; }
  const ApiFrontFacts& facts() const { return facts_; }
  PacedPage& metrics_page() { return metrics_page_; }
  // JSON of what goes on now, and what has happened since the answer with this cursor.
  std::string LiveText(std::string_view cursor) const;
  const Generator& generator() const { return *generator_; }
  std::optional<ApiError> NotReady() const;  // to serve, and why not; nothing: ready
  AnswerDesk& answers() { return answers_; }
  // Once per call that is not given to Generate.
  void Reply(const ApiCall& call, HttpReply reply);
  // The call is answered with what `work` makes of its body and the model, on any thread.
  // max_context: of the cluster and the model.
  using TextAnswer = std::variant<std::string, ApiError>;  // the JSON body, or why there is none
  using TextWork = TextAnswer (*)(const ServedModel& model, int64_t max_context,
                                  std::string_view body);
  void AnswerText(ApiCall call, TextWork work);
  // The call is answered with what the cluster generates.
  void Generate(const GenerationApi& api, ApiCall call);

 private:
  using Running = RunningRequest;
  using Prepared = std::shared_ptr<PreparedRequest>;
  void OnPrepared(Running* running, Prepared prepared);
  void Submit(Running* running, const PreparedRequest& prepared);
  void Refuse(Running* running, const ApiError& error);
  void Send(Running* running, const std::string& events);
  void Complete(Running* running);
  void EndWithError(Running* running, const ApiError& error);
  void Forget(Running* running, const FinishedRequest& finished);
  void KeepAlive();

  const ServedModel* model_;
  Generator* generator_;
  TextPool* pool_;
  MetricsRegistry* registry_;
  const std::span<const Route> routes_;
  const ApiFrontOptions& options_;
  const ApiFrontFacts facts_;
  SubmittedChoices choices_;  // of requests in running_ and gone_
  AnswerDesk answers_;
  HttpServer* http_ = nullptr;
  ExchangeWriter* other_ = nullptr;  // null: there is none
  FrontMetrics metrics_;
  ProcessSeries process_;
  LiveRecord live_;
  const AccessGuard guard_;
  PacedPage metrics_page_;
  TextCalls text_calls_;
  LongTexts long_texts_;
  RequestDeadlines deadlines_;
  EventLoop::Timer keepalive_timer_;
  bool keepalive_set_ = false;
  bool draining_ = false;
  absl::flat_hash_map<ExchangeId, std::unique_ptr<Running>> running_;
  // The client has gone: cancelled, and not all ends are told yet.
  absl::flat_hash_map<ExchangeId, std::unique_ptr<Running>> gone_;
};

}  // namespace baton
