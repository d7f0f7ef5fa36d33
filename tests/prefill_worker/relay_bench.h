// Workers that are ranks of relays, the transfer between them played by hand, cell by cell: late,
// in any order, or never.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "prefill_worker/scheduler_bench.h"

namespace baton {

inline constexpr int kLayers = 3;
inline constexpr Incarnation kNextRank = 3;

// Of request r the handoff of rank i to the next is 1000 * (i + 1) + r, the tail's to decode r, and
// rank i's push 100'000 * (i + 1) + r.
inline RequestId HopId(RequestId request, int rank) { return 1000u * (rank + 1u) + request; }
inline RequestId PushId(RequestId request, int rank) { return 100'000u * (rank + 1u) + request; }

inline SequentialTokens Expected(RequestId id, int n_tokens) {
  HashBackend reference(kPageTokens);
  const PrefillRequest request = Bench::Request(id, n_tokens);
  return SequentialRun(&reference, request.tokens, 1, request.sampling);
}

// Rank i computes tokens [ends[i - 1], ends[i]) of a request.
struct Relay {
  Relay(RequestId request, std::vector<int> slice_ends, std::vector<Bench*> ranks_in_order,
        Incarnation decode, bool every_rank_pushes = false)
      : id(request),
        ends(std::move(slice_ends)),
        ranks(std::move(ranks_in_order)),
        sink(decode),
        pushes(every_rank_pushes),
        hops(ranks.size() - 1) {
    REQUIRE(ends.size() == ranks.size());
  }

  // The same slices in the next attempt, `bench` in place of rank `lost`.
  Relay Mended(int lost, Bench* bench) const {
    std::vector<Bench*> others = ranks;
    others[static_cast<size_t>(lost)] = bench;
    Relay next(id, ends, others, sink, pushes);
    next.epoch = epoch + 1;
    return next;
  }
  RequestId HandoffOf(int rank) const {
    return (rank + 1 == n_ranks() ? id : HopId(id, rank)) + 10'000'000u * (epoch - 1u);
  }
  RequestId PushIdOf(int rank) const { return PushId(id, rank) + 10'000'000u * (epoch - 1u); }

  int n_ranks() const { return static_cast<int>(ranks.size()); }
  Bench& tail() const { return *ranks.back(); }
  PrefillRequest RequestOf(int rank) const {
    const bool is_head = rank + 1 < n_ranks();
    PrefillRequest request = Bench::Request(id, ends.back(), is_head ? kNextRank : sink);
    if (is_head) {
      request.tokens.resize(static_cast<size_t>(ends[rank]));
      request.ticket.id = Bench::Id(HandoffOf(rank));
      request.ticket.kv_pages = ends[rank] / kPageTokens;
      request.ticket.promise_pages = 0;
      request.is_head = true;
      if (pushes) request.push = PushOf(rank);
    } else if (pushes) {
      request.ticket.first_page = FirstPage(rank);
    }
    if (!is_head) request.ticket.id = Bench::Id(HandoffOf(rank));
    request.epoch = request.ticket.epoch = epoch;
    if (rank > 0)
      request.inflow = {.ticket_id = Bench::Id(HandoffOf(rank - 1)), .tokens = ends[rank - 1]};
    return request;
  }
  int FirstPage(int rank) const { return rank == 0 ? 0 : ends[rank - 1] / kPageTokens; }
  Push PushOf(int rank) const {
    Push push{.ticket = {}, .sink = {.incarnation = sink, .address = "peer:1"}};
    push.ticket.id = Bench::Id(PushIdOf(rank));
    push.ticket.epoch = 1;
    push.ticket.part_of = Bench::Id(HandoffOf(n_ranks() - 1));
    push.ticket.first_page = FirstPage(rank);
    push.ticket.kv_pages = ends[rank] / kPageTokens - FirstPage(rank);
    return push;
  }
  void Admit(int rank) { ranks[rank]->Admit(RequestOf(rank)); }
  void AdmitAll() {
    for (int rank = n_ranks() - 1; rank >= 0; --rank) Admit(rank);
  }

  // What the transfer room says to an OPEN, once the next rank awaits; and the decode worker.
  void PromiseAll() {
    for (int rank = 0; rank < n_ranks(); ++rank) {
      const bool is_tail = rank + 1 == n_ranks();
      const RequestId handoff = HandoffOf(rank);
      if (std::count(ranks[rank]->opens.begin(), ranks[rank]->opens.end(), handoff) == 0) continue;
      if (is_tail || Pages(rank) != nullptr)
        ranks[rank]->Promise(handoff);
      else
        ranks[rank]->scheduler->NoRoom({.ticket_id = Bench::Id(handoff), .expected_wait_us = 0});
    }
  }
  // nullptr: not awaited yet.
  const AwaitInflow* Awaited(int hop) const {
    for (const AwaitInflow& await : ranks[hop + 1]->awaits)
      if (await.ticket_id == Bench::Id(HandoffOf(hop))) return &await;
    return nullptr;
  }
  // Where hop `hop` lands.
  const std::vector<int32_t>* Pages(int hop) const {
    const AwaitInflow* const await = Awaited(hop);
    return await == nullptr ? nullptr : &await->pages;
  }
  bool IsThere(int hop, int plane, int page) const {
    const AwaitInflow* const await = Awaited(hop);
    return hops[hop].landed.contains({plane, page}) ||
           (await != nullptr &&
            std::pair(plane, page) < std::pair(await->n_planes, await->n_pages));
  }

  struct Cell {
    int plane, page;
    int32_t from;  // page id at the source
    auto operator<=>(const Cell&) const = default;
  };
  // Told to the transfer room and not landed, in the order in which they were told.
  std::vector<Cell> Waiting(int hop) const {
    std::vector<Cell> cells;
    for (const SendCells& sent : ranks[hop]->sent) {
      if (sent.ticket_id != Bench::Id(HandoffOf(hop))) continue;
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i) {
          const int page = sent.first_page + static_cast<int>(i);
          if (!IsThere(hop, plane, page)) cells.push_back({plane, page, sent.pages[i]});
        }
    }
    return cells;
  }
  // One cell lands at the rank after the hop, which hears of it as from a handoff's sink.
  void Land(int hop, const Cell& cell) {
    REQUIRE(Pages(hop) != nullptr);
    Bench& from = *ranks[hop];
    Bench& to = *ranks[hop + 1];
    const int64_t bytes = to.pool->layout().planes[static_cast<size_t>(cell.plane)].bytes;
    std::memcpy(to.pool->plane(Pages(hop)->at(static_cast<size_t>(cell.page)), cell.plane),
                from.pool->plane(cell.from, cell.plane), static_cast<size_t>(bytes));
    REQUIRE(hops[hop].landed.emplace(cell.plane, cell.page).second);
    Tell(hop);
  }
  // All that waits, of planes below n_planes.
  void Flow(int hop, int n_planes = kLayers) {
    for (const Cell& cell : Waiting(hop))
      if (cell.plane < n_planes) Land(hop, cell);
  }
  void Tell(int hop) {
    const int n_pages = ends[hop] / kPageTokens;
    InflowProgress now;
    while (now.planes < kLayers && IsThere(hop, now.planes, now.pages))
      if (++now.pages == n_pages) now = {now.planes + 1, 0};
    const InflowProgress before{.planes = Awaited(hop)->n_planes, .pages = Awaited(hop)->n_pages};
    if (now == std::max(before, std::exchange(hops[hop].told, now))) return;
    ranks[hop + 1]->scheduler->Arrived(
        {.ticket_id = Bench::Id(HandoffOf(hop)), .n_planes = now.planes, .n_pages = now.pages},
        ranks[hop + 1]->now);
    ranks[hop + 1]->Collect();
  }
  void FailInflow(int rank) {
    ranks[rank]->scheduler->Failed({.ticket_id = Bench::Id(HandoffOf(rank - 1)),
                                    .status = absl::UnavailableError("head lost")},
                                   ranks[rank]->now);
    ranks[rank]->Collect();
  }

  void RequireFirstToken() const {
    std::vector<TokenOut> tokens;
    for (const TokenOut& token : tail().tokens)
      if (token.request_id == id) tokens.push_back(token);
    REQUIRE(tokens.size() == 1);
    REQUIRE(tokens[0].position == ends.back());
    REQUIRE(tokens[0].token == Expected(id, ends.back()).tokens[0]);
    REQUIRE(tail().computed.count(id) == 1);
  }
  // Every cell of the handoff's n_pages from `first` on was told to the transfer room, each once,
  // and committed.
  void RequireSent(int rank, RequestId handoff, int first, int n_pages) const {
    std::set<std::pair<int, int>> cells;
    for (const SendCells& sent : ranks[rank]->sent) {
      if (sent.ticket_id != Bench::Id(handoff)) continue;
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i) {
          const int page = sent.first_page + static_cast<int>(i);
          REQUIRE(page >= first);
          REQUIRE(page < first + n_pages);
          REQUIRE(cells.emplace(plane, page).second);
        }
    }
    REQUIRE(static_cast<int>(cells.size()) == n_pages * kLayers);
    const auto& commits = ranks[rank]->commits;
    REQUIRE(std::count_if(commits.begin(), commits.end(), [&](const CommitHandoff& commit) {
              return commit.ticket_id == Bench::Id(handoff) && commit.record.n_tokens == ends[rank];
            }) == 1);
  }
  void RequireAllPassedOn(int rank) const {
    const bool is_tail = rank + 1 == n_ranks();
    const int first = is_tail && pushes ? FirstPage(rank) : 0;
    RequireSent(rank, HandoffOf(rank), first, (ends[rank] + kPageTokens - 1) / kPageTokens - first);
    if (!is_tail && pushes)
      RequireSent(rank, PushIdOf(rank), 0, ends[rank] / kPageTokens - FirstPage(rank));
  }
  // Their handoffs are over, and so are their parts.
  void EndAll() const {
    for (int rank = 0; rank < n_ranks(); ++rank) {
      const bool is_tail = rank + 1 == n_ranks();
      if (!is_tail || (sink != 0 && sink != kSelf)) {
        RequireAllPassedOn(rank);
        ranks[rank]->EndHandoff(HandoffOf(rank));
        if (!is_tail && pushes) {
          REQUIRE(ranks[rank]->ends.count(id) == 0);
          ranks[rank]->EndHandoff(PushIdOf(rank));
        }
      }
      REQUIRE(ranks[rank]->ends.at(id).reason == EndReason::kLength);
      REQUIRE(ranks[rank]->ends.at(id).was_prefill);
    }
  }

  struct Hop {
    std::set<std::pair<int, int>> landed;  // (plane, page)
    InflowProgress told;
  };
  Epoch epoch = 1;
  const RequestId id;
  const std::vector<int> ends;
  const std::vector<Bench*> ranks;
  const Incarnation sink;
  const bool pushes;
  std::vector<Hop> hops;
};

}  // namespace baton
