#include "tests/sim/outcome.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton::sim {

void FaultCounts::Add(const FaultCounts& other) {
  kills += other.kills;
  pauses += other.pauses;
  breaks += other.breaks;
  cuts += other.cuts;
  partitions += other.partitions;
  clogs += other.clogs;
  stops += other.stops;
  router_kills += other.router_kills;
  stands += other.stands;
  given_up += other.given_up;
  stands_checked += other.stands_checked;
  releases += other.releases;
  crc_errors += other.crc_errors;
  resent_chunks += other.resent_chunks;
  refused_chunks += other.refused_chunks;
  handoffs += other.handoffs;
  failed_handoffs += other.failed_handoffs;
  relays += other.relays;
  ranks_replaced += other.ranks_replaced;
  sinks_replaced += other.sinks_replaced;
  replaced_in_rounds += other.replaced_in_rounds;
  prefill_tokens += other.prefill_tokens;
  slow_links += other.slow_links;
  relays_left += other.relays_left;
  relays_in_rounds += other.relays_in_rounds;
  slice_blocks += other.slice_blocks;
  slice_wait_seconds += other.slice_wait_seconds;
  trimmed_pages += other.trimmed_pages;
  held_pages += other.held_pages;
  followed += other.followed;
  lost_pages += other.lost_pages;
}

void Outcome::Add(const Outcome& other) {
  n_events += other.n_events;
  healing_us = std::max(healing_us, other.healing_us);
  faults.Add(other.faults);
  clients.Add(other.clients);
  transitions.Add(other.transitions);
}

std::string Outcome::ToString() const {
  const FaultCounts& f = faults;
  const ClientCounts& c = clients;
  return absl::StrFormat(
      "faults: %d kills, %d pauses, %d streams broken, %d connections cut, %d partitions, %d "
      "clogs, %d damaged chunks, %d resent, %d refused\n"
      "handoffs: %d committed, %d failed\n"
      "relays: %d, of which %d were in rounds, %d went on with another rank, %d with another "
      "decode "
      "worker (%d of both in rounds), %d went on at one worker since they were late (%d links "
      "became slow); blocks of slices %d, which waited %.0f s for their inflows\n"
      "pages trimmed: %d, not sent since the sink had them: %d; prompts that waited for KV that "
      "another one computed: %d; messages about pages lost: %d\n"
      "requests: %d, of them %d complete, %d cancelled, %d late, %d failed, %d lost with their "
      "router; %d attempts, %d tokens\n"
      "workers told to stop: %d; engines that stood still: %d, checked %d; streams closed by the "
      "router: %d; routers killed: %d; ends of parts timed: %d; the last request "
      "ended at most %.1f s after all was healed\n",
      f.kills, f.pauses, f.breaks, f.cuts, f.partitions, f.clogs, f.crc_errors, f.resent_chunks,
      f.refused_chunks, f.handoffs, f.failed_handoffs, f.relays, f.relays_in_rounds,
      f.ranks_replaced, f.sinks_replaced, f.replaced_in_rounds, f.relays_left, f.slow_links,
      f.slice_blocks, f.slice_wait_seconds, f.trimmed_pages, f.held_pages, f.followed, f.lost_pages,
      c.submitted, c.complete, c.cancelled, c.late, c.failed, c.lost, c.attempts, c.tokens, f.stops,
      f.stands, f.stands_checked, f.given_up, f.router_kills, f.releases,
      static_cast<double>(healing_us) * 1e-6);
}

}  // namespace baton::sim
