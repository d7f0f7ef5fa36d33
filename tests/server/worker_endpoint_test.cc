#include "server/worker_endpoint.h"

#include "absl/strings/str_cat.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("Every reason for which a KV chunk was not taken is a series, from the start on") {
  WorkerMetrics metrics;
  WorkerEndpoint endpoint("w1", "m", [&] { return metrics; });
  const auto has = [&](const std::string& name, const std::string& reason, int value) {
    const std::string label = reason.empty() ? "" : absl::StrCat(",reason=\"", reason, "\"");
    const std::string line =
        absl::StrCat("\n", name, "{model=\"m\"", label, ",worker=\"w1\"} ", value, "\n");
    return endpoint.Text().find(line) != std::string::npos;
  };
  for (size_t why = 0; why < kChunkRefusals; ++why)
    CHECK(has("baton_kv_chunks_refused_total", std::string(NameOf(ChunkRefusal(why))), 0));
  for (int round = 1; round <= 2; ++round) {
    for (size_t why = 0; why < kChunkRefusals; ++why)
      metrics.transfer.refused_chunks[why] = 10 * why + static_cast<size_t>(round);
    metrics.transfer.handoffs_resumed = static_cast<uint64_t>(round);
    for (size_t why = 0; why < kChunkRefusals; ++why)
      CHECK(has("baton_kv_chunks_refused_total", std::string(NameOf(ChunkRefusal(why))),
                10 * int(why) + round));
    CHECK(has("baton_handoffs_resumed_total", "", round));
  }
}

}  // namespace
}  // namespace baton
