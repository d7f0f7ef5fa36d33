// Membership alone: who may join, who is silent, who takes requests, and what the view shows.
#include "router/membership.h"

#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Catch::Contains;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

struct TwoMembers : Membership {
  TwoMembers() : Membership(nullptr, absl::Seconds(2), nullptr) {
    REQUIRE(Join(Announce(kP1, Role::kPrefill), kNow).ok());
    REQUIRE(Join(Announce(kD1, Role::kDecode), kNow).ok());
  }
  std::string Refusal(const WorkerAnnounce& worker) {
    const absl::Status status = Join(worker, kNow);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Find(kP2) == nullptr);
    return std::string(status.message());
  }
};

}  // namespace

TEST_CASE("a worker that differs in what all must share is refused, and the error names it") {
  TwoMembers members;
  WorkerAnnounce other = Announce(kP2, Role::kPrefill);
  SECTION("model") {
    other.model_fingerprint = 8;
    CHECK_THAT(members.Refusal(other), Contains("model_fingerprint"));
  }
  SECTION("numerics") {
    other.numerics_id = "other";
    CHECK_THAT(members.Refusal(other), Contains("numerics_id other"));
  }
  SECTION("layout") {
    other.layout_id = "M";
    CHECK_THAT(members.Refusal(other), Contains("layout_id M"));
  }
  SECTION("pages") {
    other.page_tokens = 32;
    CHECK_THAT(members.Refusal(other), Contains("page_tokens 32"));
    CHECK(members.page_tokens() == 16);
  }
  SECTION("itself") {
    CHECK_THAT(members.Refusal(Announce(kP1, Role::kPrefill)), Contains("twice"));
  }
}

TEST_CASE("a tuned partition table binds every worker to its model") {
  const PartitionTable table{.model = "tuned", .model_fingerprint = 9, .numerics_id = "cpu-x86"};
  Membership members(&table, absl::Seconds(2), nullptr);
  WorkerAnnounce worker = Announce(kP1, Role::kPrefill);
  CHECK_THAT(std::string(members.Join(worker, kNow).message()), Contains("tuned for model tuned"));
  worker.model_fingerprint = 9;
  CHECK(members.Join(worker, kNow).ok());
}

TEST_CASE("a member is silent from the time it was heard last") {
  TwoMembers members;
  CHECK(members.NotHeardSince(kNow).empty());
  members.OnHeard(kD1, {}, kNow + absl::Seconds(2));
  members.OnHeard(kP2, {}, kNow + absl::Seconds(2));  // unknown
  const absl::Time later = kNow + absl::Seconds(1);
  CHECK(members.NotHeardSince(later) == std::vector<Incarnation>{kP1});
  members.ForgiveSilence(later);
  CHECK(members.NotHeardSince(later).empty());
  CHECK(members.NotHeardSince(later + absl::Seconds(1)) == std::vector<Incarnation>{kP1, kD1});
}

TEST_CASE("a draining member stays and is not counted; one that left is unknown") {
  TwoMembers members;
  members.OnDraining(kD1);
  members.OnLoad(kP1, {.draining = true}, kNow);
  CHECK_FALSE(members.serves());
  CHECK(members.Find(kD1) != nullptr);
  ClusterView view;
  members.FillView(&view);
  CHECK(view.prefill_workers == 0);
  CHECK(view.decode_workers == 0);
  CHECK(view.model_fingerprint == 7);
  members.Leave(kD1);
  members.Leave(kD1);
  CHECK(members.Find(kD1) == nullptr);
  CHECK(members.all().size() == 1);
  CHECK(members.Join(Announce(kD1, Role::kDecode), kNow).ok());
  CHECK(members.serves());
}

TEST_CASE("the view takes the least context, and the pages of workers that decode") {
  TwoMembers members;
  WorkerAnnounce both = Announce(kD2, Role::kBoth);
  both.max_context = 1000;
  REQUIRE(members.Join(both, kNow).ok());
  members.OnLoad(kD1, {.pages_free = 300}, kNow);
  ClusterView view;
  members.FillView(&view);
  CHECK(view.prefill_workers == 2);
  CHECK(view.decode_workers == 2);
  CHECK(view.max_context == 1000);
  CHECK(view.kv_pages_total == 2000);
  CHECK(view.kv_pages_free == 1300);  // kD2 has not reported
}

}  // namespace baton
