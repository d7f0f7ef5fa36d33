// The text of `baton top`, from answers of a server.
#include "server/cli/top_screen.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

std::string Answer(int second, const std::string& itl, const std::string& finished) {
  return absl::StrCat(
      R"({"object":"cluster.live","cursor":"c-)", second,
      R"(","now":1,"model":"demo","version":"1.2","ready":true,"draining":false,)"
      R"("requests":{"running":1,"waiting":2,"ended":3},"failovers":{"worker_lost":1,"late":0},)"
      R"("workers":[{"name":"decode0","role":"decode","draining":false,"standing":false,"silent_ms":12,)"
      R"("prefill_queued_tokens":5,"decode_rows":2,"max_batch":4,)"
      R"("pages":{"total":100,"free":75,"promised":1},"links":[{"to":"prefill0",)"
      R"("bytes_per_second":1500000000,"tokens_under_way":9}]}],"second":)",
      second, R"(,"ttft":[],"itl":)", itl, R"(,"running":[],"finished":)", finished, "}");
}

constexpr char kRequest[] =
    R"([{"id":"a","arrived":1,"waits":false,"finish":"stop","ttft_ms":5,"total_ms":20,)"
    R"("prompt_tokens":7,"tokens":3,"attempts":[{"prefill":["prefill0","prefill1"],)"
    R"("decode":"decode0","failure":{"cause":"worker_lost","worker":"decode0"}}]}])";

}  // namespace

TEST_CASE("the screen shows cluster, latencies, workers and requests") {
  TopScreen screen;
  REQUIRE(screen.Take(Answer(50, "[[49,[[1024,9],[4096,1]]]]", kRequest)).ok());
  CHECK(screen.cursor() == "c-50");
  const std::string text = screen.Text(200, 100);
  INFO(text);
  for (const char* part :
       {"baton 1.2  model demo  ready  1 workers", "1 running  2 waiting  3 ended",
        "worker_lost 1\n", "1.10 ms", "4.56 ms", "[######......]", "2/4", "[###.........]",
        "prefill0 1.5 GB/s (9 tokens)", "prefill0+prefill1 decode0  ! worker_lost decode0"})
    CHECK(absl::StrContains(text, part));
  CHECK_FALSE(absl::StrContains(text, "late"));
}

TEST_CASE("a broken link is told in place of its rate") {
  std::string answer = Answer(50, "[]", kRequest);
  TopScreen screen;
  REQUIRE(screen.Take(answer).ok());
  CHECK_FALSE(absl::StrContains(screen.Text(200, 100), "BROKEN"));
  const std::string tokens = R"("tokens_under_way":9)";
  answer.replace(answer.find(tokens), tokens.size(), tokens + R"(,"broken":true)");
  REQUIRE(screen.Take(answer).ok());
  CHECK(absl::StrContains(screen.Text(200, 100), "prefill0 BROKEN (9 tokens)"));
}

TEST_CASE("later answers add to it, and old seconds fall out") {
  TopScreen screen;
  REQUIRE(screen.Take(Answer(50, "[[49,[[1024,9]]]]", kRequest)).ok());
  REQUIRE(screen.Take(Answer(51, "[[50,[[1024,1]]]]", "[]")).ok());
  CHECK(absl::StrContains(screen.Text(200, 100), "       10\n"));
  CHECK(absl::StrContains(screen.Text(200, 100), "prefill0+prefill1"));
  REQUIRE(screen.Take(Answer(70, "[]", "[]")).ok());
  CHECK(absl::StrContains(screen.Text(200, 100),
                          "next token            -          -          -         0\n"));
}

TEST_CASE("lines fit the terminal") {
  TopScreen screen;
  REQUIRE(screen.Take(Answer(50, "[]", kRequest)).ok());
  const std::vector<std::string> lines = absl::StrSplit(screen.Text(30, 5), '\n');
  CHECK(lines.size() == 6);
  for (const std::string& line : lines) CHECK(line.size() <= 30);
}

TEST_CASE("an answer that is another one is refused, and what was shown stays") {
  TopScreen screen;
  REQUIRE(screen.Take(Answer(50, "[]", kRequest)).ok());
  const std::string text = screen.Text(200, 100);
  for (const char* body : {"", "{}", "[1]", R"({"object":"cluster"})"})
    CHECK(absl::IsInvalidArgument(screen.Take(body)));
  CHECK(absl::IsInvalidArgument(screen.Take(Answer(51, "[]", R"([{"id":"a"}])"))));
  CHECK(screen.Text(200, 100) == text);
}

}  // namespace baton
