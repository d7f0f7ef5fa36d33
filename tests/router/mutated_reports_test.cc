// A worker of the cluster that went mad: every field of every report at its worst, and any bytes.
// What the router can read it refuses or takes; the worker may lose its stream, and no request of
// others ends or gets a wrong token.
#include <random>

#include "tests/proto/every_message.h"
#include "tests/support/control_bytes.h"
#include "tests/support/mutated_message.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr Incarnation kMad = 31;

// A router with a good pair of workers, a request on them, and a mad worker beside.
class MadRig {
 public:
  MadRig() {
    StartGood();
    Rejoin();
  }

  // Reports that the mad worker might send, of its own requests and of the good pair's.
  WorkerReport Report(size_t kind) {
    WorkerEvent event = EveryEvent().events[kind];
    const RequestId about = kind % 2 == 0 ? mad_ : good_;
    if (auto* m = std::get_if<TokenOut>(&event)) *m = Token(about, 33, 7);
    if (auto* m = std::get_if<PartEnded>(&event)) *m = baton::Ended(about, n_sent_ % 2 == 0);
    if (auto* m = std::get_if<NoRoomNotice>(&event)) *m = {.request_id = about, .epoch = 1};
    if (auto* m = std::get_if<PromptComputed>(&event)) *m = {.request_id = about, .epoch = 1};
    if (auto* m = std::get_if<CachedPages>(&event)) m->restart = true;
    return {.events = {event}};
  }
  // Takes bytes of the mad worker as the router's shell does.
  void Take(const std::string& bytes) {
    ++n_sent_;
    absl::StatusOr<WorkerReport> report = ParseReport(bytes);
    absl::Status status = report.status();
    if (report.ok()) {
      status = harness_.router.OnReport(kMad, *report, harness_.now);
      harness_.Collect();
    }
    ++(status.ok() ? n_taken : n_refused);
    if (!status.ok()) {
      harness_.Lose(kMad);
      Rejoin();
    }
    if (n_sent_ % 16 == 0) GoOn();
  }

  int n_taken = 0, n_refused = 0, n_whole = 0;

 private:
  // A request that runs on the good pair, because there is no other worker.
  void StartGood() {
    harness_.Lose(kMad);
    good_ = harness_.Submit(32, kGoodTokens);
    good_token_ = 0;
    GoOn();
  }
  void Rejoin() {
    REQUIRE(harness_.Report(kMad, {Announce(kMad, Role::kBoth)}).ok());
    if (mad_ == 0 || harness_.Ended(mad_)) mad_ = harness_.Submit(32, 1000);
  }
  // The good pair says the next token, and the request has exactly the tokens so far.
  void GoOn() {
    harness_.sent.clear();
    REQUIRE_FALSE(harness_.Ended(good_));
    const Incarnation from = good_token_ == 0 ? kP1 : kD1;
    REQUIRE(harness_.Report(from, {Token(good_, 32 + good_token_, 500 + good_token_)}).ok());
    if (good_token_ == 0) REQUIRE(harness_.Report(kP1, {baton::Ended(good_, true)}).ok());
    ++good_token_;
    const std::vector<int32_t>& tokens = harness_.tokens[good_];
    REQUIRE(tokens.size() == static_cast<size_t>(good_token_));
    REQUIRE(tokens.back() == 500 + good_token_ - 1);
    if (good_token_ < kGoodTokens) return;
    REQUIRE(harness_.Report(kD1, {baton::Ended(good_, false)}).ok());
    REQUIRE(harness_.Ended(good_));
    REQUIRE(harness_.End(good_).status.ok());
    ++n_whole;
    StartGood();
    Rejoin();
  }

  static constexpr int kGoodTokens = 30;
  PairHarness harness_;
  RequestId good_ = 0, mad_ = 0;
  int good_token_ = 0, n_sent_ = 0;
};

TEST_CASE("every field of every report at its worst harms no request of others") {
  MadRig rig;
  for (size_t kind = 0; kind < EveryEvent().events.size(); ++kind) {
    const wire::WorkerReport base = Encoded(rig.Report(kind));
    for (const Mutation& mutate : MutationsOf(base)) {
      wire::WorkerReport report = Encoded(rig.Report(kind));
      mutate(&report);
      rig.Take(report.SerializeAsString());
    }
  }
  WARN(rig.n_taken << " reports taken, " << rig.n_refused << " refused, " << rig.n_whole
                   << " requests whole");
  CHECK(rig.n_refused > 200);
  CHECK(rig.n_taken > 50);
}

TEST_CASE("20,000 reports of changed bytes harm no request of others") {
  MadRig rig;
  std::mt19937_64 random(23);
  for (int run = 0; run < 20000; ++run)
    rig.Take(MutatedBytes(Encoded(rig.Report(random() % EveryEvent().events.size())), &random));
  WARN(rig.n_taken << " reports taken, " << rig.n_refused << " refused, " << rig.n_whole
                   << " requests whole");
  CHECK(rig.n_refused > 5000);
  CHECK(rig.n_taken > 1000);
  CHECK(rig.n_whole > 20);
}

}  // namespace
}  // namespace baton
