// Load runs against the real HTTP front: exact prompts over turns, what the end of a run cuts, and
// the idle figures of a server.
#include "bench/load/session_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "bench/load/idle_probe.h"
#include "bench/load/load_replay.h"
#include "tests/server/api/served_api.h"

namespace baton {
namespace {

std::vector<std::vector<int32_t>> Prompts(const Served& served) {
  std::vector<std::vector<int32_t>> prompts;
  for (const GenerateRequest& request : served.generator->submitted)
    prompts.push_back(request.prompt);
  std::sort(prompts.begin(), prompts.end(),
            [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return prompts;
}

}  // namespace

TEST_CASE("each turn's prompt has the server's own tokens of the answers before") {
  Served served;
  const std::vector<Conversation> talks = {
      {.number = 0,
       .turns = {{.new_tokens = 10, .answer_tokens = 3}, {.new_tokens = 4, .answer_tokens = 2}}},
      {.number = 1, .user = 1, .turns = {{.new_tokens = 40, .answer_tokens = 1}}}};
  const auto sessions =
      RunConversations({"127.0.0.1", served.port}, talks, {.seconds = 20, .vocab = 1000});
  REQUIRE(sessions.size() == 2);
  for (const SessionOutcome& session : sessions)
    for (const Outcome& out : session.turns) INFO(out.error);
  CHECK(sessions[0].is_whole);
  CHECK(sessions[1].is_whole);
  REQUIRE(sessions[0].turns.size() == 2);
  const Outcome& first = sessions[0].turns[0];
  CHECK(first.tokens.size() == 3);
  CHECK(first.chunk_times.size() == 3);  // the event that tells the end is no token's
  CHECK(first.gaps_ms().size() == 2);
  const auto prompts = Prompts(served);
  REQUIRE(prompts.size() == 3);
  REQUIRE(prompts[1].size() == 17);
  std::vector<int32_t> so_far = prompts[0];
  so_far.insert(so_far.end(), first.tokens.begin(), first.tokens.end());
  CHECK(std::equal(so_far.begin(), so_far.end(), prompts[1].begin()));
}

TEST_CASE("the end of a run cuts what still runs, and what was due and could not begin") {
  Served served;
  served.generator->hold = true;
  const auto at = [](double due_s) {
    return ConversationTurn{.new_tokens = 5, .answer_tokens = 2, .due_s = due_s};
  };
  const auto sessions = RunConversations({"127.0.0.1", served.port},
                                         {{.number = 0, .turns = {at(0.01), at(0.2)}},
                                          {.number = 1, .turns = {at(0.3)}},
                                          {.number = 2, .user = 1, .turns = {at(-1), at(-1)}}},
                                         {.seconds = 0.4, .vocab = 1000});
  REQUIRE(sessions[0].turns.size() == 2);
  CHECK(sessions[0].turns[0].cut);
  CHECK(sessions[0].turns[1].cut);
  CHECK(sessions[0].turns[1].n_prompt == 12);
  CHECK(sessions[0].turns[1].lag_ms == Approx(200).margin(1));
  CHECK_FALSE(sessions[0].is_whole);
  REQUIRE(sessions[1].turns.size() == 1);
  CHECK(sessions[1].turns[0].lag_ms == Approx(100).margin(1));
  REQUIRE(sessions[2].turns.size() == 1);  // the other turn was never due
  CHECK(sessions[2].turns[0].cut);
  CHECK(served.generator->n_submitted == 2);

  const std::vector<Outcome> outcomes =
      Replay({"127.0.0.1", served.port},
             {{.start_s = 0, .prompt = {20}}, {.start_s = 0.1, .prompt = {21}}},
             {.max_concurrency = 1, .seconds = 0.4});
  CHECK(outcomes[0].cut);
  CHECK(outcomes[1].cut);
  CHECK(outcomes[1].lag_ms == Approx(300).margin(1));
}

TEST_CASE("idle figures come from lone requests of each length") {
  Served served;
  const auto figures = MeasureIdle(served.Client(), {.min_prompt = 8,
                                                     .max_prompt = 32,
                                                     .n_lengths = 3,
                                                     .n_samples = 2,
                                                     .output_tokens = 4,
                                                     .vocab = 1000});
  REQUIRE(figures.ok());
  REQUIRE(figures->ttft.size() == 3);
  CHECK(figures->ttft[1].prompt_tokens == 16);
  CHECK(figures->ttft[1].ttft_ms > 0);
  CHECK(served.generator->n_submitted == 6);
  served.generator->refusal = absl::ResourceExhaustedError("full");
  CHECK_FALSE(MeasureIdle(served.Client(), {}).ok());
}

}  // namespace baton
