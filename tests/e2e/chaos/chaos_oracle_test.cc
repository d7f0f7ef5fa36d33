// The rig must detect its targets: each kind of damage to an answer, a stall, a leak and an
// unexpected death is found, and allowed behaviour is not reported.

#include <catch2/catch.hpp>
#include <functional>

#include "bench/load/metrics_page.h"
#include "tests/e2e/chaos/audit.h"
#include "tests/e2e/chaos/explained.h"
#include "tests/e2e/chaos/schedule.h"
#include "tests/e2e/chaos/stall.h"

namespace baton {
namespace {

Answer WholeAnswer() {
  Answer answer;
  answer.text = "abcd";
  answer.finish_reason = "length";
  answer.tokens = {10, 11, 12, 13};
  answer.digests = {"0a", "0b", "0c", "0d"};
  answer.prompt_logprobs = "[null,1]";
  answer.n_counted = 4;
  return answer;
}

Exchange WholeExchange() {
  Exchange exchange;
  exchange.http_status = 200;
  exchange.answer = WholeAnswer();
  exchange.n_finishes = exchange.n_done = 1;
  exchange.sent = absl::UnixEpoch();
  exchange.ended = exchange.sent + absl::Seconds(2);
  return exchange;
}

Verdict Judged(const std::function<void(Exchange&)>& damage, const Manner& manner = Manner()) {
  Exchange exchange = WholeExchange();
  damage(exchange);
  std::string why;
  const Verdict verdict = Judge(exchange, manner, WholeAnswer(), &why);
  INFO(why);
  CHECK(why.empty() == (verdict == Verdict::kExact || verdict == Verdict::kLeft));
  return verdict;
}

void CutTo(Exchange& exchange, size_t n) {
  exchange.answer.tokens.resize(n);
  exchange.answer.digests.resize(n);
  exchange.answer.text.resize(n);
  if (n == 0) exchange.answer.prompt_logprobs.clear();
  exchange.n_finishes = exchange.n_done = 0;
  exchange.answer.finish_reason.clear();
}

TEST_CASE("each kind of damage to a stream has its verdict") {
  CHECK(Judged([](Exchange&) {}) == Verdict::kExact);
  CHECK(Judged([](Exchange& e) { e.answer.tokens[2] = 99; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.digests[3] = "ff"; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.text = "abXd"; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.text = "abc"; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.finish_reason = "stop"; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.n_counted = 5; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.prompt_logprobs = "[null,2]"; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.prompt_logprobs.clear(); }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.prompt_logprobs += "[null,1]"; }) == Verdict::kWrong);
  // A gap: the third token is missing.
  CHECK(Judged([](Exchange& e) { e.answer.tokens = {10, 11, 13}; }) == Verdict::kWrong);
  // A repeat in the middle, and one at the end.
  CHECK(Judged([](Exchange& e) { e.answer.tokens = {10, 11, 11, 12, 13}; }) == Verdict::kWrong);
  CHECK(Judged([](Exchange& e) { e.answer.tokens.push_back(13); }) == Verdict::kDuplicated);
  CHECK(Judged([](Exchange& e) { e.n_finishes = 2; }) == Verdict::kDuplicated);
  CHECK(Judged([](Exchange& e) { e.n_done = 2; }) == Verdict::kDuplicated);
  CHECK(Judged([](Exchange& e) { e.n_after_done = 1; }) == Verdict::kDuplicated);
  CHECK(Judged([](Exchange& e) { CutTo(e, 2); }) == Verdict::kLost);
  CHECK(Judged([](Exchange& e) { e.n_finishes = 0; }) == Verdict::kLost);
  CHECK(Judged([](Exchange& e) { e.n_done = 0; }) == Verdict::kLost);
  CHECK(Judged([](Exchange& e) { e.error = "connection closed"; }) == Verdict::kLost);
  CHECK(Judged([](Exchange& e) {
          CutTo(e, 3);
          e.n_finishes = e.n_done = 1;
        }) == Verdict::kLost);
}

TEST_CASE("who leaves or does not read gets what was right, and still nothing wrong") {
  Manner leaves;
  leaves.leaves_after_events = 2;
  const auto left = [](Exchange& e) {
    CutTo(e, 2);
    e.left = true;
  };
  CHECK(Judged(left, leaves) == Verdict::kLeft);
  CHECK(Judged(
            [&](Exchange& e) {
              left(e);
              e.answer.tokens[1] = 99;
            },
            leaves) == Verdict::kWrong);
  Manner idle;
  idle.stops_reading_after = 2;
  CHECK(Judged([](Exchange& e) { CutTo(e, 3); }, idle) == Verdict::kCutOff);
}

TEST_CASE("a refusal comes at once; the same status later is a loss") {
  const auto refused = [](Exchange& e) {
    CutTo(e, 0);
    e.http_status = 503;
    e.error = "HTTP 503 no worker is connected yet";
    e.ended = e.sent + absl::Milliseconds(50);
  };
  CHECK(Judged(refused) == Verdict::kRefused);
  CHECK(Judged([&](Exchange& e) {
          refused(e);
          e.ended = e.sent + absl::Seconds(3);
        }) == Verdict::kLost);
  CHECK(Judged([&](Exchange& e) {
          refused(e);
          e.error = "HTTP 503 gave up after 4 attempts";
        }) == Verdict::kLost);
}

TEST_CASE("a schedule is a function of its seed and full of kills") {
  const Profile profile = *FindProfile("kill");
  const auto faults = MakeSchedule(profile, absl::Minutes(10), 1);
  const auto again = MakeSchedule(profile, absl::Minutes(10), 1);
  const auto other = MakeSchedule(profile, absl::Minutes(10), 2);
  CHECK(faults.size() >= 120);
  REQUIRE(again.size() == faults.size());
  int n_moments[4] = {};
  for (size_t i = 0; i < faults.size(); ++i) {
    CHECK(faults[i].kind == FaultKind::kKill);
    CHECK(faults[i].at == again[i].at);
    CHECK(faults[i].victim == again[i].victim);
    CHECK((i == 0 || faults[i].at > faults[i - 1].at));
    ++n_moments[static_cast<int>(faults[i].moment)];
  }
  for (const int n : n_moments) CHECK(n >= 10);
  CHECK(faults.front().at != other.front().at);
  CHECK_FALSE(FindProfile("no such profile").ok());
}

TEST_CASE("a refusal is explained by all workers away at once, or by more clients than may wait") {
  const auto at = [](double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); };
  ExchangeRecord refused;
  refused.verdict = Verdict::kRefused;
  refused.http_status = 503;
  refused.sent = refused.ended = at(100);
  std::vector<FaultRecord> faults;
  const auto complaints = [&](int n_clients) {
    return UnexplainedRefusals({refused}, faults, 2, n_clients).size();
  };
  CHECK(complaints(10) == 1);
  for (const char* victim : {"prefill0", "prefill0", "decode0"}) {
    CHECK(complaints(10) == 1);
    FaultRecord kill;
    kill.at = at(95);
    kill.victim = victim;
    faults.push_back(kill);
  }
  CHECK(complaints(10) == 0);
  faults.back().at = at(101);  // later than the answer
  CHECK(complaints(10) == 1);
  faults.back().at = at(60);  // it was back long before
  CHECK(complaints(10) == 1);
  faults.back().lasts = absl::Seconds(30);
  CHECK(complaints(10) == 0);
  refused.http_status = 429;
  CHECK(complaints(10) == 1);
  CHECK(complaints(2000) == 0);
  refused.verdict = Verdict::kExact;
  CHECK(complaints(10) == 0);
}

TEST_CASE("an engine that is said to stand still is a false alarm where nothing stops any") {
  CHECK(StandStills("") == 0);
  CHECK(StandStills("a warn router  worker d0 gets nothing new: its engine has been\nb\n") == 1);
  CHECK(StopsNothing(*FindProfile("kill")));
  CHECK(StopsNothing(*FindProfile("pools")));
  CHECK_FALSE(StopsNothing(*FindProfile("mixed")));
  CHECK_FALSE(StopsNothing(*FindProfile("network")));
}

TEST_CASE("a stall is the gap that spans a kill, less the time of computing again") {
  const auto at = [](double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); };
  ExchangeRecord moved;
  moved.token_times = {at(0), at(1), at(4), at(9)};
  moved.prefilled_again = absl::Milliseconds(500);
  ExchangeRecord undisturbed, later;
  later.token_times = {at(60), at(70)};
  FaultRecord kill;
  kill.at = at(2);
  FaultRecord pause = kill;  // a pause is no kill, so its gap does not count
  pause.kind = FaultKind::kPause;
  pause.at = at(5);
  const Stalls stalls = FindStalls({moved, undisturbed, later}, {kill, pause});
  REQUIRE(stalls.gap_s.size() == 1);
  CHECK(stalls.gap_s[0] == Approx(3));
  CHECK(stalls.excess_s[0] == Approx(2.5));
}

TEST_CASE("growth, a process that is gone and a death without a fault are seen") {
  DecodeReservations decode;
  decode.member = Member{"decode0", 7, std::nullopt};
  decode.alive = true;
  decode.n_threads = 10;
  decode.n_descriptors = 40;
  decode.rss_kb = 100 << 10;
  DecodeReservations sibling = decode;
  sibling.member.name = "decode1";
  sibling.n_descriptors = 44;
  const std::vector<DecodeReservations> before = {decode, sibling};
  const GrowthLimits limits{.threads = 0, .descriptors = 1, .rss_share = 0.1, .rss_kb = 0};
  CHECK(Growth(before, before, limits).empty());
  DecodeReservations grown = decode;
  grown.n_descriptors = 45;  // one above the max of its role
  grown.rss_kb = 110 << 10;
  CHECK(Growth(before, {grown, sibling}, limits).empty());
  grown.n_descriptors = 46;
  grown.rss_kb = 111 << 10;
  grown.n_threads = 11;
  CHECK(Growth(before, {grown, sibling}, limits).size() == 3);
  CHECK(Growth(before, {decode}, limits).size() == 1);

  const std::string log =
      "2026-01-02T03:04:05.678Z warn  serve     decode0 ended with signal 9, starting it again\n"
      "2026-01-02T03:04:05.678Z info  decode0   handoff committed\n";
  FaultRecord kill;
  kill.victim = "decode0";
  CHECK(LogComplaints(log, {kill}).empty());
  CHECK(LogComplaints(log, {}).size() == 1);
  CHECK(LogComplaints(log + log, {kill}).size() == 1);
  CHECK(LogComplaints("2026-01-02T03:04:05.678Z error decode0   cannot\n", {}).size() == 1);
  CHECK(LogComplaints("CHECK failed: a == b\n", {}).size() == 1);
}

TEST_CASE("a metrics page is summed over labels and its histograms have quantiles") {
  const MetricsPage page(
      "# HELP a help\na{role=\"x\"} 2\na{role=\"y\"} 3\nb 7\n"
      "h_bucket{role=\"r\",le=\"0.1\"} 90\nh_bucket{role=\"r\",le=\"1.0\"} 99\n"
      "h_bucket{role=\"r\",le=\"+Inf\"} 100\nh_count 100\n");
  CHECK(page.Sum("a") == 5);
  CHECK(page.Sum("b") == 7);
  CHECK(page.Sum("c") == 0);
  CHECK(page.Has("h_count"));
  CHECK_FALSE(page.Has("h_coun"));
  CHECK(page.Quantile("h", 0.5) == Approx(0.1));
  CHECK(page.Quantile("h", 0.99) == Approx(1.0));
  const MetricsPage later(
      "a{role=\"x\"} 4\na{role=\"y\"} 3\nh_bucket{role=\"r\",le=\"0.1\"} 90\n"
      "h_bucket{role=\"r\",le=\"1.0\"} 109\nh_bucket{role=\"r\",le=\"+Inf\"} 110\nh_count 110\n");
  CHECK(later.Since(page).Sum("a") == 2);
  CHECK(later.Since(page).Sum("h_count") == 10);
  CHECK(later.Since(page).Quantile("h", 0.5) == Approx(1.0));
}

}  // namespace
}  // namespace baton
