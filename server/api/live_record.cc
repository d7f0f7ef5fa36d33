#include "server/api/live_record.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/ids.h"
#include "server/access/key_holder.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

constexpr std::string_view kSpanNames[] = {"prefill_queue", "prefill", "transfer", "decode_queue",
                                           "decode"};

std::string_view NameOf(Role role) {
  if (role == Role::kPrefill) return "prefill";
  return role == Role::kDecode ? "decode" : "both";
}

LiveRequest Describe(const RunningRequest& request, FinishedRequest facts) {
  LiveRequest described{.id = request.id(),
                        .key = std::string(facts.key),
                        .facts = std::move(facts),
                        .arrived = request.arrived};
  described.facts.key = {};  // of the request, which goes
  return described;
}

double Ms(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

void WriteLinks(JsonWriter& json, const WorkerView& worker) {
  json.Array("links", [&] {
    for (const LinkView& link : worker.links) {
      json.Object([&] {
        json.Field("to", link.peer);
        json.FixedField("bytes_per_second", link.bytes_per_second, 0);
        json.Field("tokens_under_way", link.tokens_under_way);
        json.Field("broken", link.broken);
      });
    }
  });
}

void WriteWorker(JsonWriter& json, const WorkerView& worker, absl::Time now) {
  json.Object([&] {
    json.Field("name", worker.name);
    json.Field("incarnation", absl::StrFormat("%016x", worker.incarnation));
    json.Field("role", NameOf(worker.role));
    json.Field("draining", worker.draining);
    json.Field("standing", worker.standing);
    json.FixedField("silent_ms", std::max(0.0, Ms(now - worker.heard_at)), 0);
    json.Field("requests", worker.requests);
    json.Field("prefill_queued_tokens", worker.prefill_queued_tokens);
    json.Field("decode_rows", worker.decode_rows);
    json.Field("decode_waiting", worker.decode_waiting);
    json.Field("max_batch", worker.max_batch);
    json.Object("pages", [&] {
      json.Field("total", worker.pages_total);
      json.Field("free", worker.pages_free);
      json.Field("promised", worker.pages_promised);
    });
    WriteLinks(json, worker);
  });
}

// before: from the request's arrival to its submission, where the router's times begin.
void WriteAttempt(JsonWriter& json, const AttemptRecord& attempt, absl::Duration before) {
  json.Object([&] {
    json.Field("number", attempt.number);
    json.FixedField("sent_ms", Ms(before + attempt.sent), 2);
    json.Array("prefill", [&] {
      const std::vector<std::string> heads =
          absl::StrSplit(attempt.prefill_heads, ',', absl::SkipEmpty());
      for (const std::string& head : heads) json.Value(head);
      json.Value(attempt.prefill_worker);
    });
    json.FieldOrNull("decode", attempt.decode_worker);
    json.Array("spans", [&] {
      for (const WorkSpan& span : attempt.spans) {
        json.Object([&] {
          json.Field("stage", kSpanNames[static_cast<size_t>(span.kind)]);
          json.Field("worker", span.worker);
          json.FixedField("begin_ms", Ms(before + span.begin), 2);
          json.FixedField("end_ms", Ms(before + span.end), 2);
        });
      }
    });
    if (attempt.cause < 0) return;
    json.Object("failure", [&] {
      json.Field("cause", RecomputeReasonName(attempt.cause));
      json.Field("message", attempt.failure);
      json.FieldOrNull("worker", attempt.failed_worker);
      json.FixedField("at_ms", Ms(before + attempt.given_up), 2);
    });
  });
}

void WriteRequest(JsonWriter& json, const LiveRequest& request, const LiveView& view) {
  const FinishedRequest& facts = request.facts;
  const Timeline& timeline = facts.timeline;
  json.Object([&] {
    json.Field("id", request.id);
    json.Field("endpoint", facts.endpoint);
    json.FieldOrNull("key", request.key);
    json.FixedField(
        "arrived",
        absl::ToDoubleSeconds(view.date - (view.now - request.arrived) - absl::UnixEpoch()), 3);
    json.Field("waits", request.waits);
    json.Field("stream", facts.stream);
    json.Field("status", facts.http_status);
    json.FieldOrNull("finish", facts.finish);
    json.Field("choices", facts.n_choices);
    json.Field("prompt_tokens", facts.n_prompt);
    json.Field("reused_tokens", timeline.reused_tokens);
    json.Field("tokens", facts.n_tokens);
    json.FixedField("text_ms", Ms(facts.text_time), 2);
    if (timeline.ttft > absl::ZeroDuration())
      json.FixedField("ttft_ms", Ms(facts.text_time + timeline.ttft), 2);
    json.FixedField("total_ms", Ms(facts.total), 2);
    json.Array("attempts", [&] {
      for (const AttemptRecord& attempt : timeline.records)
        WriteAttempt(json, attempt, facts.text_time);
    });
  });
}

void WriteSeconds(JsonWriter& json, const LatencyWindows& windows, int64_t begin, int64_t end) {
  for (int64_t second = begin; second < end; ++second) {
    std::string sizes;
    JsonWriter inner(&sizes);
    inner.Array([&] {
      windows.ForEach(second, [&](int64_t floor, uint32_t n) {
        inner.Array([&] {
          inner.Value(floor);
          inner.Value(n);
        });
      });
    });
    if (sizes == "[]") continue;
    json.Array([&] {
      json.Value(second);
      json.Json(sizes);
    });
  }
}

void WriteTotals(JsonWriter& json, const ClusterView& cluster) {
  json.Object("failovers", [&] {
    for (int cause = 0; cause < kFailoverCauses; ++cause)
      json.Field(RecomputeReasonName(cause), cluster.failovers[static_cast<size_t>(cause)]);
  });
  json.Field("relays", cluster.relays);
}

}  // namespace

void LiveView::Add(const RunningRequest& request, std::optional<RequestView> progress) {
  LiveRequest described = Describe(request, request.Finished(now));
  described.facts.finish = {};  // it has not ended
  if (progress) {
    described.waits = progress->waits;
    described.facts.timeline = std::move(progress->timeline);
  }
  running.push_back(std::move(described));
}

LiveRecord::LiveRecord() : instance_(absl::StrFormat("%016x", RandomId())) {}

void LiveRecord::OnFinished(const RunningRequest& request, const FinishedRequest& facts) {
  finished_.push_back(Describe(request, facts));
  ++n_finished_;
  if (finished_.size() > kMaxRequests) finished_.pop_front();
}

LiveRecord::Cursor LiveRecord::Read(std::string_view cursor) const {
  const std::vector<std::string> parts = absl::StrSplit(std::string(cursor), '-');
  Cursor read;
  if (parts.size() != 3 || parts[0] != instance_ || !absl::SimpleAtoi(parts[1], &read.n_finished) ||
      !absl::SimpleAtoi(parts[2], &read.second) || read.second < 0 ||
      read.second == std::numeric_limits<int64_t>::max())
    return {};
  return read;
}

std::string LiveRecord::Text(const LiveView& view, std::string_view cursor) const {
  const Cursor told = Read(cursor);
  const int64_t second = LatencyWindows::SecondOf(view.now);  // it is not over yet
  const int64_t first = std::max(told.second + 1, second - LatencyWindows::kSeconds + 1);
  const uint64_t n_before = n_finished_ - finished_.size();
  const auto skip =
      static_cast<size_t>(std::clamp(told.n_finished, n_before, n_finished_) - n_before);
  return JsonObject([&](JsonWriter& json) {
    json.Field("object", "cluster.live");
    json.Field("cursor", absl::StrCat(instance_, "-", n_finished_, "-", second - 1));
    json.FixedField("now", absl::ToDoubleSeconds(view.date - absl::UnixEpoch()), 3);
    json.Field("model", view.model);
    json.Field("version", view.version);
    json.Field("ready", view.is_ready);
    json.Field("draining", view.cluster.draining);
    json.Field("max_context", view.cluster.max_context);
    json.Object("requests", [&] {
      json.Field("running", view.cluster.running);
      json.Field("waiting", view.cluster.waiting);
      json.Field("ended", n_finished_);
    });
    WriteTotals(json, view.cluster);
    json.Array("workers", [&] {
      for (const WorkerView& worker : view.workers) WriteWorker(json, worker, view.now);
    });
    json.Field("second", second);
    json.Array("ttft", [&] { WriteSeconds(json, ttft_, first, second); });
    json.Array("itl", [&] { WriteSeconds(json, gaps_, first, second); });
    json.Array("running", [&] {
      for (const LiveRequest& request : view.running) WriteRequest(json, request, view);
    });
    json.Array("finished", [&] {
      for (size_t i = skip; i < finished_.size(); ++i) WriteRequest(json, finished_[i], view);
    });
  });
}

}  // namespace baton
