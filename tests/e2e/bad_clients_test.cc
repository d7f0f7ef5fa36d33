// One client must not harm the others, tried on real processes: requests at the API's own limits,
// answers to bytes that are no text, workers that are told to stop twice.

#include <signal.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "e2e/served_baton.h"
#include "e2e/stream_crowd.h"
#include "server/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

std::unique_ptr<ServedBaton> Serve(const std::vector<std::string>& args) {
  auto served = ServedBaton::Start(args);
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  return *std::move(served);
}

json::value Parse(const std::string& text) {
  json::error_code bad;
  json::value value = json::parse(text, bad);  // refuses what is not UTF-8
  INFO(text);
  REQUIRE_FALSE(bad);
  return value;
}

TEST_CASE("a request with as many stop tokens as the API takes is answered, and nobody is lost") {
  const std::unique_ptr<ServedBaton> served = Serve({"--demo"});
  const HttpClient client = served->client();
  std::string ids;  // ascending from one that the model has, and which it does not say here
  for (int i = 0; i < 1024; ++i) absl::StrAppend(&ids, i == 0 ? "" : ",", 100 + i);
  const auto response =
      client.Post("/v1/completions",
                  absl::StrCat(R"({"prompt":"a","max_tokens":4,"temperature":0,"stop_token_ids":[)",
                               ids, "]}"));
  REQUIRE(response.ok());
  INFO(response->body);
  CHECK(response->status == 200);
  CHECK(served->log().find("stream to router") == std::string::npos);
  CHECK(MetricSum(client, "baton_failovers_total") == 0);
  // The same id a thousand times is one.
  std::string again = ids;
  absl::StrAppend(&again, ",", ids);
  CHECK(client
            .Post("/v1/completions",
                  absl::StrCat(R"({"prompt":"a","max_tokens":4,"stop_token_ids":[)", again, "]}"))
            ->status == 200);
}

}  // namespace
}  // namespace baton
