#include "bench/load/session_summary.h"

#include <xxhash.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "bench/load/metrics_page.h"

namespace baton {
namespace {

constexpr double kAllCached = 2;  // above every share

}  // namespace

WorkerCounters WorkerCounters::Since(const WorkerCounters& before) const {
  return {kv_bytes - before.kv_bytes, computed - before.computed, reused - before.reused};
}

absl::StatusOr<WorkerCounters> ReadWorkerCounters(const std::vector<std::string>& urls) {
  WorkerCounters sum;
  for (const std::string& text : urls) {
    ASSIGN_OR_RETURN(const HttpUrl url, HttpUrl::Parse(text));
    ASSIGN_OR_RETURN(const MetricsPage page, MetricsPage::Fetch(url));
    if (!page.Has("baton_prefill_tokens_total")) {
      return absl::InvalidArgumentError(
          "--worker-metrics " + text +
          ": not a worker's page; workers log \"metrics on http://...\" when they start");
    }
    sum.kv_bytes += page.Sum("baton_kv_received_bytes_total");
    sum.computed += page.Sum("baton_prefill_tokens_total");
    sum.reused += page.Sum("baton_prefill_reused_tokens_total");
  }
  return sum;
}

SessionSummary SummarizeSessions(const std::vector<SessionOutcome>& sessions) {
  SessionSummary sum;
  for (const SessionOutcome& session : sessions) {
    ++sum.n_conversations;
    sum.n_whole += session.is_whole;
    for (size_t turn = 0; turn < session.turns.size(); ++turn) {
      const Outcome& out = session.turns[turn];
      if (!out.ok) continue;
      ++sum.n_turns;
      sum.n_prompt += out.n_prompt;
      sum.n_cached += std::max(out.n_cached, 0);
      if (turn == 0)
        sum.first_ttft_ms.push_back(out.ttft_ms());
      else
        sum.later.push_back(
            {.cached = std::max(out.n_cached, 0) / std::max(1.0, 1.0 * out.n_prompt),
             .ttft_ms = out.ttft_ms()});
      sum.digest = XXH64(out.tokens.data(), out.tokens.size() * sizeof(int32_t), sum.digest);
    }
  }
  return sum;
}

std::vector<double> LaterTtfts(const SessionSummary& sum, double from, double to) {
  std::vector<double> ttfts;
  for (const LaterTurn& turn : sum.later)
    if (turn.cached >= from && turn.cached < to) ttfts.push_back(turn.ttft_ms);
  return ttfts;
}

void PrintSessions(const SessionSummary& sum, const WorkerCounters* workers) {
  std::printf("  conversations %d, whole %d  turns %d  digest of all answers %016llx\n",
              sum.n_conversations, sum.n_whole, sum.n_turns,
              static_cast<unsigned long long>(sum.digest));
  std::printf("  prompt tokens %lld, cached by the answers' usage %lld\n",
              static_cast<long long>(sum.n_prompt), static_cast<long long>(sum.n_cached));
  if (workers != nullptr) {
    std::printf("  workers: KV handed over %.2f MB, prompt tokens computed %.0f, cached %.0f\n",
                workers->kv_bytes / 1e6, workers->computed, workers->reused);
  }
  const auto print = [](const std::string& name, const std::vector<double>& values) {
    const Distribution ttft(values);
    std::printf("  ttft of %s  n %zu  p50 %.2f  p90 %.2f  p99 %.2f ms\n", name.c_str(),
                values.size(), ttft.percentile(50), ttft.percentile(90), ttft.percentile(99));
  };
  print("first turns", sum.first_ttft_ms);
  print("later turns", LaterTtfts(sum, 0, kAllCached));
  double from = 0;
  for (const double to : {.5, .8, .9, .95, kAllCached}) {
    const std::vector<double> ttfts = LaterTtfts(sum, from, to);
    if (!ttfts.empty())
      print(
          absl::StrFormat("those with %.0f to %.0f %% cached", 100 * from, 100 * std::min(to, 1.0)),
          ttfts);
    from = to;
  }
}

void AddSessions(const SessionSummary& sum, const WorkerCounters* workers,
                 boost::json::object* object) {
  boost::json::object json{{"conversations", sum.n_conversations},
                           {"whole", sum.n_whole},
                           {"turns", sum.n_turns},
                           {"prompt_tokens", sum.n_prompt},
                           {"cached_tokens", sum.n_cached},
                           {"answers_digest", absl::StrFormat("%016x", sum.digest)}};
  for (const auto& [name, values] :
       {std::pair{"first", sum.first_ttft_ms}, {"later", LaterTtfts(sum, 0, kAllCached)}}) {
    const Distribution ttft(values);
    json[absl::StrFormat("%s_ttft_p50_ms", name)] = ttft.percentile(50);
    json[absl::StrFormat("%s_ttft_p99_ms", name)] = ttft.percentile(99);
  }
  if (workers != nullptr) {
    json["kv_bytes"] = workers->kv_bytes;
    json["computed_tokens"] = workers->computed;
    json["reused_tokens"] = workers->reused;
  }
  (*object)["sessions"] = std::move(json);
}

}  // namespace baton
