// One tenant tries to find out by timing, and by all that an answer says, whether another one has
// asked a prompt before. How well it can is the area under the ROC curve of each figure: 0.5 is a
// guess. A slice runs in CI; "[.][10000]" is the command of docs/RELIABILITY.md.
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/access/key_file.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace json = boost::json;

std::map<std::string, std::string> HeadersOf(const std::string& tenant) {
  return {{"Authorization", "Bearer bk_probe-" + tenant}};
}

// Figures that a probe sees: its time to the first event, cached_tokens, and as text all else that
// an answer says.
struct Probe {
  double seconds = 0;
  double cached_tokens = 0;
  std::string told;
};

// Chance that a value of `a` is less than one of `b`; of equal ones half.
double AreaUnderCurve(const std::vector<double>& a, std::vector<double> b) {
  std::sort(b.begin(), b.end());
  double sum = 0;
  for (const double value : a) {
    const auto [equal, greater] = std::equal_range(b.begin(), b.end(), value);
    sum += static_cast<double>(b.end() - greater) + 0.5 * static_cast<double>(greater - equal);
  }
  return sum / (static_cast<double>(a.size()) * static_cast<double>(b.size()));
}

class Tenants {
 public:
  Tenants() {
    const std::string path = folder_.file("keys");
    {
      std::ofstream file(path);
      for (const std::string tenant : {"a", "b"})
        file << KeyLine({.name = tenant,
                         .digest = KeyDigest::Of("bk_probe-" + tenant),
                         .tenant = tenant,
                         .scopes = SetOf(Scope::kInference)})
             << "\n";
    }
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    auto started = ServedBaton::Start({"--demo", "--prefill", "1", "--api-key-file", path});
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    served_ = *std::move(started);
  }

  Probe Ask(const std::string& tenant, const std::string& prompt) const {
    const std::string body =
        json::serialize(json::object{{"prompt", prompt},
                                     {"max_tokens", 1},
                                     {"temperature", 0},
                                     {"stream", true},
                                     {"stream_options", json::object{{"include_usage", true}}}});
    Probe probe;
    absl::Time first = absl::InfiniteFuture();
    const absl::Time sent = absl::Now();
    const auto response = served_->client().Post(
        "/v1/completions", body,
        [&](std::string_view data, absl::Time now) {
          first = std::min(first, now);
          if (data == "[DONE]") return true;
          json::object event = json::parse(json::string_view(data.data(), data.size())).as_object();
          for (const char* own : {"id", "created", "choices"}) event.erase(own);
          if (json::value* usage = event.if_contains("usage");
              usage != nullptr && usage->is_object()) {
            json::object& details = usage->at("prompt_tokens_details").as_object();
            probe.cached_tokens = details["cached_tokens"].to_number<double>();
            details.erase("cached_tokens");
            for (const char* own : {"prompt_tokens", "total_tokens"}) usage->as_object().erase(own);
          }
          probe.told += json::serialize(event);
          return true;
        },
        HeadersOf(tenant));
    REQUIRE(response.ok());
    REQUIRE(response->status == 200);
    for (const auto& [name, value] : response->headers)
      if (name != "date" && name != "x-request-id") absl::StrAppend(&probe.told, name, value);
    probe.seconds = absl::ToDoubleSeconds(first - sent);
    return probe;
  }

 private:
  const TempFolder folder_;
  std::unique_ptr<ServedBaton> served_;
};

// The first words are drawn, because the copied part of a page counts as cached, too: no prompt
// begins more like an earlier one than others do.
std::string PromptOf(uint64_t number) {
  std::mt19937_64 random(number);
  std::string text = absl::StrCat(absl::Hex(random()), absl::Hex(random()), ".");
  for (int i = 0; i < 120; ++i) text += " the duck and the cellar and";
  return text;
}

// n probes; half of them of prompts that `victim` has asked just before.
struct Areas {
  double seconds = 0, cached_tokens = 0;
  bool tells_the_same = true;
};
Areas ProbeBy(const std::string& prober, int n, uint64_t* number) {
  const Tenants tenants;
  std::mt19937_64 random(7);
  std::vector<double> seconds[2], cached[2];
  std::string told;
  Areas areas;
  for (int i = 0; i < 20; ++i) tenants.Ask("b", PromptOf(++*number));  // warm-up
  for (int i = 0; i < n; ++i) {
    const uint64_t asked = ++*number;
    tenants.Ask("a", PromptOf(asked));
    const bool is_asked = random() % 2 == 0;
    const Probe probe = tenants.Ask(prober, PromptOf(is_asked ? asked : ++*number));
    seconds[is_asked].push_back(probe.seconds);
    cached[is_asked].push_back(probe.cached_tokens);
    if (told.empty()) told = probe.told;
    if (areas.tells_the_same && probe.told != told) WARN(probe.told << " instead of " << told);
    areas.tells_the_same &= probe.told == told;
  }
  areas.seconds = AreaUnderCurve(seconds[1], seconds[0]);
  areas.cached_tokens = AreaUnderCurve(cached[1], cached[0]);
  WARN("probes by " << prober << ": area under the curve of time " << areas.seconds
                    << ", of cached_tokens " << areas.cached_tokens);
  return areas;
}

// tolerance: how far from a guess the area of times may be.
void Check(int n, double tolerance) {
  uint64_t number = 0;
  const Areas other = ProbeBy("b", n, &number);
  CHECK(other.seconds == Approx(0.5).margin(tolerance));
  CHECK(other.cached_tokens == Approx(0.5).margin(tolerance));
  CHECK(other.tells_the_same);
  // Probes of a tenant's own prompts see them well, so these probes are good ones.
  const Areas own = ProbeBy("a", std::min(n, 200), &number);
  if (n >= 10'000) CHECK(own.seconds > 0.65);  // of few probes a busy machine hides it
  CHECK(own.cached_tokens < 0.1);
}

// With so few the area of a mere guess has a standard deviation of 0.033.
TEST_CASE("300 probes do not tell what another tenant has asked") { Check(300, 0.15); }

TEST_CASE("10,000 probes do not tell what another tenant has asked", "[.][10000]") {
  Check(10'000, 0.02);
}

}  // namespace
}  // namespace baton
