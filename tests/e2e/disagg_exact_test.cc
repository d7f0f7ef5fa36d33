// Exactness of a disaggregated cluster inside one process: tokens and logits digests of every
// request equal those of one local engine that ran it alone, for every chunk, page size, ISA path,
// load and placement, and no request is lost.
#include <dirent.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/cpu/machine/isa.h"
#include "engine/load_backend.h"
#include "tests/e2e/exact_requests.h"
#include "tests/e2e/in_process_cluster.h"
#include "tests/support/drain.h"
#include "tests/support/local_engine.h"

namespace baton {
namespace {

TEST_CASE("disaggregated = colocated = local, for any chunk and page size, alone and in a crowd") {
  const std::vector<GenerateRequest> requests = Requests(32, 500);
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  const int page_tokens = GENERATE(16, 64);
  const int chunk = GENERATE(1, 7, 64, 512, 0);
  const bool colocated = GENERATE(false, true);
  CAPTURE(page_tokens, chunk, colocated);
  InProcessOptions options;
  options.engine = Engine(kTiny, page_tokens);
  options.chunk_tokens = chunk;
  options.colocated = colocated;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  // Three requests alone, one after the other.
  for (const size_t i : {size_t{3}, size_t{7}, size_t{12}})
    CheckAll(cluster.RunAll({requests[i]}), {expected[i]});
  if (!colocated) {
    REQUIRE(cluster.worker(2).metrics().transfer.bytes_received > 0);
    REQUIRE(cluster.worker(2).metrics().prefill_tokens == 0);
    REQUIRE(cluster.worker(0).metrics().decode_tokens == 0);
  }
}

TEST_CASE("ranks of a relay = local, for any chunk and page size, alone and in a crowd") {
  const std::vector<GenerateRequest> requests = Requests(32, 500);
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  const int page_tokens = GENERATE(16, 64);
  const int chunk = GENERATE(7, 64, 0);
  const int ranks = page_tokens == 16 ? 3 : 2;
  CAPTURE(page_tokens, chunk, ranks);
  InProcessOptions options;
  options.engine = Engine(kTiny, page_tokens);
  options.chunk_tokens = chunk;
  options.prefill_workers = ranks;
  options.relay_min_tokens = 17;
  options.relay_max_ranks = ranks;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  for (const size_t i : {size_t{3}, size_t{7}, size_t{12}})
    CheckAll(cluster.RunAll({requests[i]}), {expected[i]});
  REQUIRE(cluster.View().relays > 10);
  for (int rank = 0; rank < ranks; ++rank) {
    REQUIRE(cluster.worker(rank).metrics().prefill_tokens > 0);
    REQUIRE(cluster.worker(rank).metrics().parts_failed == 0);
  }
}

TEST_CASE("in rounds a link carries what the next rank lacks, to the byte") {
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  options.engine.limits.max_slice_tokens = 64;
  options.relay_min_tokens = 17;
  InProcessCluster cluster(options);
  GenerateRequest request = Requests(13, 500).back();
  request.prompt.resize(600, 7);
  const Timeline timeline = cluster.RunAll({request})[0].end.timeline;
  REQUIRE(timeline.rounds >= 5);
  REQUIRE(timeline.slices.size() == 2);
  std::vector<int64_t> tokens;  // KV tokens that each worker handed to the other
  for (int i = 0; i < 2; ++i) {
    Worker& worker = cluster.worker(i);
    REQUIRE(DrainWithin(&worker, 20));
    const WorkerMetrics metrics = worker.metrics();
    const KvLayout& layout = worker.backend().kv_layout();
    const int64_t token_bytes = layout.token_bytes() * layout.n_layers();
    uint64_t chain = 0;
    for (const LinkReport& link : metrics.links)
      chain += link.bytes[static_cast<size_t>(Traffic::kChain)];
    REQUIRE(chain % token_bytes == 0);
    tokens.push_back(static_cast<int64_t>(chain) / token_bytes);
  }
  // The head comes after the tail in the order of incarnations. The head sends all its KV to the
  // tail, and the tail sends the KV of all its slices except the last to the head.
  if (cluster.worker(0).announce().incarnation < cluster.worker(1).announce().incarnation)
    std::swap(tokens[0], tokens[1]);
  CHECK(tokens[0] == timeline.slices[0]);
  const int64_t last_slice = timeline.slices[1] - tokens[1];
  CHECK(last_slice > 0);
  CHECK(last_slice <= 64);
  CHECK(last_slice % 16 == 600 % 16);
}

TEST_CASE("a relay in rounds = local") {
  const std::vector<GenerateRequest> requests = Requests(32, 500);
  static const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  options.engine.limits.max_slice_tokens = 64;
  options.prefill_workers = ranks;
  options.relay_min_tokens = 17;
  options.relay_max_ranks = ranks;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  REQUIRE(cluster.View().relays_in_rounds > 10);
  for (int rank = 0; rank < ranks; ++rank) {
    REQUIRE(cluster.worker(rank).metrics().prefill_tokens > 0);
    REQUIRE(cluster.worker(rank).metrics().parts_failed == 0);
  }
}

TEST_CASE("KV in int8: two workers, and two ranks of a relay = local") {
  const std::vector<GenerateRequest> requests = Requests(16, 500);
  EngineOptions engine = Engine(kTiny, 16);
  engine.kv_dtype = "int8";
  static const std::vector<Expected> expected = Reference(engine, requests);
  InProcessOptions options;
  options.engine = engine;
  options.chunk_tokens = 64;
  options.relay_min_tokens = GENERATE(0, 17);
  CAPTURE(options.relay_min_tokens);
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
  REQUIRE((cluster.View().relays > 0) == (options.relay_min_tokens > 0));
}

TEST_CASE("every ISA path of this machine, and cross-checked with the local engine") {
  const std::vector<GenerateRequest> requests = Requests(12, 500);
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas()) {
    CAPTURE(IsaName(isa));
    InProcessOptions options;
    options.engine = Engine(kTiny, 16, std::string(IsaName(isa)));
    options.chunk_tokens = 64;
    InProcessCluster cluster(options);
    REQUIRE(cluster.worker(0).backend().isa() == IsaName(isa));
    CheckAll(cluster.RunAll(requests), expected);
  }
  auto local = LocalEngine::Create(Engine(kTiny), 200);
  REQUIRE(local.ok());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto generation = (*local)->Generate(LocalRequest{.prompt = requests[i].prompt,
                                                      .max_tokens = requests[i].max_tokens,
                                                      .sampling = requests[i].sampling,
                                                      .ignore_eos = true});
    REQUIRE(generation.ok());
    REQUIRE(generation->tokens == expected[i].tokens);
  }
}

TEST_CASE("the demo model through the disaggregated path") {
  auto backend = LoadBackend(Engine(kDemo));
  REQUIRE(backend.ok());
  std::vector<GenerateRequest> requests = Requests(16, (*backend)->model().vocab);
  const std::vector<Expected> expected = Reference(Engine(kDemo), requests);
  const bool colocated = GENERATE(false, true);
  InProcessOptions options;
  options.engine = Engine(kDemo);
  options.colocated = colocated;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
}

TEST_CASE("stop tokens end a request, the first token too") {
  std::vector<GenerateRequest> requests = Requests(3, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 20;
  const std::vector<Expected> all = Reference(Engine(kTiny), requests);
  requests[0].stop_tokens = {all[0].tokens[0]};
  requests[1].stop_tokens = {all[1].tokens[5]};
  requests[2].stop_tokens = {all[2].tokens[1]};
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny);
  InProcessCluster cluster(options);
  const std::vector<Outcome> outcomes = cluster.RunAll(requests);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    REQUIRE(outcomes[i].end.reason == EndReason::kStopToken);
    REQUIRE(outcomes[i].tokens == expected[i].tokens);
  }
}

TEST_CASE("the first token never waits for the handoff: it comes though every ACK is withheld") {
  std::vector<GenerateRequest> requests = Requests(8, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 8;
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  options.withhold_acks = true;
  InProcessCluster cluster(options);
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestId id = cluster.Submit(requests[i]);
    REQUIRE(cluster.WaitTokens(id, 1));
    cluster.Cancel(id);
    const Outcome outcome = cluster.WaitEnd(id);
    REQUIRE(outcome.end.reason == EndReason::kCancelled);
    REQUIRE(outcome.tokens == std::vector<int32_t>{expected[i].tokens[0]});
    REQUIRE(outcome.digests[0] == expected[i].digests[0]);
  }
}

TEST_CASE("a decode pool with room for few serves a crowd all the same") {
  std::vector<GenerateRequest> requests = Requests(16, 500);
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  options.kv_pages = 45;  // the longest request takes 40
  options.max_batch = 3;
  InProcessCluster cluster(options);
  CheckAll(cluster.RunAll(requests), expected);
}

TEST_CASE("a cancelled request gives back what it held, on both sides") {
  std::vector<GenerateRequest> requests = Requests(6, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 1400;
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  InProcessCluster cluster(options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster.Submit(request));
  for (size_t i = 0; i < ids.size(); ++i)
    if (i % 2 == 0) REQUIRE(cluster.WaitTokens(ids[i], 3));
  for (const RequestId id : ids) cluster.Cancel(id);
  for (const RequestId id : ids) REQUIRE(cluster.WaitEnd(id).end.reason == EndReason::kCancelled);
  // Within a second every page is free or lent but not promised.
  const absl::Time give_up = absl::Now() + absl::Seconds(5);
  for (int i = 0; i < cluster.n_workers();) {
    const WorkerMetrics m = cluster.worker(i).metrics();
    if (m.load.pages_free == m.pages_total && m.prefill_prompts == 0 && m.load.decode_rows == 0)
      ++i;
    else
      REQUIRE(absl::Now() < give_up);
    absl::SleepFor(absl::Milliseconds(5));
  }
  // The cluster still works.
  const GenerateRequest again = Requests(2, 500)[1];
  CheckAll(cluster.RunAll({again}), Reference(Engine(kTiny), {again}));
}

TEST_CASE("a lost decode worker: the other workers finish the very same tokens") {
  std::vector<GenerateRequest> requests = Requests(6, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 300;
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  InProcessCluster cluster(options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster.Submit(request));
  REQUIRE(cluster.WaitTokens(ids[0], 20));
  cluster.StopWorker(2);  // the only worker with role decode
  std::vector<Outcome> outcomes;
  for (const RequestId id : ids) outcomes.push_back(cluster.WaitEnd(id));
  CheckAll(outcomes, expected);
}

TEST_CASE("min_tokens keeps a stop token away, in the first token too, and after a failover") {
  std::vector<GenerateRequest> requests = Requests(4, 500);
  for (GenerateRequest& request : requests) {
    request.max_tokens = 60;
    request.sampling.temperature = 0;
  }
  const std::vector<Expected> free = Reference(Engine(kTiny), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].stop_tokens = {free[i].tokens[0], free[i].tokens[20]};
    requests[i].sampling.min_tokens = 40;
  }
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  InProcessCluster cluster(options);
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(cluster.Submit(request));
  REQUIRE(cluster.WaitTokens(ids[0], 5));
  cluster.StopWorker(2);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Outcome outcome = cluster.WaitEnd(ids[i]);
    REQUIRE(outcome.tokens == expected[i].tokens);
    REQUIRE(outcome.tokens.size() > 40);
  }
}

TEST_CASE("a lost router: workers cancel all its work within two seconds and go on living") {
  std::vector<GenerateRequest> requests = Requests(6, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 1400;
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  InProcessCluster cluster(options);
  for (const GenerateRequest& request : requests) cluster.Submit(request);
  REQUIRE(cluster.WaitTokens(cluster.Submit(requests[0]), 3));
  cluster.StopRouter();
  const absl::Time give_up = absl::Now() + absl::Seconds(2);
  for (int i = 0; i < cluster.n_workers();) {
    const WorkerMetrics m = cluster.worker(i).metrics();
    if (m.routers == 0 && m.load.pages_free == m.pages_total) {
      ++i;
      continue;
    }
    REQUIRE(absl::Now() < give_up);
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST_CASE("two routers: one goes away with its own requests alone, and the other's stay exact") {
  std::vector<GenerateRequest> requests = Requests(6, 500);
  for (GenerateRequest& request : requests) request.max_tokens = 400;
  const std::vector<Expected> expected = Reference(Engine(kTiny), requests);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  options.routers = 2;
  InProcessCluster cluster(options);
  InProcessRouter& goes = cluster.router(0);
  InProcessRouter& stays = cluster.router(1);
  std::vector<RequestId> of_first, of_second;
  for (const GenerateRequest& request : requests) {
    of_first.push_back(goes.Submit(request));
    of_second.push_back(stays.Submit(request));
  }
  REQUIRE(goes.WaitTokens(of_first[0], 3));
  REQUIRE(stays.WaitTokens(of_second[0], 3));
  goes.Stop();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome outcome = stays.WaitEnd(of_second[i]);
    CHECK(outcome.end.status.ok());
    CHECK(outcome.end.timeline.attempts == 1);
    REQUIRE(outcome.tokens == expected[i].tokens);
  }
  const absl::Time give_up = absl::Now() + absl::Seconds(10);
  uint64_t orphaned = 0;
  for (int i = 0; i < cluster.n_workers();) {
    const WorkerMetrics m = cluster.worker(i).metrics();
    if (m.load.pages_free == m.pages_total && m.routers == 1) {
      CHECK(m.routers_lost == 1);
      orphaned += m.parts_orphaned;
      ++i;
      continue;
    }
    REQUIRE(absl::Now() < give_up);
    absl::SleepFor(absl::Milliseconds(5));
  }
  CHECK(orphaned >= 1);
  // Pages that were computed for the other router are found, too.
  const Outcome again = stays.WaitEnd(stays.Submit(requests[0]));
  CHECK(again.tokens == expected[0].tokens);
}

int CountEntries(const char* folder) {
  DIR* dir = ::opendir(folder);
  int n = 0;
  while (::readdir(dir) != nullptr) ++n;
  ::closedir(dir);
  return n;
}

TEST_CASE("pages, threads and descriptors are all accounted for after stop") {
  const std::vector<GenerateRequest> requests = Requests(8, 500);
  InProcessOptions options;
  options.engine = Engine(kTiny, 16);
  const auto live = [&](bool drain) {
    InProcessCluster cluster(options);
    if (drain) {
      cluster.RunAll(requests);
      for (int i = 0; i < cluster.n_workers(); ++i) REQUIRE(DrainWithin(&cluster.worker(i), 5));
    } else {
      for (const GenerateRequest& request : requests) cluster.Submit(request);
    }
    cluster.Stop();  // CHECKs every pool
  };
  live(true);  // gRPC starts threads of its own once per process
  const int threads = CountEntries("/proc/self/task"), files = CountEntries("/proc/self/fd");
  for (int i = 0; i < 4; ++i) live(i % 2 == 0);
  // gRPC ends idle threads at a time of its own choice.
  const absl::Time give_up = absl::Now() + absl::Seconds(20);
  while (CountEntries("/proc/self/task") > threads || CountEntries("/proc/self/fd") > files) {
    CAPTURE(threads, files, CountEntries("/proc/self/task"), CountEntries("/proc/self/fd"));
    REQUIRE(absl::Now() < give_up);
    absl::SleepFor(absl::Milliseconds(100));
  }
}

}  // namespace
}  // namespace baton
