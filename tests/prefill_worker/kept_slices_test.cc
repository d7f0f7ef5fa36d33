// Slices that survive their attempt: a rank of a relay, also in rounds, is lost between any two
// blocks, another worker takes its place, and the other ranks continue where they were.
#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "tests/prefill_worker/relay_fixture.h"

namespace baton {
namespace {

constexpr int kRanks = 3;

std::unique_ptr<SchedulerFixture> MakeWorker(const RankOptions& options = {}, int n_pages = 200) {
  return std::make_unique<SchedulerFixture>(n_pages, 0, 4, options.transitions, true,
                                            std::vector<int>{}, RopeDesc{}, options);
}

// Answers cancels as the transfer room does once no operation touches the pages.
void AnswerCancels(SchedulerFixture* worker) {
  for (const CancelHandoff& cancel : std::exchange(worker->cancels, {})) {
    worker->scheduler->prompts().On(
        HandoffEnded{cancel.ticket_id, absl::CancelledError("cancelled"), 0}, worker->now);
    worker->scheduler->prompts().On(
        InflowFailed{cancel.ticket_id, 0, absl::CancelledError("cancelled")}, worker->now);
    worker->Collect();
  }
}

// Requires that no row of n_slices slices was projected or finished twice in all attempts together.
void RequireEachRowOnce(const SchedulerFixture& worker, int n_slices) {
  std::set<std::tuple<int, SliceBlock::Kind, int, int>> rows;
  int n_begun = 0;
  for (const SliceBlock& block : worker.blocks) {
    n_begun += block.is_first();
    for (int row = block.from; row < block.to && block.kind != SliceBlock::Kind::kAttend; ++row)
      REQUIRE(rows.emplace(n_begun, block.kind, block.layer, row).second);
  }
  REQUIRE(n_begun == n_slices);
}

// Returns slice ends of one round, and of several.
std::vector<int> SliceEnds() {
  return GENERATE(as<std::vector<int>>{}, std::vector<int>{12, 24, 35},
                  std::vector<int>{8, 16, 24, 36, 44, 53},
                  std::vector<int>{4, 12, 20, 28, 32, 40, 44, 56, 61});
}

struct KeptSlicesFixture {
  KeptSlicesFixture(unsigned seed, const std::vector<int>& ends) : random(seed) {
    RankOptions options;
    options.slice_keys = 4 * Below(3);
    options.whole_planes = Below(4) == 0;
    for (int i = 0; i <= kRanks; ++i) workers.push_back(MakeWorker(options));
    relay = std::make_unique<RelayFixture>(
        7, ends,
        std::vector<SchedulerFixture*>{workers[0].get(), workers[1].get(), workers[2].get()},
        Below(2) ? kPeer : 0, false);
    n_rounds = relay->n_slices() / kRanks;
  }
  ~KeptSlicesFixture() {
    for (auto& worker : workers) worker->scheduler->prompts().Abandon();
  }
  int Below(int n) { return static_cast<int>(random() % unsigned(n)); }
  void Act(RelayFixture* of) {
    SchedulerFixture* const worker = of->ranks[static_cast<size_t>(Below(kRanks))];
    if (Below(2)) AnswerCancels(worker);
    worker->Step(1 + Below(12));
    of->PromiseAll();
    for (int hop = Below(kRanks - 1); hop + 1 < of->n_slices(); hop += kRanks - 1)
      LandSome(of, hop);
  }
  void LandSome(RelayFixture* of, int hop) {
    if (of->Pages(hop) == nullptr) return;
    for (int cells = Below(8); cells > 0; --cells) {
      const std::vector<RelayFixture::Cell> waiting = of->Waiting(hop);
      if (waiting.empty()) break;
      of->Land(hop, waiting[static_cast<size_t>(Below(static_cast<int>(waiting.size())))]);
    }
  }
  bool IsComputed() const { return relay->tail().computed.contains(7); }
  // Another worker takes the lost rank's place; its neighbours may notice the loss before they get
  // the new relay.
  void Lose(int lost) { Lose(lost, workers.back().get()); }
  // Without another worker, the rank before the lost one takes its place; for the first rank, the
  // rank after it.
  SchedulerFixture* NeighbourOf(int lost) const {
    return relay->ranks[static_cast<size_t>(lost > 0 ? lost - 1 : 1)];
  }
  void Lose(int lost, SchedulerFixture* stand_in) {
    relay->ranks[static_cast<size_t>(lost)]->scheduler->prompts().Abandon();
    const int slice = lost + kRanks * Below(n_rounds);
    if (slice > 0 && Below(2))
      relay->worker(slice - 1).EndHandoff(relay->HandoffOf(slice - 1),
                                          absl::UnavailableError("lost"));
    if (!relay->is_last(slice) && Below(2)) relay->FailInflow(slice + 1);
    mended = std::make_unique<RelayFixture>(relay->Mended(lost, stand_in));
    mended->AdmitAll();
  }
  // Starts a slice of another relay on the worker.
  void Intrude(SchedulerFixture* worker, RequestId id) {
    RelayFixture other(id, {8, 12}, {worker, worker}, 0);
    other.Admit(0);
    worker->Step(1000);
    worker->Promise(other.HandoffOf(0));
    while (worker->Step(1000) > 0) {
    }
    worker->EndHandoff(other.HandoffOf(0));
  }
  void Finish() {
    const auto computed = [&] { return mended->tail().computed.contains(7); };
    for (int n = 0; n < 20'000 && !computed(); ++n) Act(mended.get());
    REQUIRE(computed());
    mended->RequireFirstToken();
    for (int hop = 0; hop + 1 < kRanks; ++hop) mended->Flow(hop);
    mended->EndAll();
    for (SchedulerFixture* worker : mended->ranks) {
      AnswerCancels(worker);
      worker->ForgetKept();
      REQUIRE(worker->pool->held() == 0);
    }
  }

  std::mt19937 random;
  int n_rounds = 1;
  std::vector<std::unique_ptr<SchedulerFixture>> workers;  // the ranks, and the replacement
  std::unique_ptr<RelayFixture> relay, mended;
};

// Calls check(rig, lost) for relays that are each about to lose that rank, at any point.
template <typename Check>
void LoseRanksAtAnyTime(const Check& check) {
  const std::vector<int> ends = SliceEnds();
  int n_lost = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO(seed);
    KeptSlicesFixture rig(seed, ends);
    rig.relay->AdmitAll();
    for (int n = rig.Below(60 + 20 * rig.n_rounds); n > 0; --n) rig.Act(rig.relay.get());
    if (rig.IsComputed()) continue;
    check(rig, rig.Below(kRanks));
    ++n_lost;
  }
  REQUIRE(n_lost > 150);
}

TEST_CASE("a rank lost at any time: only its slices are computed again") {
  LoseRanksAtAnyTime([](KeptSlicesFixture& rig, int lost) {
    rig.Lose(lost);
    rig.Finish();
    for (int rank = 0; rank < kRanks; ++rank)
      RequireEachRowOnce(*rig.mended->ranks[size_t(rank)], rig.n_rounds);
  });
}

int TokensOf(const RelayFixture& relay, int rank) {
  int tokens = 0;
  for (int slice = rank; slice < relay.n_slices(); slice += kRanks)
    tokens += relay.ends[size_t(slice)] - (slice > 0 ? relay.ends[size_t(slice - 1)] : 0);
  return tokens;
}

TEST_CASE(
    "without a worker to stand in, a rank that is left computes the lost slices besides its own") {
  LoseRanksAtAnyTime([](KeptSlicesFixture& rig, int lost) {
    SchedulerFixture* const survivor = rig.NeighbourOf(lost);
    rig.Lose(lost, survivor);
    rig.Finish();
    int own = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const SchedulerFixture& bench = *rig.relay->ranks[size_t(rank)];
      if (&bench == survivor) own = TokensOf(*rig.relay, rank);
      if (&bench != survivor && rank != lost) RequireEachRowOnce(bench, rig.n_rounds);
    }
    // A rank that had not begun when the other was lost has nothing to continue.
    const int lost_tokens = TokensOf(*rig.relay, lost);
    const int recomputed = survivor->ends.at(7).recomputed_tokens;
    REQUIRE((recomputed <= lost_tokens || recomputed == lost_tokens + own));
  });
}

TEST_CASE("a slice that another has pushed off the engine starts again, with the same tokens") {
  const std::vector<int> ends = SliceEnds();
  for (unsigned seed = 0; seed < 60; ++seed) {
    INFO(seed);
    KeptSlicesFixture rig(seed, ends);
    rig.relay->AdmitAll();
    for (int n = 20 + rig.Below(40 * rig.n_rounds); n > 0; --n) rig.Act(rig.relay.get());
    if (rig.IsComputed()) continue;
    rig.Lose(0);
    for (int rank = 1; rank < kRanks; ++rank)
      rig.Intrude(rig.relay->ranks[size_t(rank)], 100u + unsigned(rank));
    rig.Finish();
  }
}

TEST_CASE("a head that has handed over keeps its slices for a rank that is lost after it") {
  const std::vector<int> ends = SliceEnds();
  for (int lost = 1; lost < kRanks; ++lost) {
    INFO(lost);
    KeptSlicesFixture rig(100u + unsigned(lost), ends);
    RelayFixture& relay = *rig.relay;
    relay.AdmitAll();
    SchedulerFixture& first = *relay.ranks[0];
    for (int n = 0; n < 20'000 && first.commits.size() < size_t(rig.n_rounds); ++n) {
      for (SchedulerFixture* rank : relay.ranks) rank->Step(5);
      relay.PromiseAll();
      for (int hop = 0; hop + 2 < relay.n_slices(); ++hop)  // the tail lacks the last slice
        if (relay.Pages(hop) != nullptr) relay.Flow(hop);
    }
    for (int slice = 0; slice < relay.n_slices(); slice += kRanks)
      first.EndHandoff(relay.HandoffOf(slice));
    REQUIRE(first.ends.at(7).reason == EndReason::kLength);
    REQUIRE(first.pool->held() == ends[ends.size() - kRanks] / kPageTokens);
    const size_t blocks = first.blocks.size();
    rig.Lose(lost);
    rig.Finish();
    REQUIRE(first.blocks.size() == blocks);
  }
}

TEST_CASE("a later attempt says what it computed but for slices it went on with") {
  const std::vector<int> ends = SliceEnds();
  int went_on = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    KeptSlicesFixture rig(seed, ends);
    rig.relay->AdmitAll();
    for (int n = 10 + rig.Below(20 * rig.n_rounds); n > 0; --n) rig.Act(rig.relay.get());
    if (rig.IsComputed()) continue;
    const int lost = rig.Below(kRanks);
    rig.Lose(lost);
    rig.Finish();
    for (int rank = 0; rank < kRanks; ++rank) {
      INFO(seed << " lost " << lost << " rank " << rank);
      const RelayFixture& relay = *rig.mended;
      const int tokens = TokensOf(relay, rank);
      const int recomputed = relay.ranks[size_t(rank)]->ends.at(7).recomputed_tokens;
      // A rank that had not begun when the other was lost has nothing to continue.
      if (rank == lost)
        REQUIRE(recomputed == tokens);
      else
        REQUIRE((recomputed == 0 || recomputed == tokens));
      went_on += recomputed == 0;
    }
  }
  REQUIRE(went_on > 10);
}

// Covers a head that may not wait for pages while another prompt holds them.
TEST_CASE("a head that stands out of the order takes its pages at once or fails") {
  constexpr int kAll = 100;
  const bool enough = GENERATE(true, false);
  auto head = MakeWorker({}, 6), tail = MakeWorker();
  RelayFixture relay(7, {12, 23}, {head.get(), tail.get()}, 0);
  PrefillRequest other = SchedulerFixture::Request(9, enough ? 12 : 16, kPeer);
  head->Admit(other);
  head->Step(0);
  head->Promise(9);
  head->Step(4);
  relay.Admit(1);
  PrefillRequest out_of_order = relay.RequestOf(0);
  out_of_order.pages_at_once = true;
  head->Admit(out_of_order);
  tail->Step(0);
  head->Step(0);
  REQUIRE(head->ends.count(7) == 0);  // the handoff's turn has not come
  head->Promise(relay.HandoffOf(0));
  head->Step(kAll);
  if (enough) {
    REQUIRE(head->ends.count(7) == 0);
    REQUIRE(head->cancels.empty());
  } else {
    REQUIRE(head->cancels.size() == 1);
    head->EndHandoff(relay.HandoffOf(0), absl::CancelledError("cancelled"));
    REQUIRE(head->ends.at(7).fault == PartFault::kPages);
    REQUIRE_THAT(head->ends.at(7).message, Catch::Contains("3 pages of KV are not free"));
    REQUIRE(head->scheduler->prompts().pages().wanted() == 0);
  }
  head->scheduler->prompts().Abandon();
  tail->scheduler->prompts().Abandon();
}

TEST_CASE(
    "a head that stands out of the order waits for no place among those that wait for pages") {
  const bool at_once = GENERATE(true, false);
  auto head = MakeWorker({}, 6), tail = MakeWorker();
  const RelayFixture relay(7, {12, 23}, {head.get(), tail.get()}, 0);
  for (RequestId id = 9; id < 14; ++id) {  // four pages each: all but the first lack them
    head->Admit(SchedulerFixture::Request(id, 16, kPeer));
    head->Step(0);
    head->Promise(id);
    head->Step(4);
  }
  PrefillRequest request = relay.RequestOf(0);
  request.pages_at_once = at_once;
  head->Admit(request);
  head->Step(0);
  CHECK((head->opens.back() == relay.HandoffOf(0)) == at_once);
  head->scheduler->prompts().Abandon();
}

// Breaks the handoff of the first rank after part of its slice is computed.
void BreakHandoff(const RelayFixture& relay) {
  SchedulerFixture& head = *relay.ranks[0];
  relay.ranks[1]->Step(0);
  head.Step(0);
  head.Promise(relay.HandoffOf(0));
  while (head.blocks.size() < 3) head.Step(5);
  head.EndHandoff(relay.HandoffOf(0), absl::UnavailableError("tail lost"));
  REQUIRE(head.ends.at(7).fault == PartFault::kHandoff);
  REQUIRE(head.ends.at(7).ticket_id == SchedulerFixture::Id(relay.HandoffOf(0)));
  REQUIRE(head.pool->held() == 3);
  REQUIRE(head.scheduler->prompts().queue().queued().tokens == 0);
}

TEST_CASE("who goes on with a lost slice waits for the pages it lacks, and what it has is kept") {
  auto head = MakeWorker({}, 6), tail = MakeWorker();
  RelayFixture relay(7, {12, 23}, {head.get(), tail.get()}, 0);
  relay.AdmitAll();
  BreakHandoff(relay);
  tail->scheduler->prompts().Abandon();
  head->Admit(SchedulerFixture::Request(9, 12, kPeer));
  head->Step(0);
  head->Promise(9);
  REQUIRE(head->Step(100) == 12);
  REQUIRE(head->pool->held() == 6);
  RelayFixture mended = relay.Mended(1, head.get());
  mended.AdmitAll();
  const bool wanted = GENERATE(false, true);
  if (wanted) REQUIRE(head->scheduler->prompts().pages().DiscardOldest());  // a row wants the page
  REQUIRE(head->Step(100) == 0);
  REQUIRE(head->scheduler->prompts().pages().wanted() == (wanted ? 6 : 3));
  REQUIRE(head->pool->held() == (wanted ? 3 : 6));
  head->EndHandoff(9);
  while (head->Step(5) > 0) {
  }
  mended.RequireFirstToken();
  REQUIRE(head->ends.at(7).recomputed_tokens == (wanted ? 23 : 11));
  if (!wanted) RequireEachRowOnce(*head, 2);
  REQUIRE(head->pool->held() == 0);
}

TEST_CASE("who stands in for the next rank asks the one after it first, and pushes in its turn") {
  auto a = MakeWorker(), b = MakeWorker(), c = MakeWorker();
  const RelayFixture relay =
      RelayFixture(7, {12, 24, 35}, {a.get(), b.get(), c.get()}, kPeer, true).Mended(1, a.get());
  a->Admit(relay.RequestOf(1));
  a->Step(0);
  REQUIRE(a->opens == std::vector<RequestId>{relay.HandoffOf(1)});
  a->scheduler->prompts().Abandon();
}

TEST_CASE("an attempt that left nothing hides no KV that others have cached") {
  auto head = MakeWorker(), tail = MakeWorker(), other = MakeWorker();
  head->Admit(SchedulerFixture::Request(7, 23));
  while (head->Step(100) > 0) {
  }
  RelayFixture relay(7, {12, 23}, {head.get(), tail.get()}, 0);
  relay.Admit(0);
  head->Step(0);  // OPEN is out, no page is held
  RelayFixture next = relay.Mended(1, other.get());
  next.AdmitAll();
  head->EndHandoff(relay.HandoffOf(0), absl::CancelledError("cancelled"));
  next.ranks[1]->Step(0);
  head->Step(0);
  head->Promise(next.HandoffOf(0));
  while (head->Step(100) > 0) {
  }
  REQUIRE(head->scheduler->prompts().pages().reused_tokens() == 8);
  REQUIRE(head->blocks.front().to == 4);  // the last page, for its last token
  for (auto* worker : {head.get(), other.get()}) worker->scheduler->prompts().Abandon();
}

enum Why { kTime, kCancel, kOtherSlice, kPagesWanted, kAbandon };

TEST_CASE("kept slices delay no prompt, and are kept for a while only") {
  const Why why = GENERATE(kTime, kCancel, kOtherSlice, kPagesWanted, kAbandon);
  auto head = MakeWorker({}, 6), tail = MakeWorker();
  RelayFixture relay(7, {12, 23}, {head.get(), tail.get()}, 0);
  relay.AdmitAll();
  BreakHandoff(relay);
  head->ends.clear();
  if (why == kTime) {
    const absl::Time kept_until = head->scheduler->prompts().NextDeadline();
    REQUIRE(kept_until > head->now + PrefillOptions().kept_slice_time);  // plus its time
    REQUIRE(kept_until < head->now + 2 * PrefillOptions().kept_slice_time);
    head->ForgetKept();
  }
  if (why == kCancel) head->scheduler->prompts().Cancel(7, 1);
  if (why == kOtherSlice) {
    PrefillRequest alone = SchedulerFixture::Request(7, 23);
    alone.epoch = 2;
    head->Admit(alone);
    head->scheduler->prompts().Cancel(7, 2);
  }
  if (why == kPagesWanted) {
    head->Admit(SchedulerFixture::Request(9, 24));
    REQUIRE(head->Step(100) == 24);
    REQUIRE(head->scheduler->prompts().pages().wanted() == 0);
  }
  if (why == kAbandon) head->scheduler->prompts().Abandon();
  head->Collect();
  REQUIRE(head->pool->held() == 0);
  REQUIRE(head->scheduler->prompts().pages().left().size() == 0);
  REQUIRE(head->ends.count(7) == (why == kOtherSlice ? 1u : 0u));  // the part was reported as ended
  tail->scheduler->prompts().Abandon();
}

}  // namespace
}  // namespace baton
