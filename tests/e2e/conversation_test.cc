// Conversations and choices with real processes: each turn computes and hands over what is new, and
// the choices of a prompt share it, as the workers' own counters tell.
#include <catch2/catch.hpp>

#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/load/metrics_page.h"
#include "tests/e2e/served_baton.h"

namespace baton {
namespace {

constexpr int kPageTokens = 64;

struct Counters {
  double computed = 0, sent_bytes = 0, held_pages = 0;

  Counters operator-(const Counters& before) const {
    return {computed - before.computed, sent_bytes - before.sent_bytes,
            held_pages - before.held_pages};
  }
};

// A cluster of the demo model, and what its workers have counted.
class Cluster {
 public:
  explicit Cluster(const std::vector<std::string>& args) {
    std::vector<std::string> all = {"--demo"};
    all.insert(all.end(), args.begin(), args.end());
    auto served = ServedBaton::Start(all);
    INFO((served.ok() ? std::string() : std::string(served.status().message())));
    REQUIRE(served.ok());
    served_ = *std::move(served);
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(served_->log(), '\n'))) {
      const size_t at = line.find("metrics on ");
      if (at == std::string::npos) continue;
      const auto url = HttpUrl::Parse(line.substr(at + 11, line.find("/metrics") - at - 11));
      REQUIRE(url.ok());
      workers_.push_back(*url);
    }
  }

  Counters Read() const {
    Counters sum;
    for (const HttpUrl& url : workers_) {
      const auto page = MetricsPage::Fetch(url);
      REQUIRE(page.ok());
      sum.computed += page->Sum("baton_prefill_tokens_total");
      sum.sent_bytes += page->Sum("baton_kv_sent_bytes_total");
      sum.held_pages += page->Sum("baton_kv_held_pages_total");
    }
    return sum;
  }

  // Returns the answers' tokens.
  std::vector<std::vector<int32_t>> Ask(const std::vector<int32_t>& prompt, int max_tokens,
                                        int n = 1, double temperature = 0) const {
    const boost::json::object body{{"prompt", boost::json::value_from(prompt)},
                                   {"max_tokens", max_tokens},
                                   {"n", n},
                                   {"temperature", temperature},
                                   {"seed", 7},
                                   {"ignore_eos", true},
                                   {"return_token_ids", true}};
    const auto response = served_->client().Post("/v1/completions", boost::json::serialize(body));
    REQUIRE(response.ok());
    INFO(response->body);
    REQUIRE(response->status == 200);
    std::vector<std::vector<int32_t>> answers;
    const boost::json::value answer = boost::json::parse(response->body);
    for (const boost::json::value& choice : answer.at("choices").as_array())
      answers.push_back(boost::json::value_to<std::vector<int32_t>>(choice.at("token_ids")));
    return answers;
  }
  size_t n_workers() const { return workers_.size(); }

 private:
  std::unique_ptr<ServedBaton> served_;
  std::vector<HttpUrl> workers_;
};

std::vector<int32_t> Tokens(int n, int from) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(300 + (from * 131 + i * 17) % 1500);
  return tokens;
}

void Append(const std::vector<int32_t>& more, std::vector<int32_t>* tokens) {
  tokens->insert(tokens->end(), more.begin(), more.end());
}

// Bytes that a handoff of whole pages moves, by a prompt that no worker knows.
double PageBytes(const Cluster& cluster) {
  const Counters before = cluster.Read();
  cluster.Ask(Tokens(4 * kPageTokens, 77), 2);
  return (cluster.Read() - before).sent_bytes / 4;
}

TEST_CASE("the second turn computes and hands over what is new") {
  const Cluster cluster({"--prefill=1", "--decode=1"});
  REQUIRE(cluster.n_workers() == 2);
  const double page_bytes = PageBytes(cluster);
  std::vector<int32_t> conversation = Tokens(256, 1);
  const std::vector<int32_t> answer = cluster.Ask(conversation, 640).front();
  REQUIRE(answer.size() == 640);
  Append(answer, &conversation);
  constexpr int kNew = 40;
  Append(Tokens(kNew, 2), &conversation);
  const Counters before = cluster.Read();
  cluster.Ask(conversation, 16);
  const Counters turn = cluster.Read() - before;
  CHECK(turn.computed <= kNew + kPageTokens);
  CHECK(turn.sent_bytes <= page_bytes * (1 + (kNew + kPageTokens - 1) / kPageTokens));
}

TEST_CASE("each of ten turns computes what is new, whoever decoded the one before") {
  const auto [prefill, decode] = GENERATE(std::pair(1, 1), std::pair(2, 2));
  CAPTURE(prefill, decode);
  const Cluster cluster({absl::StrCat("--prefill=", prefill), absl::StrCat("--decode=", decode)});
  const Cluster forgetful(
      {"--prefill=1", "--decode=1", "--prefill.reuse_kv=false", "--decode.reuse_kv=false"});
  constexpr int kNew = 120, kAnswer = 80;
  std::vector<int32_t> conversation;
  for (int turn = 0; turn < 10; ++turn) {
    CAPTURE(turn);
    Append(Tokens(kNew, turn), &conversation);
    const Counters before = cluster.Read();
    const std::vector<int32_t> answer = cluster.Ask(conversation, kAnswer).front();
    CHECK((cluster.Read() - before).computed <= kNew + kPageTokens);
    CHECK(answer == forgetful.Ask(conversation, kAnswer).front());
    Append(answer, &conversation);
  }
}

TEST_CASE("eight choices of a prompt are computed once and handed over once") {
  const Cluster cluster({"--prefill=2", "--decode=1"});
  constexpr int kPrompt = 2000;
  const std::vector<int32_t> one = Tokens(kPrompt, 1), eight = Tokens(kPrompt, 2);
  const Counters start = cluster.Read();
  cluster.Ask(one, 32);
  const Counters between = cluster.Read();
  const auto answers = cluster.Ask(eight, 32, 8, 1);
  const Counters alone = between - start, together = cluster.Read() - between;
  CHECK(alone.computed == kPrompt);
  CHECK(together.computed <= kPrompt + 7);  // each has its own first token
  CHECK(together.sent_bytes <= alone.sent_bytes * 1.05);

  // Each choice is what it is alone.
  REQUIRE(answers.size() == 8);
  const Cluster forgetful(
      {"--prefill=1", "--decode=1", "--prefill.reuse_kv=false", "--decode.reuse_kv=false"});
  CHECK(answers == forgetful.Ask(eight, 32, 8, 1));
}

}  // namespace
}  // namespace baton
