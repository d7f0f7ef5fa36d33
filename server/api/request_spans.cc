#include "server/api/request_spans.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/ids.h"
#include "server/api/json_writer.h"
#include "server/api/view_series.h"

namespace baton {
namespace {

// Numbers of trace.proto.
constexpr int kInternal = 1, kServer = 2;  // SpanKind
constexpr int kStatusError = 2;
constexpr int kHasIsRemote = 0x100, kIsRemote = 0x200, kSampled = 0x1;  // SpanFlags

constexpr std::string_view kStageNames[] = {"prefill_queue", "prefill", "transfer", "decode_queue",
                                            "decode"};

// Writes a list of attributes, element by element.
class Attributes {
 public:
  explicit Attributes(JsonWriter* json) : json_(*json) {}

  void Text(std::string_view key, std::string_view value) {
    if (!value.empty()) Add(key, [&] { json_.Field("stringValue", value); });
  }
  void Int(std::string_view key, int64_t value) {  // 64 bits travel as text
    Add(key, [&] { json_.Field("intValue", absl::StrCat(value)); });
  }
  void Bool(std::string_view key, bool value) {
    Add(key, [&] { json_.Field("boolValue", value); });
  }
  void Seconds(std::string_view key, absl::Duration value) {
    Add(key, [&] { json_.Field("doubleValue", absl::ToDoubleSeconds(value)); });
  }
  void Texts(std::string_view key, const std::vector<std::string>& values) {
    Add(key, [&] {
      json_.Object("arrayValue", [&] {
        json_.Array("values", [&] {
          for (const std::string& value : values)
            json_.Object([&] { json_.Field("stringValue", value); });
        });
      });
    });
  }

 private:
  template <typename Fill>
  void Add(std::string_view key, const Fill& fill) {
    json_.Object([&] {
      json_.Field("key", key);
      json_.Object("value", fill);
    });
  }

  JsonWriter& json_;
};

struct Span {
  std::string id{}, parent{};
  std::string_view name{};
  absl::Duration begin{}, end{};  // since the request's arrival
  int kind = kInternal;
  int flags = kSampled | kHasIsRemote;
  std::string error{};  // why it failed; empty: it did not
};

class SpanWriter {
 public:
  // arrived: the request's date.
  SpanWriter(std::string_view trace_id, absl::Time arrived)
      : trace_id_(trace_id), arrived_(arrived), json_(&list_.json) {}

  // `fill` writes attributes, and `more` further members of the span.
  template <typename Fill, typename More>
  void Add(const Span& span, const Fill& fill, const More& more) {
    ++list_.n;
    json_.Object([&] {
      json_.Field("traceId", trace_id_);
      json_.Field("spanId", span.id);
      if (!span.parent.empty()) json_.Field("parentSpanId", span.parent);
      json_.Field("flags", span.flags);
      json_.Field("name", span.name);
      json_.Field("kind", span.kind);
      json_.Field("startTimeUnixNano", Date(span.begin));
      json_.Field("endTimeUnixNano", Date(std::max(span.begin, span.end)));
      json_.Array("attributes", [&] {
        Attributes attributes(&json_);
        fill(attributes);
      });
      more(json_);
      if (span.error.empty()) return;
      json_.Object("status", [&] {
        json_.Field("code", kStatusError);
        json_.Field("message", span.error);
      });
    });
  }
  template <typename Fill>
  void Add(const Span& span, const Fill& fill) {
    Add(span, fill, [](JsonWriter&) {});
  }
  std::string Date(absl::Duration since_arrival) const {
    return absl::StrCat(absl::ToUnixNanos(arrived_ + since_arrival));
  }
  SpanList Take() { return std::move(list_); }

 private:
  const std::string_view trace_id_;
  const absl::Time arrived_;
  SpanList list_;
  JsonWriter json_;
};

// before: from the request's arrival to the submission of the choice, where its times begin.
void AddAttempt(const AttemptRecord& attempt, const std::string& parent, absl::Duration before,
                absl::Duration total, SpanWriter* out) {
  const bool failed = attempt.cause >= 0;
  const Span span{.id = NewSpanId(),
                  .parent = parent,
                  .name = "attempt",
                  .begin = before + attempt.sent,
                  .end = before + (failed ? attempt.given_up : total),
                  .error = attempt.failure};
  std::vector<std::string> prefill = absl::StrSplit(attempt.prefill_heads, ',', absl::SkipEmpty());
  prefill.push_back(attempt.prefill_worker);
  out->Add(span, [&](Attributes& attributes) {
    attributes.Int("baton.attempt", attempt.number);
    attributes.Texts("baton.prefill_workers", prefill);
    attributes.Text("baton.decode_worker", attempt.decode_worker);
    if (!failed) return;
    attributes.Text("baton.failover.cause", RecomputeReasonName(attempt.cause));
    attributes.Text("baton.failover.worker", attempt.failed_worker);
  });
  for (const WorkSpan& work : attempt.spans) {
    out->Add({.id = NewSpanId(),
              .parent = span.id,
              .name = kStageNames[static_cast<size_t>(work.kind)],
              .begin = before + work.begin,
              .end = before + work.end},
             [&](Attributes& attributes) { attributes.Text("baton.worker", work.worker); });
  }
}

void AddChoice(const Timeline& timeline, const std::string& parent, absl::Duration before,
               SpanWriter* out) {
  absl::Duration waits_from;
  const auto add_wait = [&](absl::Duration end) {
    if (end <= waits_from) return;
    out->Add({.id = NewSpanId(),
              .parent = parent,
              .name = "route",
              .begin = before + waits_from,
              .end = before + end},
             [](Attributes&) {});
  };
  for (const AttemptRecord& attempt : timeline.records) {
    add_wait(attempt.sent);
    AddAttempt(attempt, parent, before, timeline.total, out);
    waits_from = attempt.cause >= 0 ? attempt.given_up : timeline.total;
  }
  add_wait(timeline.total);  // no worker took it
}

void AddRequest(const RunningRequest& request, const FinishedRequest& facts, std::string_view model,
                SpanWriter* out) {
  const HttpRequest& http = request.call.request;
  const std::string name = absl::StrCat(http.method, " ", http.path);
  const bool failed = facts.failed || facts.http_status >= 500;
  const int remote = http.trace.parent_id.empty() ? 0 : kIsRemote;
  const Span span{
      .id = http.trace.span_id,
      .parent = http.trace.parent_id,
      .name = name,
      .end = facts.total,
      .kind = kServer,
      .flags = kSampled | kHasIsRemote | remote,
      .error = failed ? absl::StrCat("the answer failed with status ", facts.http_status) : ""};
  const auto attributes = [&](Attributes& of) {
    of.Text("http.request.method", http.method);
    of.Text("url.path", http.path);
    of.Int("http.response.status_code", facts.http_status);
    of.Text("gen_ai.request.model", model);
    of.Text("baton.request_id", request.id());
    of.Text("baton.endpoint", facts.endpoint);
    of.Bool("baton.stream", facts.stream);
    if (facts.n_prompt > 0) of.Int("gen_ai.usage.input_tokens", facts.n_prompt);
    of.Int("gen_ai.usage.output_tokens", facts.n_tokens);
    of.Int("baton.reused_tokens", facts.n_reused);
    of.Int("baton.choices", facts.n_choices);
    if (!facts.finish.empty())
      of.Texts("gen_ai.response.finish_reasons", {std::string(facts.finish)});
    if (request.ttft) of.Seconds("baton.time_to_first_token", *request.ttft);
  };
  out->Add(span, attributes, [&](JsonWriter& json) {
    if (!request.ttft) return;
    json.Array("events", [&] {
      json.Object([&] {
        json.Field("timeUnixNano", out->Date(*request.ttft));
        json.Field("name", "first_token");
      });
    });
  });
}

}  // namespace

SpanList SpansOf(const RunningRequest& request, const FinishedRequest& facts,
                 std::string_view model, absl::Time now, absl::Time date) {
  const TraceContext& trace = request.call.request.trace;
  SpanWriter out(trace.trace_id, date - (now - request.arrived));
  AddRequest(request, facts, model, &out);
  if (facts.text_time > absl::ZeroDuration())
    out.Add({.id = NewSpanId(), .parent = trace.span_id, .name = "text", .end = facts.text_time},
            [](Attributes&) {});
  for (size_t i = 0; i < request.choices.size(); ++i) {
    const RunningRequest::Choice& choice = request.choices[i];
    if (!choice.timeline) continue;
    const absl::Duration before = choice.submitted - request.arrived;
    std::string parent = trace.span_id;
    if (request.choices.size() > 1) {
      Span span{.id = NewSpanId(),
                .parent = parent,
                .name = "choice",
                .begin = before,
                .end = before + choice.timeline->total};
      out.Add(span, [&](Attributes& of) { of.Int("baton.choice", static_cast<int64_t>(i)); });
      parent = std::move(span.id);
    }
    AddChoice(*choice.timeline, parent, before, &out);
  }
  return out.Take();
}

std::string OtlpHead(std::string_view service, std::string_view version) {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  std::string resource, scope;
  JsonWriter of_resource(&resource);
  of_resource.Object([&] {
    of_resource.Array("attributes", [&] {
      Attributes attributes(&of_resource);
      attributes.Text("service.name", service);
      attributes.Text("service.version", version);
      attributes.Text("service.instance.id", absl::StrFormat("%016x", RandomId()));
      attributes.Text("host.name", host);
    });
  });
  scope = JsonObject([&](JsonWriter& json) {
    json.Field("name", "baton");
    json.Field("version", version);
  });
  return absl::StrCat(R"({"resourceSpans":[{"resource":)", resource, R"(,"scopeSpans":[{"scope":)",
                      scope, R"(,"spans":[)");
}

}  // namespace baton
