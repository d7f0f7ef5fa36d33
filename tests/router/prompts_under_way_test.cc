// Requests whose prompts have the same beginning wait for the one that computes it, instead of
// having it computed again.
#include <catch2/catch.hpp>

#include "router/prompts_under_way.h"
#include "tests/support/cached_pages.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

std::vector<PageName> Pages(std::initializer_list<uint64_t> names) {
  std::vector<PageName> pages;
  for (const uint64_t name : names) pages.push_back({.high = name, .low = name});
  return pages;
}

TEST_CASE("the longest beginning under way is found, until its request leaves") {
  PromptsUnderWay prompts;
  const absl::Time soon = absl::UnixEpoch() + absl::Seconds(1), late = soon + absl::Seconds(1);
  prompts.Enter(1, Pages({10, 11}), soon);
  prompts.Enter(2, Pages({10, 11, 12}), late);
  prompts.Enter(3, Pages({20}), late);
  CHECK(prompts.Find(Pages({10})).id == 1);
  CHECK(prompts.Find(Pages({10})).done_at == soon);
  CHECK(prompts.Find(Pages({10, 11, 12, 13})).id == 2);
  CHECK(prompts.Find(Pages({10, 11, 12, 13})).n_pages == 3);
  CHECK(prompts.Find(Pages({10, 11, 12, 13})).done_at == late);
  CHECK(prompts.Find(Pages({21})).id == 0);
  CHECK(prompts.Find({}).id == 0);

  prompts.Follow(5, 2);
  prompts.Follow(4, 2);
  prompts.Follow(6, 3);
  prompts.Leave(2);
  prompts.Leave(2);
  CHECK(prompts.TakeFreed() == std::vector<RequestId>{5, 4});
  CHECK(prompts.TakeFreed().empty());
  CHECK(prompts.Find(Pages({10, 11, 12})).n_pages == 2);
  prompts.Leave(1);
  prompts.Leave(3);
  CHECK(prompts.TakeFreed() == std::vector<RequestId>{6});
  CHECK(prompts.Find(Pages({10, 11, 12})).id == 0);
  CHECK(prompts.Find(Pages({20})).id == 0);
}

// Two prefill workers and a decode worker, which all reuse KV.
struct FollowingFixture : RouterHarness {
  FollowingFixture() : RouterHarness(RouterOptions{.local = false}) {
    for (const auto& [id, role] :
         {std::pair(kP1, Role::kPrefill), {kP2, Role::kPrefill}, {kD1, Role::kDecode}}) {
      WorkerAnnounce announce = Announce(id, role);
      announce.reuses_kv = true;
      REQUIRE(Report(id, {announce}).ok());
    }
    for (const Incarnation worker : {kP1, kP2}) REQUIRE(Report(worker, {MeasuredLoad(1000)}).ok());
  }
  GenerateRequest Prompt(int32_t n_prompt, int32_t n_common, int32_t other = 0) const {
    GenerateRequest request;
    for (int32_t i = 0; i < n_prompt; ++i)
      request.prompt.push_back(100 + i + (i < n_common ? 0 : other));
    request.max_tokens = 10;
    return request;
  }
  std::vector<RequestId> Choices(int n) {
    std::vector<RequestId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(Submit(Prompt(160, 160)));
    return ids;
  }
  size_t n_prefills() const { return Sent<PrefillRequest>().size(); }
};

TEST_CASE("choices of one prompt wait until its KV is where they decode") {
  FollowingFixture r;
  const std::vector<RequestId> ids = r.Choices(3);
  REQUIRE(r.n_prefills() == 1);
  CHECK(r.router.View().followed == 2);
  const RequestId first = ids.front();
  const CachedPages told{
      .number = 1, .restart = true, .entered = PageNames(TestKey(), r.Prompt(160, 160).prompt, 16)};
  const PromptComputed computed{.request_id = first, .epoch = 1};
  REQUIRE(r.Report(r.LastPrefillWorker(), {computed, Token(first, 160, 7), told}).ok());
  CHECK(r.n_prefills() == 1);
  REQUIRE(r.Report(kD1, {Token(first, 161, 8), told}).ok());
  CHECK(r.n_prefills() == 3);
  CHECK(r.router.View().waiting == 0);
}

TEST_CASE("choices are computed once after a failover too") {
  FollowingFixture r;
  const std::vector<RequestId> ids = r.Choices(3);
  const Incarnation lost = r.LastPrefillWorker();
  r.Lose(lost);
  REQUIRE(r.n_prefills() == 2);
  CHECK(r.LastPrefillWorker() != lost);
  CHECK(r.LastPrefill().request_id == ids.front());

  // The first one ends: the next one leads.
  r.Cancel(ids.front());
  REQUIRE(r.n_prefills() == 3);
  CHECK(r.LastPrefill().request_id == ids[1]);
  r.Cancel(ids[1]);
  CHECK(r.LastPrefill().request_id == ids[2]);
}

TEST_CASE("a request does not wait in vain") {
  FollowingFixture r;
  r.Choices(2);
  REQUIRE(r.n_prefills() == 1);
  r.AdvanceWith(absl::Seconds(1), {kP1, kP2, kD1});
  CHECK(r.n_prefills() == 1);
  r.AdvanceWith(absl::Seconds(1), {kP1, kP2, kD1});
  CHECK(r.n_prefills() == 2);
}

TEST_CASE("a request whose time is over while it waits for another one's KV ends") {
  FollowingFixture r;
  r.Choices(1);
  GenerateRequest request = r.Prompt(160, 160);
  request.timeout = absl::Milliseconds(20);
  const RequestId id = r.Submit(std::move(request));
  REQUIRE(r.n_prefills() == 1);
  r.AdvanceWith(absl::Milliseconds(30), {kP1, kP2, kD1});
  CHECK(absl::IsDeadlineExceeded(r.End(id).status));
}

TEST_CASE("a request waits only where another one computes most of it, and soon") {
  const auto waits = [](int32_t n_common, uint64_t salt, bool is_scored) {
    FollowingFixture r;
    r.Choices(1);
    GenerateRequest request = r.Prompt(160, n_common, 1000);
    request.cache_salt = salt;
    if (is_scored) request.prompt_logprobs = 0;
    r.Submit(std::move(request));
    return r.router.View().waiting == 1;
  };
  CHECK(waits(80, 0, false));
  CHECK_FALSE(waits(79, 0, false));
  CHECK_FALSE(waits(160, 1, false));
  CHECK_FALSE(waits(160, 0, true));

  // The other one waits behind a long prompt, and another worker is idle.
  FollowingFixture r;
  r.Submit(r.Prompt(1600, 0, 1000));
  r.Submit(r.Prompt(1600, 0, 3000));
  r.Submit(r.Prompt(1600, 1600));
  const auto parts = r.Sent<PrefillRequest>();
  REQUIRE(parts.size() == 3);
  const auto& beside = parts[0].first == parts[2].first ? parts[1] : parts[0];
  r.Cancel(beside.second.request_id);
  r.Submit(r.Prompt(1600, 1600));
  CHECK(r.router.View().waiting == 0);
  CHECK(r.LastPrefillWorker() == beside.first);
}

}  // namespace
}  // namespace baton
