// Conversations of agents: lengths, times, and prompts that are exact over turns.
#include "bench/load/conversation.h"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "bench/load/session_summary.h"

namespace baton {
namespace {

std::vector<Conversation> Make(const ConversationOptions& options) {
  const auto made = MakeConversations(options);
  REQUIRE(made.ok());
  return *made;
}

struct TraceFile {
  explicit TraceFile(const std::string& text) { std::ofstream(path) << text; }
  ~TraceFile() { std::remove(path.c_str()); }
  std::string path = "conversation_test." + std::to_string(getpid()) + ".jsonl";
};

constexpr char kTwo[] = R"({"turns":[{"input_length":1000,"output_length":200,"think_time":9},)"
                        R"({"input_length":1600,"output_length":80,"think_time":10},)"
                        R"({"input_length":1650,"output_length":40,"think_time":4}]})"
                        "\n"
                        R"({"turns":[{"input_length":96,"output_length":8,"think_time":0}]})"
                        "\n";

std::vector<int32_t> Answer(int n, int32_t token) {
  return std::vector<int32_t>(static_cast<size_t>(n), token);
}

int Longest(const Conversation& talk) { return PromptTokens(talk, talk.turns.size() - 1); }

}  // namespace

TEST_CASE("a turn's prompt is the prompt before, the answer's tokens and new ones") {
  const Conversation conversation{
      .number = 3,
      .turns = {{.new_tokens = 50, .answer_tokens = 4}, {.new_tokens = 7, .answer_tokens = 2}}};
  ConversationText text(conversation, 2048, 1);
  const LoadRequest first = text.NextRequest();
  CHECK(first.prompt.size() == 50);
  CHECK(first.max_tokens == 4);
  CHECK(first.return_tokens);
  CHECK_FALSE(text.done());
  text.TakeAnswer({9, 8, 7, 6});
  const LoadRequest second = text.NextRequest();
  REQUIRE(second.prompt.size() == 61);
  CHECK(std::equal(first.prompt.begin(), first.prompt.end(), second.prompt.begin()));
  CHECK(std::vector<int32_t>(second.prompt.begin() + 50, second.prompt.begin() + 54) ==
        std::vector<int32_t>{9, 8, 7, 6});
  CHECK(second.max_tokens == 2);
  CHECK(static_cast<int>(second.prompt.size()) == PromptTokens(conversation, 1));
  text.TakeAnswer({1, 2});
  CHECK(text.done());
  // The new tokens depend on seed and number, not on the answers.
  ConversationText again(conversation, 2048, 1);
  CHECK(again.NextRequest().prompt == first.prompt);
  again.TakeAnswer(Answer(4, 5));
  const std::vector<int32_t> other = again.NextRequest().prompt;
  CHECK(std::equal(second.prompt.begin() + 54, second.prompt.end(), other.begin() + 54));
  ConversationText other_seed(conversation, 2048, 2);
  CHECK(other_seed.NextRequest().prompt[0] != first.prompt[0]);
  Conversation sibling = conversation;
  sibling.number = 4;
  CHECK(ConversationText(sibling, 2048, 1).NextRequest().prompt[0] != first.prompt[0]);
}

TEST_CASE("made-up conversations have lengths about their means, the same for a seed") {
  const ConversationOptions options{.n_users = 8,
                                    .n_conversations = 40,
                                    .first_tokens = 400,
                                    .new_tokens = 60,
                                    .answer_tokens = 20,
                                    .n_turns = 5,
                                    .think_s = 2};
  const auto talks = Make(options);
  REQUIRE(talks.size() == 40);
  double think_s = 0;
  for (const Conversation& talk : talks) {
    REQUIRE(talk.turns.size() == 5);
    CHECK(talk.user == static_cast<int>(talk.number) % 8);
    CHECK(talk.turns[1].due_s == -1);
    CHECK(talk.turns[0].think_s == 0);
    for (size_t i = 0; i < 5; ++i) {
      const int mean = i == 0 ? 400 : 60;
      CHECK(talk.turns[i].new_tokens >= mean / 2);
      CHECK(talk.turns[i].new_tokens <= mean * 3 / 2);
      CHECK(talk.turns[i].answer_tokens >= 10);
      CHECK(talk.turns[i].answer_tokens <= 30);
      think_s += talk.turns[i].think_s;
    }
  }
  CHECK(think_s / 160 == Approx(2).epsilon(0.25));
  CHECK(Make(options)[17].turns[3].new_tokens == talks[17].turns[3].new_tokens);
}

TEST_CASE("a turn that would exceed the context ends its conversation before") {
  ConversationOptions options{.n_users = 20, .n_turns = 50, .max_context = 1000};
  for (const Conversation& talk : Make(options)) {
    CHECK(Longest(talk) + talk.turns.back().answer_tokens <= 1000);
    CHECK(talk.turns.size() < 50);
  }
  options.first_tokens = 5000;
  for (const Conversation& talk : Make(options)) {
    CHECK(talk.turns.size() == 1);
    CHECK(Longest(talk) + talk.turns.back().answer_tokens == 1000);
  }
}

TEST_CASE("with a rate turns are due by themselves and go round the users") {
  const ConversationOptions options{.n_users = 3, .n_turns = 4, .rate = 20, .seconds = 60};
  const auto talks = Make(options);
  std::map<double, int> user_at;  // by the time a turn is due
  std::map<int, double> last_of;
  for (const Conversation& talk : talks) {
    CHECK(talk.turns.size() <= 4);
    for (const ConversationTurn& turn : talk.turns) {
      user_at[turn.due_s] = talk.user;
      CHECK(turn.due_s > last_of[talk.user]);  // a user's conversations follow each other
      last_of[talk.user] = turn.due_s;
    }
  }
  CHECK(user_at.size() == Approx(1200).epsilon(0.1));
  CHECK(user_at.begin()->first >= 0);
  CHECK(user_at.rbegin()->first < 60);
  int next = 0;
  for (const auto& [due_s, user] : user_at) CHECK(user == next++ % 3);
  // Without an end: all turns of the conversations.
  ConversationOptions endless = options;
  endless.seconds = 0;
  endless.n_conversations = 6;
  size_t n_turns = 0;
  for (const Conversation& talk : Make(endless)) n_turns += talk.turns.size();
  CHECK(n_turns == 24);
}

TEST_CASE(
    "a trace's conversations are scaled; what a turn adds is what the trace's prompt grew by") {
  const TraceFile file(kTwo);
  const auto talks = Make({.n_users = 2,
                           .n_conversations = 5,
                           .trace = file.path,
                           .length_scale = 0.125,
                           .time_scale = 0.5});
  REQUIRE(talks.size() == 5);
  REQUIRE(talks[0].turns.size() == 3);
  CHECK(talks[0].turns[0].new_tokens == 125);
  CHECK(talks[0].turns[0].answer_tokens == 25);
  CHECK(talks[0].turns[0].think_s == 0);
  CHECK(talks[0].turns[1].new_tokens == 50);
  CHECK(talks[0].turns[1].think_s == 5);
  CHECK(talks[0].turns[2].new_tokens == 1);  // the recorded prompt grew by less than the answer
  CHECK(talks[1].turns.size() == 1);
  CHECK(talks[2].turns.size() == 3);  // the trace begins again
  CHECK(talks[2].number != talks[0].number);
}

TEST_CASE("a trace that is none of conversations says which line") {
  const TraceFile file(std::string(kTwo) + "{\"turns\":[{\"input_length\":3}]}\n");
  const auto broken = MakeConversations({.n_users = 1, .trace = file.path});
  REQUIRE_FALSE(broken.ok());
  CHECK_THAT(std::string(broken.status().message()), Catch::Contains("line 3"));
  CHECK_FALSE(MakeConversations({.n_users = 1, .trace = "nowhere.jsonl"}).ok());
}

TEST_CASE("answers make the digest of sessions, in order of conversations and turns") {
  const auto session = [](const std::vector<std::vector<int32_t>>& answers) {
    SessionOutcome outcome;
    for (const auto& tokens : answers) {
      Outcome& out = outcome.turns.emplace_back();
      out.ok = true;
      out.n_prompt = 10;
      out.n_cached = 4;
      out.tokens = tokens;
    }
    outcome.is_whole = true;
    return outcome;
  };
  const SessionSummary sum = SummarizeSessions({session({{1, 2}, {3}}), session({{4}})});
  CHECK(sum.n_conversations == 2);
  CHECK(sum.n_whole == 2);
  CHECK(sum.n_turns == 3);
  CHECK(sum.n_prompt == 30);
  CHECK(sum.n_cached == 12);
  CHECK(sum.first_ttft_ms.size() == 2);
  CHECK(sum.later.size() == 1);
  CHECK(SummarizeSessions({session({{1, 2}, {3}}), session({{4}})}).digest == sum.digest);
  CHECK(SummarizeSessions({session({{1, 2}, {5}}), session({{4}})}).digest != sum.digest);
  boost::json::object json;
  const WorkerCounters workers =
      WorkerCounters{.kv_bytes = 900, .computed = 50, .reused = 30}.Since({400, 32, 18});
  AddSessions(sum, &workers, &json);
  const boost::json::object& told = json.at("sessions").as_object();
  CHECK(told.at("turns") == 3);
  CHECK(told.at("whole") == 2);
  CHECK(told.at("prompt_tokens") == 30);
  CHECK(told.at("kv_bytes").as_double() == 500);
  CHECK(told.at("computed_tokens").as_double() == 18);
  CHECK(told.at("reused_tokens").as_double() == 12);
  CHECK(told.at("answers_digest").as_string().size() == 16);
  CHECK(told.contains("first_ttft_p50_ms"));
  CHECK(told.contains("later_ttft_p99_ms"));
  AddSessions(sum, nullptr, &json);  // no pages of workers were named
  CHECK_FALSE(json.at("sessions").as_object().contains("kv_bytes"));
}

}  // namespace baton
