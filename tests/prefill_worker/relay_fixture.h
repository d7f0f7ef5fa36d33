// Workers that are ranks of relays. The test plays the transfer between them by hand, cell by cell:
// late, in any order, or never.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/prefill_worker/scheduler_fixture.h"

namespace baton {

inline constexpr int kLayers = 3;
inline constexpr Incarnation kNextRank = 3;

// Ids of handoffs. For request r, slice i goes to the next rank as 1000 * (i + 1) + r and is pushed
// as 100'000 * (i + 1) + r; the last slice goes to decode as r.
inline RequestId HopId(RequestId request, int slice) { return 1000u * (slice + 1u) + request; }
inline RequestId PushId(RequestId request, int slice) { return 100'000u * (slice + 1u) + request; }

inline SequentialTokens Expected(RequestId id, int n_tokens) {
  HashBackend reference(kPageTokens);
  const PrefillRequest request = SchedulerFixture::Request(id, n_tokens);
  return SequentialRun(&reference, request.tokens, 1, request.sampling);
}

// Slice i is tokens [ends[i - 1], ends[i]) of a request; hop i hands over the KV that the rank of
// slice i + 1 lacks. With p ranks, rank i computes slice i, and in rounds slices p + i, 2 p + i...
// too. In a mended relay a bench may be two neighbouring ranks, which hand over nothing between
// them. In other relays a bench that stands for several ranks plays each separately.
struct RelayFixture {
  RelayFixture(RequestId request, std::vector<int> slice_ends,
               std::vector<SchedulerFixture*> ranks_in_order, Incarnation decode,
               bool every_rank_pushes = false)
      : id(request),
        ends(std::move(slice_ends)),
        ranks(std::move(ranks_in_order)),
        sink(decode),
        pushes(every_rank_pushes),
        hops(ends.size() - 1) {
    REQUIRE(ends.size() % ranks.size() == 0);
  }

  // Returns the same slices in the next attempt, with `bench` in place of rank `lost`.
  RelayFixture Mended(int lost, SchedulerFixture* bench) const {
    std::vector<SchedulerFixture*> others = ranks;
    others[static_cast<size_t>(lost)] = bench;
    RelayFixture next(id, ends, others, sink, pushes);
    next.epoch = epoch + 1;
    next.is_mended = true;
    return next;
  }
  RequestId HandoffOf(int slice) const {
    return (is_last(slice) ? id : HopId(id, slice)) + 10'000'000u * (epoch - 1u);
  }
  RequestId PushIdOf(int slice) const { return PushId(id, slice) + 10'000'000u * (epoch - 1u); }

  int n_ranks() const { return static_cast<int>(ranks.size()); }
  int n_slices() const { return static_cast<int>(ends.size()); }
  bool is_last(int slice) const { return slice + 1 == n_slices(); }
  SchedulerFixture& worker(int slice) const {
    return *ranks[static_cast<size_t>(slice % n_ranks())];
  }
  SchedulerFixture& tail() const { return *ranks.back(); }
  bool IsSameRank(int slice, int other) const {
    return is_mended ? &worker(slice) == &worker(other) : (slice - other) % n_ranks() == 0;
  }
  bool Stays(int slice) const { return !is_last(slice) && IsSameRank(slice, slice + 1); }
  // Returns the request of a rank; for a bench that is two ranks, the last rank's.
  PrefillRequest RequestOf(int rank) const {
    const int last = n_slices() - n_ranks() + rank;
    PrefillRequest request = SchedulerFixture::Request(id, ends.back(), sink);
    request.wants_first_token = is_last(last);
    request.tokens.resize(static_cast<size_t>(ends[last]));
    request.epoch = epoch;
    request.slices.clear();
    for (int slice = 0; slice <= last; ++slice)
      if (slice == last || IsSameRank(slice, rank)) request.slices.push_back(SpecOf(slice));
    return request;
  }
  SliceSpec SpecOf(int slice) const {
    SliceSpec spec{.begin = slice == 0 ? 0 : ends[slice - 1], .end = ends[slice]};
    if (slice > 0 && !Stays(slice - 1)) spec.inflow = SchedulerFixture::Id(HandoffOf(slice - 1));
    if (!is_last(slice) && !Stays(slice)) spec.outputs.push_back(HopOutput(slice));
    if (sink != 0 && (is_last(slice) || pushes)) spec.outputs.push_back(DecodeOutput(slice));
    return spec;
  }
  KvOutput HopOutput(int slice) const {
    const int n_pages = HopPages(slice);
    KvOutput output{.peer = {.incarnation = kNextRank, .address = "peer:1"},
                    .first_page = ends[slice] / kPageTokens - n_pages};
    output.ticket = {.id = SchedulerFixture::Id(HandoffOf(slice)),
                     .epoch = epoch,
                     .request_id = id,
                     .sink = kNextRank,
                     .promise = SchedulerFixture::Id(HandoffOf(slice)),
                     .kv_pages = n_pages,
                     .n_pages = n_pages};
    return output;
  }
  // The last slice brings what is not pushed.
  KvOutput DecodeOutput(int slice) const {
    KvOutput output = MainOf(SchedulerFixture::Request(id, ends.back(), sink));
    Ticket& ticket = output.ticket;
    ticket.id = SchedulerFixture::Id(is_last(slice) ? HandoffOf(slice) : PushIdOf(slice));
    ticket.promise = SchedulerFixture::Id(HandoffOf(n_slices() - 1));
    ticket.epoch = epoch;
    ticket.first_page = output.first_page = pushes ? FirstPage(slice) : 0;
    ticket.n_pages =
        (is_last(slice) ? ticket.kv_pages : ends[slice] / kPageTokens) - ticket.first_page;
    return output;
  }
  int FirstPage(int slice) const { return slice == 0 ? 0 : ends[slice - 1] / kPageTokens; }
  // Returns the pages that the rank of the next slice has neither computed nor received.
  int HopPages(int hop) const {
    int own = hop;
    while (own >= 0 && !IsSameRank(own, hop + 1)) --own;
    return (ends[hop] - (own < 0 ? 0 : ends[own])) / kPageTokens;
  }
  void Admit(int rank) { ranks[rank]->Admit(RequestOf(rank)); }
  void AdmitAll() {
    for (int rank = n_ranks() - 1; rank >= 0; --rank)
      if (rank + 1 == n_ranks() || !Stays(rank)) Admit(rank);
  }

  // Sends the promises of the transfer room and the decode worker, once the next rank awaits.
  void PromiseAll() {
    for (int slice = 0; slice < n_slices(); ++slice) {
      const RequestId handoff = HandoffOf(slice);
      const std::vector<RequestId>& opens = worker(slice).opens;
      if (std::count(opens.begin(), opens.end(), handoff) == 0) continue;
      if (is_last(slice) || Pages(slice) != nullptr)
        worker(slice).Promise(handoff);
      else
        worker(slice).NoRoom(handoff);
    }
  }
  // Returns the awaited inflow of a hop; nullptr: not awaited yet.
  const AwaitInflow* Awaited(int hop) const {
    for (const AwaitInflow& await : worker(hop + 1).awaits)
      if (await.ticket_id == SchedulerFixture::Id(HandoffOf(hop))) return &await;
    return nullptr;
  }
  // Returns the pages where hop `hop` lands.
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
  // Returns the cells told to the transfer room and not landed, in the order of the commands.
  std::vector<Cell> Waiting(int hop) const {
    std::vector<Cell> cells;
    for (const SendCells& sent : worker(hop).sent) {
      if (sent.ticket_id != SchedulerFixture::Id(HandoffOf(hop))) continue;
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i) {
          const int page = sent.first_page + static_cast<int>(i);
          if (!IsThere(hop, plane, page)) cells.push_back({plane, page, sent.pages[i]});
        }
    }
    return cells;
  }
  // Lands one cell at the rank after the hop, which gets the event as from a handoff's sink.
  void Land(int hop, const Cell& cell) {
    REQUIRE(Pages(hop) != nullptr);
    SchedulerFixture& from = worker(hop);
    SchedulerFixture& to = worker(hop + 1);
    const int64_t bytes = to.pool->layout().planes[static_cast<size_t>(cell.plane)].bytes;
    std::memcpy(to.pool->plane(Pages(hop)->at(static_cast<size_t>(cell.page)), cell.plane),
                from.pool->plane(cell.from, cell.plane), static_cast<size_t>(bytes));
    REQUIRE(hops[hop].landed.emplace(cell.plane, cell.page).second);
    ReportProgress(hop);
  }
  // Lands all waiting cells of planes below n_planes.
  void Flow(int hop, int n_planes = kLayers) {
    for (const Cell& cell : Waiting(hop))
      if (cell.plane < n_planes) Land(hop, cell);
  }
  void ReportProgress(int hop) {
    const int n_pages = HopPages(hop);
    InflowProgress now;
    while (now.planes < kLayers && IsThere(hop, now.planes, now.pages))
      if (++now.pages == n_pages) now = {now.planes + 1, 0};
    const InflowProgress before{.planes = Awaited(hop)->n_planes, .pages = Awaited(hop)->n_pages};
    if (now == std::max(before, std::exchange(hops[hop].told, now))) return;
    SchedulerFixture& to = worker(hop + 1);
    to.scheduler->prompts().On(InflowArrived{.ticket_id = SchedulerFixture::Id(HandoffOf(hop)),
                                             .n_planes = now.planes,
                                             .n_pages = now.pages},
                               to.now);
    to.Collect();
  }
  void FailInflow(int slice) {
    SchedulerFixture& to = worker(slice);
    to.scheduler->prompts().On(InflowFailed{.ticket_id = SchedulerFixture::Id(HandoffOf(slice - 1)),
                                            .status = absl::UnavailableError("head lost")},
                               to.now);
    to.Collect();
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
  // Requires that every cell of the handoff's n_pages from `first` on was told to the transfer room
  // exactly once, and committed.
  void RequireSent(int slice, RequestId handoff, int first, int n_pages) const {
    std::set<std::pair<int, int>> cells;
    for (const SendCells& sent : worker(slice).sent) {
      if (sent.ticket_id != SchedulerFixture::Id(handoff)) continue;
      for (int plane = sent.plane; plane < sent.plane + sent.n_planes; ++plane)
        for (size_t i = 0; i < sent.pages.size(); ++i) {
          const int page = sent.first_page + static_cast<int>(i);
          REQUIRE(page >= first);
          REQUIRE(page < first + n_pages);
          REQUIRE(cells.emplace(plane, page).second);
        }
    }
    REQUIRE(static_cast<int>(cells.size()) == n_pages * kLayers);
    const auto& commits = worker(slice).commits;
    REQUIRE(std::count_if(commits.begin(), commits.end(), [&](const CommitHandoff& commit) {
              return commit.ticket_id == SchedulerFixture::Id(handoff) &&
                     commit.record.n_tokens == ends[slice];
            }) == 1);
  }
  void RequireAllPassedOn(int slice) const {
    if (!is_last(slice)) {
      if (!Stays(slice)) RequireSent(slice, HandoffOf(slice), 0, HopPages(slice));
      if (pushes)
        RequireSent(slice, PushIdOf(slice), FirstPage(slice),
                    ends[slice] / kPageTokens - FirstPage(slice));
      return;
    }
    const int first = pushes ? FirstPage(slice) : 0;
    RequireSent(slice, HandoffOf(slice), first,
                (ends[slice] + kPageTokens - 1) / kPageTokens - first);
  }
  // Ends the workers' handoffs and their parts.
  void EndAll() const {
    for (int slice = 0; slice < n_slices(); ++slice) {
      if (is_last(slice) && (sink == 0 || sink == kSelf)) continue;
      RequireAllPassedOn(slice);
      if (!Stays(slice)) worker(slice).EndHandoff(HandoffOf(slice));
      if (is_last(slice) || !pushes) continue;
      REQUIRE(worker(slice).ends.count(id) == 0);
      worker(slice).EndHandoff(PushIdOf(slice));
    }
    for (const SchedulerFixture* rank : ranks) {
      REQUIRE(rank->ends.at(id).reason == EndReason::kLength);
      REQUIRE(rank->ends.at(id).was_prefill);
    }
  }

  struct Hop {
    std::set<std::pair<int, int>> landed;  // (plane, page)
    InflowProgress told;
  };
  Epoch epoch = 1;
  bool is_mended = false;
  const RequestId id;
  const std::vector<int> ends;
  const std::vector<SchedulerFixture*> ranks;
  const Incarnation sink;
  const bool pushes;
  std::vector<Hop> hops;
};

}  // namespace baton
