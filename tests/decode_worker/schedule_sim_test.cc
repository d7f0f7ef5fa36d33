// Whole clusters of worker cores under random schedules: every output equals the sequential run,
// whatever the interleaving, chunk, budget, batch, pool and depth of the engine; pages are
// conserved after every event. Depth 0: the engine computes on return; else it computes later, so
// many steps at a time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/decode_worker/sim_cluster.h"
#include "tests/support/drawn_sampling.h"

namespace baton {
namespace {

SimRequest RandomRequest(std::mt19937_64* random, int max_prompt, int max_tokens) {
  const auto pick = [random](int n) { return static_cast<int>((*random)() % n); };
  SimRequest request;
  const int n = 1 + pick(max_prompt);
  for (int i = 0; i < n; ++i) request.prompt.push_back(pick(HashBackend::kVocab));
  request.max_tokens = 1 + pick(max_tokens);
  request.sampling.temperature = pick(2) == 0 ? 0.0f : 1.0f;
  request.sampling.seed = (*random)();
  if (request.sampling.seed % 2 == 0)
    request.sampling = DrawSampling(request.sampling, HashBackend::kVocab);
  if (pick(3) == 0) request.stop_tokens = {pick(HashBackend::kVocab), pick(HashBackend::kVocab)};
  return request;
}

std::vector<SimWorkerOptions> RandomCluster(std::mt19937_64* random, bool colocated, int depth) {
  const auto pick = [random](int n) { return static_cast<int>((*random)() % n); };
  std::vector<SimWorkerOptions> workers(colocated ? 2 : 3);
  for (size_t i = 0; i < workers.size(); ++i) {
    SimWorkerOptions& w = workers[i];
    w.role = colocated ? Role::kBoth : i < 2 ? Role::kPrefill : Role::kDecode;
    w.pages = 24 + pick(60);  // the longest request takes 21
    w.max_batch = 1 + pick(5);
    w.max_step_tokens = w.max_batch + 1 + pick(40);
    w.mixed_prefill_tokens = 1 + pick(12);
    w.chunk_tokens = pick(2) * (1 + pick(16));
    w.announce_bytes = pick(2) == 0 ? 1 : 1 << 20;
    w.depth = depth;
  }
  return workers;
}

TEST_CASE("disaggregated: any schedule gives the sequential tokens") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    SimCluster cluster(seed, 4, RandomCluster(&random, false, depth));
    const int n = 1 + static_cast<int>(random() % 14);
    for (int i = 0; i < n; ++i) {
      cluster.Submit(RandomRequest(&random, 60, 24), static_cast<int>(random() % 2), 2);
      for (uint64_t steps = random() % 30; steps-- > 0;) cluster.Step();
    }
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id);
      REQUIRE(progress.ended());
      cluster.CheckExact(id);
    }
    cluster.Shutdown();
  }
}

TEST_CASE("colocated: any schedule gives the sequential tokens") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 77);
    SimCluster cluster(seed, 4, RandomCluster(&random, true, depth));
    for (int i = 0; i < 10; ++i) {
      const int worker = static_cast<int>(random() % 2);
      cluster.Submit(RandomRequest(&random, 60, 24), worker, worker);
      for (uint64_t steps = random() % 30; steps-- > 0;) cluster.Step();
    }
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id);
      REQUIRE(progress.ended());
      cluster.CheckExact(id);
    }
    cluster.Shutdown();
  }
}

TEST_CASE("every worker does both phases, whatever its role") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  // Exchanged roles: prompts run on the decode worker, whose free pages are lent, and tokens on the
  // prefill worker, which does not lend pages by itself.
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 131);
    SimCluster cluster(seed, 4, RandomCluster(&random, false, depth));
    for (int i = 0; i < 8; ++i)
      cluster.Submit(RandomRequest(&random, 60, 24), 2, static_cast<int>(random() % 3));
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id);
      REQUIRE(progress.ended());
      cluster.CheckExact(id);
    }
    cluster.Shutdown();
  }
}

TEST_CASE("workers that hand over to each other never wait for each other in a circle") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 977);
    std::vector<SimWorkerOptions> workers = RandomCluster(&random, false, depth);
    for (SimWorkerOptions& w : workers) {
      w.pages = 21 + static_cast<int>(random() % 8);
      w.role = static_cast<Role>(1 + random() % 3);
    }
    SimCluster cluster(seed, 4, workers);
    for (int i = 0; i < 24; ++i)
      cluster.Submit(RandomRequest(&random, 60, 24), static_cast<int>(random() % 3),
                     static_cast<int>(random() % 3));
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id, progress.prefill, progress.decode);
      REQUIRE(progress.ended());
      cluster.CheckExact(id);
    }
    cluster.Shutdown();
  }
}

TEST_CASE("a cancel at any moment frees everything and harms no other request") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  std::mt19937_64 random(5);
  const std::vector<SimWorkerOptions> workers = RandomCluster(&random, false, depth);
  std::vector<SimRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(RandomRequest(&random, 40, 12));
  requests[1].max_tokens = 12;  // the request to be cancelled
  requests[1].stop_tokens.clear();
  const bool colocated = GENERATE(false, true);
  int moments = 0;
  for (int moment = 0;; ++moment) {
    CAPTURE(moment, colocated);
    SimCluster cluster(9, 4, workers);
    for (int i = 0; i < 4; ++i) cluster.Submit(requests[i], colocated ? 2 : i % 2, 2);
    bool dry = false;
    for (int i = 0; i < moment && !dry; ++i) dry = !cluster.Step();
    const bool had_ended = cluster.progress(2).ended();
    cluster.Cancel(2);
    cluster.Cancel(2);  // idempotent
    cluster.RunDry();
    REQUIRE(cluster.progress(2).ended());
    if (had_ended) cluster.CheckExact(2);
    for (const RequestId id : {1, 3, 4}) cluster.CheckExact(id);
    cluster.Shutdown();
    ++moments;
    if (dry) break;
  }
  REQUIRE(moments > 50);
}

TEST_CASE("a broken handoff ends both parts and returns all pages") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  for (int moment = 1; moment < 120; moment += 3) {
    CAPTURE(moment);
    std::mt19937_64 random(moment);
    SimCluster cluster(moment, 4, RandomCluster(&random, false, depth));
    for (int i = 0; i < 5; ++i) cluster.Submit(RandomRequest(&random, 40, 12), i % 2, 2);
    for (int i = 0; i < moment; ++i) cluster.Step();
    cluster.BreakHandoffs();
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id);
      REQUIRE(progress.ended());
      if (progress.prefill_end.reason != EndReason::kFailed) cluster.CheckExact(id);
    }
    cluster.Shutdown();
  }
}

TEST_CASE("a lost router cancels everything at once") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  std::mt19937_64 random(3);
  for (int moment = 0; moment < 200; moment += 7) {
    CAPTURE(moment);
    SimCluster cluster(moment + 1, 4, RandomCluster(&random, false, depth));
    for (int i = 0; i < 5; ++i) cluster.Submit(RandomRequest(&random, 40, 12), i % 2, 2);
    for (int i = 0; i < moment; ++i) cluster.Step();
    for (int w = 0; w < 3; ++w)
      cluster.core(w).Handle(RouterEvent(RouterDisconnected{absl::UnavailableError("gone")}));
    cluster.DropMessages();  // messages of the router that were under way
    cluster.WakeAll();
    cluster.RunDry();
    for (int w = 0; w < 3; ++w) {
      REQUIRE(cluster.core(w).IsQuiet());
      REQUIRE(cluster.core(w).metrics().load.pages_free == cluster.pool(w).total());
    }
    cluster.Shutdown();
  }
}

TEST_CASE("a pool with room for one request at a time serves all, in order of room") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  std::vector<SimWorkerOptions> workers(3);
  workers[0].role = workers[1].role = Role::kPrefill;
  workers[2].role = Role::kDecode;
  workers[2].pages = 21;
  for (SimWorkerOptions& w : workers) w.depth = depth;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    SimCluster cluster(seed, 4, workers);
    for (int i = 0; i < 12; ++i) {
      SimRequest request = RandomRequest(&random, 60, 24);
      request.prompt.resize(60, 1);
      request.max_tokens = 24;
      cluster.Submit(request, i % 2, 2);
    }
    cluster.RunDry();
    REQUIRE(cluster.no_room_notices() > 0);
    for (const auto& [id, progress] : cluster.all()) cluster.CheckExact(id);
    cluster.Shutdown();
  }
}

TEST_CASE("pools of a tenth of the demand: all end, exact, after at most four preemptions each") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  int preempted = 0, max = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 6151);
    std::vector<SimWorkerOptions> workers = RandomCluster(&random, false, depth);
    for (SimWorkerOptions& w : workers) {
      w.pages = 20 + static_cast<int>(random() % 4);
      w.max_batch = 8;
      w.max_step_tokens = 9 + static_cast<int>(random() % 40);
      if (seed % 2 == 0) w.role = static_cast<Role>(1 + random() % 3);
    }
    SimCluster cluster(seed, 4, workers);
    for (int i = 0; i < 40; ++i) {
      SimRequest request = RandomRequest(&random, 8, 60);
      // One in eight prompts fills the whole pool.
      if (i % 8 == 7) request.prompt.resize(4 * 19, 5);
      request.max_tokens =
          std::min(request.max_tokens, 81 - static_cast<int>(request.prompt.size()));
      const int prefill = static_cast<int>(random() % (seed % 2 == 0 ? 3 : 2));
      cluster.Submit(request, prefill, seed % 2 == 0 ? static_cast<int>(random() % 3) : 2);
      if (seed % 3 == 0) cluster.Step();
    }
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id, progress.prefill, progress.decode, progress.preemptions);
      REQUIRE(progress.ended());
      cluster.CheckExact(id);
      REQUIRE(progress.preemptions <= 4);
      max = std::max(max, progress.preemptions);
    }
    uint64_t counted = 0;
    for (int w = 0; w < 3; ++w) counted += cluster.core(w).metrics().preemptions;
    REQUIRE(counted == static_cast<uint64_t>(cluster.preemptions()));
    preempted += cluster.preemptions();
    cluster.Shutdown();
  }
  REQUIRE(preempted > 100);
  REQUIRE(max == 3);  // the bound is reached, so some requests were covered
}

TEST_CASE("prompts with common beginnings share their KV and stay exact, however small the pool") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  uint64_t reused = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 313);
    std::vector<SimWorkerOptions> workers = RandomCluster(&random, seed % 2 == 0, depth);
    for (SimWorkerOptions& w : workers) w.pages = 24 + static_cast<int>(random() % 20);
    SimCluster cluster(seed, 4, workers);
    for (int i = 0; i < 24; ++i) {
      SimRequest request = RandomRequest(&random, 20, 24);
      std::vector<int32_t> beginning(8 + 16 * (random() % 3), 3);
      request.prompt.insert(request.prompt.begin(), beginning.begin(), beginning.end());
      const int prefill = static_cast<int>(random() % 2);
      const RequestId id = cluster.Submit(request, prefill, seed % 2 == 0 ? prefill : 2);
      for (uint64_t steps = random() % 60; steps-- > 0;) cluster.Step();
      if (i % 7 == 0) cluster.Cancel(id);
    }
    cluster.RunDry();
    for (const auto& [id, progress] : cluster.all()) {
      CAPTURE(id);
      REQUIRE(progress.ended());
      if (!progress.cancelled) cluster.CheckExact(id);
    }
    for (size_t w = 0; w < workers.size(); ++w)
      reused += cluster.core(static_cast<int>(w)).metrics().reused_tokens;
    cluster.Shutdown();
  }
  REQUIRE(reused > 5000);
}

// A request among endless short requests. Workers: 0 prefill, 1 both, 2 decode; 40 pages of 4
// tokens.
struct Crowd {
  const char* what;
  int prefill, decode;              // of the long request
  int short_prefill, short_decode;  // of the short requests
  int n_prompt, max_tokens;         // of the long request
};

TEST_CASE("no request starves among endless short ones") {
  const int depth = GENERATE(0, 1, 2, 3);
  CAPTURE(depth);
  const Crowd crowd = GENERATE(values<Crowd>({
      {"a prompt fills the source's pool", 0, 2, 0, 2, 160, 1},
      {"a sequence fills the sink's pool", 0, 2, 0, 2, 150, 8},
      {"a sequence of a worker that is busy with its own prompts", 0, 1, 1, 1, 150, 8},
      {"a sequence of a decode worker that is busy with its own prompts", 0, 2, 2, 2, 150, 8},
      {"a prompt of a worker that is busy with sequences", 1, 1, 0, 1, 150, 8},
      {"a prompt of a decode worker that is busy with sequences", 2, 2, 0, 2, 150, 8},
      {"an answer fills the pool: it is preempted", 0, 2, 0, 2, 8, 150},
  }));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(crowd.what, seed);
    std::mt19937_64 random(seed);
    std::vector<SimWorkerOptions> workers(3);
    for (SimWorkerOptions& w : workers) {
      w.pages = 40;
      w.depth = depth;
    }
    workers[0].role = Role::kPrefill;
    workers[2].role = Role::kDecode;
    SimCluster cluster(seed, 4, workers);
    std::vector<RequestId> others;
    const auto keep_busy = [&] {
      std::erase_if(others, [&](RequestId id) { return cluster.progress(id).ended(); });
      while (others.size() < 10)
        others.push_back(cluster.Submit(RandomRequest(&random, 40, 12), crowd.short_prefill,
                                        crowd.short_decode));
    };
    for (int i = 0; i < 300; ++i) {
      keep_busy();
      cluster.Step();
    }
    SimRequest request = RandomRequest(&random, 1, 1);
    request.prompt.assign(static_cast<size_t>(crowd.n_prompt), 7);
    request.max_tokens = crowd.max_tokens;
    const RequestId id = cluster.Submit(request, crowd.prefill, crowd.decode);
    const size_t before = cluster.all().size();
    while (!cluster.progress(id).ended()) {
      keep_busy();
      REQUIRE(cluster.Step());
      // Each round adds up to 40 tokens and 13 pages: far more than any bound allows to pass.
      REQUIRE(cluster.all().size() - before < 300);
    }
    cluster.RunDry();
    for (const auto& [each, progress] : cluster.all()) cluster.CheckExact(each);
    cluster.Shutdown();
  }
}

TEST_CASE("a stream is never stalled by a long prompt beside it") {
  const int depth = GENERATE(0, 1);
  // A worker for both phases: while a row decodes, a step has at most mixed_prefill_tokens.
  std::vector<SimWorkerOptions> workers(1);
  workers[0].pages = 400;
  workers[0].depth = depth;
  workers[0].max_step_tokens = 512;
  workers[0].mixed_prefill_tokens = 8;
  SimCluster cluster(1, 4, workers);
  SimRequest stream;
  stream.prompt = {1, 2, 3};
  stream.max_tokens = 40;
  const RequestId id = cluster.Submit(stream, 0, 0);
  while (cluster.progress(id).tokens.empty()) REQUIRE(cluster.Step());
  SimRequest prompt;
  prompt.prompt.assign(400, 5);
  prompt.max_tokens = 2;
  cluster.Submit(prompt, 0, 0);
  const uint64_t before = cluster.core(0).metrics().steps;
  while (!cluster.progress(id).ended()) REQUIRE(cluster.Step());
  // One token per step: the prompt shared the stream's steps and added none.
  REQUIRE(cluster.core(0).metrics().steps - before <= 40);
  REQUIRE(cluster.core(0).metrics().mixed_steps >= 30);
  cluster.RunDry();
  for (const auto& [each, progress] : cluster.all()) cluster.CheckExact(each);
  cluster.Shutdown();
}

}  // namespace
}  // namespace baton
