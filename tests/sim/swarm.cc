#include "tests/sim/swarm.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lab/relay_lab.h"

namespace baton::sim {
namespace {

constexpr int64_t kSlotBytes = 8;  // per token and layer (hash_backend.h)

WorkerPlan DrawWorker(const Swarm& swarm, Role role, SimRandom& random) {
  WorkerPlan plan;
  plan.role = role;
  plan.pages = swarm.largest_request_pages() + 1;
  if (random.Percent(60)) plan.pages += static_cast<int>(random.Magnitude(1, 120));
  plan.max_batch = static_cast<int>(random.Magnitude(1, 8));
  plan.max_step_tokens = plan.max_batch + static_cast<int>(random.Magnitude(1, 64));
  plan.mixed_prefill_tokens = static_cast<int>(random.Magnitude(1, 16));
  plan.chunk_tokens = random.Percent(50) ? 0 : static_cast<int>(random.Magnitude(1, 16));
  plan.announce_bytes = random.Percent(50) ? 1 : random.Magnitude(32, 4096);
  plan.step_us = random.Magnitude(50, 16'000);
  plan.token_us = random.Magnitude(1, 100);
  return plan;
}

// Draws from a separate random source, as DrawWindows does. Conversations have prompts of many
// pages.
void DrawTurns(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x7475726e73);
  if (random.Percent(50)) return;
  swarm->turn_percent = static_cast<int>(random.Between(20, 95));
  swarm->max_prompt = std::max(swarm->max_prompt, static_cast<int>(random.Magnitude(8, 96)));
}

void DrawCluster(Swarm* swarm, SimRandom& random) {
  swarm->page_tokens = 1 << random.Between(1, 3);
  swarm->n_layers = static_cast<int>(random.Between(1, 4));
  swarm->max_prompt = static_cast<int>(random.Magnitude(2, 48));
  swarm->max_tokens = static_cast<int>(random.Magnitude(1, 24));
  DrawTurns(swarm);
  std::vector<Role> roles;
  const bool colocated = random.Percent(20);
  if (!colocated) {
    roles.insert(roles.end(), random.Magnitude(1, 4), Role::kPrefill);
    roles.insert(roles.end(), random.Magnitude(1, 4), Role::kDecode);
  }
  if (colocated || random.Percent(20)) roles.insert(roles.end(), random.Between(1, 3), Role::kBoth);
  for (const Role role : roles) swarm->workers.push_back(DrawWorker(*swarm, role, random));
}

// Draws from a separate random source, so that the rest of a run is the same as without windows.
void DrawWindows(Swarm* swarm) {
  constexpr uint64_t kEvery = 4;
  if (swarm->seed % kEvery != 1) return;
  SimRandom random(swarm->seed ^ 0x77696e646f7773);
  const bool in_all = random.Percent(50);
  const int64_t largest = random.Magnitude(1, 24);
  for (int layer = 0; layer < swarm->n_layers; ++layer)
    swarm->windows.push_back(
        in_all || random.Percent(50) ? static_cast<int>(random.Between(1, largest)) : 0);
}

// Draws from a separate random source, as DrawWindows does. Seeds without windows.
void DrawDepth(Swarm* swarm) {
  constexpr uint64_t kEvery = 4;
  if (swarm->seed % kEvery != 2) return;
  SimRandom random(swarm->seed ^ 0x6465707468);
  swarm->depth = static_cast<int>(random.Between(1, 3));
}

// Draws from a separate random source, as DrawWindows does.
void DrawCopies(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x636f70696573);
  swarm->late_copies = swarm->depth > 0 || random.Percent(25);
}

// Draws from a separate random source, as DrawWindows does.
void DrawSlices(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x736c69636573);
  swarm->segment_keys = random.Percent(25) ? 0 : static_cast<int>(random.Magnitude(1, 16));
  swarm->cut_through = random.Percent(80);
  const uint64_t push = random.Below(100);
  if (push < 40) swarm->router.relay.sharing = SharingOf({.push = RelayPush::kAll});
  if (push >= 70) swarm->router.relay.sharing = SharingOf({.push = RelayPush::kTail});
  if (random.Percent(30)) swarm->max_slice_tokens = static_cast<int>(random.Magnitude(1, 48));
  swarm->slow_links = random.Percent(40);
  // A bound so low that most relays need rounds.
  constexpr uint64_t kRoundsEvery = 3;
  if (swarm->seed % kRoundsEvery == 0)
    swarm->max_slice_tokens = swarm->page_tokens * static_cast<int>(random.Magnitude(1, 4));
}

// Draws from a separate random source, as DrawWindows does.
void DrawLostPages(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x7061676573);
  if (random.Percent(50)) swarm->lost_pages_percent = static_cast<int>(random.Magnitude(1, 60));
}

// Draws from a separate random source, as DrawWindows does.
void DrawRouters(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x726f7574657273);
  if (random.Percent(35)) swarm->n_routers = random.Percent(75) ? 2 : 3;
}

void DrawTransfer(Swarm* swarm, SimRandom& random) {
  const int64_t plane = swarm->page_tokens * kSlotBytes;
  swarm->chunk_bytes = random.Magnitude(plane, plane * 32);
  swarm->window_bytes = random.Magnitude(plane, plane * 64);
  swarm->slab_slots = static_cast<int>(random.Magnitude(1, 16));
  swarm->peer_timeout_ms = random.Percent(50) ? 4000 : random.Magnitude(500, 5000);
  swarm->hello_timeout_ms = random.Percent(50) ? 2000 : random.Magnitude(200, 2000);
  swarm->tick_us = random.Percent(50) ? 10'000 : random.Between(10'000, 60'000);
  swarm->link_at_once = random.Percent(30);
}

void DrawWires(Swarm* swarm, SimRandom& random) {
  swarm->min_delay_us = random.Magnitude(1, 2000);
  swarm->mean_delay_us = random.Magnitude(10, 20'000);
  swarm->slow_percent = random.Percent(50) ? 0 : static_cast<int>(random.Between(1, 10));
  swarm->wake_us = random.Magnitude(1, 1000);
  swarm->front_us = random.Percent(70) ? swarm->wake_us : random.Magnitude(1, 200'000);
  swarm->keepalive_us = random.Percent(50) ? 4'000'000 : random.Magnitude(300'000, 4'000'000);
  if (random.Percent(30)) {
    swarm->far_worker = static_cast<int>(random.Below(swarm->workers.size()));
    swarm->far_us = random.Magnitude(1'000, 200'000);
  }
}

void DrawWork(Swarm* swarm, SimRandom& random) {
  swarm->n_requests = static_cast<int>(random.Between(20, 120));
  swarm->arrival_gap_us = random.Magnitude(100, 60'000);
  swarm->cancel_percent = random.Percent(50) ? 0 : static_cast<int>(random.Between(1, 60));
  swarm->deadline_percent = random.Percent(60) ? 0 : static_cast<int>(random.Between(1, 30));
  swarm->stop_percent = static_cast<int>(random.Between(0, 60));
  swarm->must_complete = random.Percent(75);
  swarm->router.max_attempts = swarm->must_complete ? 1'000'000 : 4;
  swarm->router.max_lost_attempts = swarm->must_complete ? 1'000'000 : 8;
  swarm->router.relay.min_tokens =
      random.Percent(8) ? 0 : static_cast<int32_t>(random.Magnitude(2, 32));
  swarm->router.relay.max_ranks = 2 + static_cast<int>(swarm->seed % 3);
  swarm->router.relay.min_ranks = swarm->seed % 8 == 0 ? 1 : 2;  // 2: even if it does not pay
  swarm->router.worker_wait = swarm->must_complete ? absl::Hours(10) : absl::Seconds(30);
}

void DrawFaults(Swarm* swarm, SimRandom& random) {
  swarm->calm = random.Percent(10);
  if (swarm->calm) {
    swarm->slow_percent = 0;
    swarm->slow_links = false;
    return;
  }
  swarm->kills = random.Percent(50);
  swarm->pauses = random.Percent(50);
  swarm->control_breaks = random.Percent(50);
  swarm->cuts = random.Percent(50);
  swarm->partitions = random.Percent(50);
  swarm->clogs = random.Percent(50);
  swarm->stops = random.Percent(50);
  swarm->router_restarts = random.Percent(25);
  constexpr double kThousandth = 1e-3;
  if (random.Percent(50))
    swarm->corrupt_payload = static_cast<double>(random.Magnitude(5, 400)) * kThousandth;
  if (random.Percent(50))
    swarm->duplicate_message = static_cast<double>(random.Magnitude(1, 400)) * kThousandth;
  if (swarm->cuts && random.Percent(75))
    swarm->cut_connection = static_cast<double>(random.Magnitude(2, 60)) * kThousandth;
  if (random.Percent(75))
    swarm->late_landing = static_cast<double>(random.Between(100, 1000)) * kThousandth;
  swarm->fault_gap_us = random.Magnitude(2'000, 200'000);
  swarm->max_faults = static_cast<int>(random.Magnitude(4, 150));
}

// Draws from a separate random source, as DrawWindows does; after all other faults.
void DrawStands(Swarm* swarm) {
  SimRandom random(swarm->seed ^ 0x7374616e6473);
  swarm->stands = !swarm->calm && random.Percent(15);
  swarm->stands_alone = swarm->stands && random.Percent(40);
  if (!swarm->stands_alone) return;
  swarm->kills = swarm->pauses = swarm->control_breaks = swarm->cuts = swarm->partitions =
      swarm->clogs = swarm->stops = swarm->router_restarts = swarm->slow_links = false;
  swarm->corrupt_payload = swarm->duplicate_message = swarm->cut_connection = 0;
  // Requests come all the while, and few engines stand at the same time.
  swarm->arrival_gap_us = random.Magnitude(10'000, 300'000);
  swarm->fault_gap_us = random.Magnitude(200'000, 4'000'000);
  swarm->max_faults = static_cast<int>(random.Magnitude(1, 12));
}

}  // namespace

Swarm Swarm::Draw(uint64_t seed) {
  constexpr uint64_t kFloodEvery = 128;
  if (seed % kFloodEvery == 0) return Flood(seed);
  SimRandom random(seed ^ 0x5a4d6f7265746162);
  Swarm swarm;
  swarm.seed = seed;
  DrawCluster(&swarm, random);
  DrawWindows(&swarm);
  DrawDepth(&swarm);
  DrawCopies(&swarm);
  DrawSlices(&swarm);
  DrawLostPages(&swarm);
  DrawTransfer(&swarm, random);
  DrawWires(&swarm, random);
  DrawWork(&swarm, random);
  DrawFaults(&swarm, random);
  DrawStands(&swarm);
  DrawRouters(&swarm);
  return swarm;
}

Swarm Swarm::Flood(uint64_t seed) {
  SimRandom random(seed ^ 0x666c6f6f64);
  Swarm swarm;
  swarm.seed = seed;
  swarm.page_tokens = 4;
  swarm.max_prompt = 48;
  swarm.max_tokens = 8;
  for (const Role role : {Role::kPrefill, Role::kDecode})
    swarm.workers.push_back(DrawWorker(swarm, role, random));
  WorkerPlan& prefill = swarm.workers.front();
  prefill.step_us = 2000;
  prefill.chunk_tokens = 0;  // whole steps while the long request has its turn
  prefill.max_step_tokens = prefill.max_batch + static_cast<int>(random.Magnitude(1, 16));
  WorkerPlan& decode = swarm.workers.back();  // large, so that no OPEN waits there
  decode.pages = 1000;
  decode.max_batch = 64;
  decode.max_step_tokens = 65;
  decode.step_us = 100;
  DrawTransfer(&swarm, random);
  swarm.min_delay_us = 20;
  swarm.mean_delay_us = 50;
  swarm.n_requests = 1000;
  swarm.arrival_gap_us = 100;
  swarm.router.max_attempts = swarm.router.max_lost_attempts = 1'000'000;
  swarm.calm = true;
  swarm.long_request = static_cast<int>(random.Between(0, 50));
  swarm.router.local = false;  // the bound is one worker's
  // The bound of docs/SCHEDULING.md, plus the tokens computed while the OPEN and its answer are
  // under way.
  constexpr int kStretch = 3, kBaseTokens = 256, kStepsToPromise = 4;
  swarm.max_overtaking = kStretch * (swarm.max_prompt + kBaseTokens) +
                         (1 + kStepsToPromise) * prefill.max_step_tokens +
                         prefill.pages * swarm.page_tokens;
  return swarm;
}

int Swarm::largest_window() const {
  return windows.empty() ? 0 : *std::max_element(windows.begin(), windows.end());
}

std::string Swarm::ToString() const {
  std::string out = absl::StrFormat(
      "seed %d: page_tokens %d, layers %d, attention windows (%s), depth %d%s, segments of "
      "%d keys%s, slices "
      "<= %d, chunk "
      "%d, "
      "window %d, slots %d, "
      "peer timeout %d ms, "
      "tick %d us%s\n  wires %d..%d us, slow %d%%, wake %d us, front %d us, "
      "keepalive %d us\n  %d requests "
      "every %d us, prompt <= %d, tokens <= %d, turns %d%%, cancel %d%%, deadline %d%%, relay from "
      "%d of <= %d, %s\n  "
      "faults every %d "
      "us:%s%s%s%s%s%s%s%s%s%s, corrupt %.3f, duplicate %.3f, cut %.3f, late %.3f, pages lost "
      "%d%%\n",
      seed, page_tokens, n_layers, absl::StrJoin(windows, " "), depth,
      late_copies ? ", late copies" : "", segment_keys,
      cut_through ? "" : ", whole prefixes forwarded", max_slice_tokens, chunk_bytes, window_bytes,
      slab_slots, peer_timeout_ms, tick_us, link_at_once ? ", link at once" : "", min_delay_us,
      mean_delay_us, slow_percent, wake_us, front_us, keepalive_us, n_requests, arrival_gap_us,
      max_prompt, max_tokens, turn_percent, cancel_percent, deadline_percent,
      router.relay.min_tokens, router.relay.max_ranks,
      must_complete ? "all must complete" : "four attempts", fault_gap_us, kills ? " kill" : "",
      pauses ? " pause" : "", control_breaks ? " break" : "", cuts ? " cut" : "",
      partitions ? " partition" : "", clogs ? " clog" : "", stops ? " stop" : "",
      router_restarts ? " router" : "", slow_links ? " slow" : "",
      stands_alone ? " stand alone"
      : stands     ? " stand"
                   : "",
      corrupt_payload, duplicate_message, cut_connection, late_landing, lost_pages_percent);
  if (n_routers > 1) out += absl::StrFormat("  %d routers\n", n_routers);
  for (size_t i = 0; i < workers.size(); ++i) {
    const WorkerPlan& w = workers[i];
    const char* role = w.role == Role::kPrefill  ? "prefill"
                       : w.role == Role::kDecode ? "decode"
                                                 : "both";
    out += absl::StrFormat(
        "  worker %d: %s, %d pages, batch %d, step %d, mixed %d, chunk %d, announce %d, %d us + %d "
        "us per token\n",
        i, role, w.pages, w.max_batch, w.max_step_tokens, w.mixed_prefill_tokens, w.chunk_tokens,
        w.announce_bytes, w.step_us, w.token_us);
  }
  return out;
}

}  // namespace baton::sim
