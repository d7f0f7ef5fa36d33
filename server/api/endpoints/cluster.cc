// GET /v1/cluster: what the router knows of its workers. GET /v1/cluster/live: the same and more,
// for pages and terminals that show what goes on; ?after=CURSOR of the answer before leaves out
// what that one told.
#include "absl/strings/str_format.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

// Pairs of workers that are here and cannot hand over KV.
void WriteBrokenLinks(JsonWriter& json, const std::vector<WorkerView>& workers) {
  json.Array("broken_links", [&] {
    for (const WorkerView& worker : workers) {
      for (const LinkView& link : worker.links) {
        if (!link.broken) continue;
        json.Object([&] {
          json.Field("from", worker.name);
          json.Field("to", link.peer);
        });
      }
    }
  });
}

}  // namespace

void AnswerCluster(ApiFront& front, ApiCall call) {
  const ClusterView view = front.generator().View();
  HttpReply reply;
  reply.body = JsonObject([&](JsonWriter& json) {
    json.Field("object", "cluster");
    json.Field("model", front.model().name);
    json.Field("ready", !front.NotReady());
    json.Field("draining", view.draining);
    json.Field("max_context", front.model().MaxContext(view.max_context));
    if (!view.numerics_id.empty()) {  // a worker is there, and all others have the same
      json.Field("model_fingerprint", absl::StrFormat("%016x", view.model_fingerprint));
      json.Field("numerics_id", view.numerics_id);
    }
    json.Object("workers", [&] {
      json.Field("prefill", view.prefill_workers);
      json.Field("decode", view.decode_workers);
      json.Field("standing", view.standing_workers);
      json.Field("expected", front.facts().expected_workers);
    });
    json.Object("requests", [&] {
      json.Field("running", view.running);
      json.Field("waiting", view.waiting);
      json.Field("ending", view.ending);
    });
    json.Object("kv_pages", [&] {
      json.Field("total", view.kv_pages_total);
      json.Field("free", view.kv_pages_free);
      json.Field("promised", view.kv_pages_promised);
    });
    WriteBrokenLinks(json, front.generator().Workers());
  });
  front.Reply(call, std::move(reply));
}

void AnswerClusterLive(ApiFront& front, ApiCall call) {
  std::string_view cursor = call.request.query;
  const bool has_cursor = cursor.starts_with("after=");
  HttpReply reply;
  reply.body = front.LiveText(has_cursor ? cursor.substr(6) : "");
  reply.headers.emplace_back("Cache-Control", "no-store");
  front.Reply(call, std::move(reply));
}

}  // namespace baton
