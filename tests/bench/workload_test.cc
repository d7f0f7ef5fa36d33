// Requests of a load run at a wanted rate and for some time, from a trace or synthetic.
#include "bench/load/workload.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

namespace baton {
namespace {

struct TraceFile {  // 21 requests, one every 2 s
  TraceFile() {
    std::ofstream file(path);
    for (int i = 0; i < 21; ++i) {
      file << "{\"timestamp\": " << i * 2000 << ", \"input_length\": 600, \"output_length\": 8, "
           << "\"hash_ids\": [0, " << i + 1 << "]}\n";
    }
  }
  ~TraceFile() { std::remove(path.c_str()); }
  std::string path = "workload_test." + std::to_string(getpid()) + ".jsonl";
};

std::vector<LoadRequest> Make(const Workload& workload, uint64_t seed = 1) {
  const auto requests = MakeRequests(workload, seed);
  REQUIRE(requests.ok());
  return *requests;
}

}  // namespace

TEST_CASE("a trace is replayed at a wanted mean rate") {
  const TraceFile file;
  Workload workload{.trace = {.path = file.path}};
  CHECK(MeanRate(Make(workload)) == Approx(0.5));
  workload.rate = 4;
  const auto requests = Make(workload);
  REQUIRE(requests.size() == 21);
  CHECK(MeanRate(requests) == Approx(4));
  CHECK(requests[0].start_s == 0);
  CHECK(requests[20].start_s == Approx(5));
}

TEST_CASE("a trace that is too short begins again with other tokens; one too long is cut") {
  const TraceFile file;
  Workload workload{.trace = {.path = file.path}, .rate = 4, .seconds = 30};
  const auto requests = Make(workload);
  CHECK(requests.size() == 120);
  CHECK(MeanRate(requests) == Approx(4));
  CHECK(requests.back().start_s < 30);
  std::set<std::vector<int32_t>> prompts;
  for (const LoadRequest& request : requests) prompts.insert(request.prompt);
  CHECK(prompts.size() == 120);
  CHECK(requests[21].prompt[0] != requests[0].prompt[0]);
  CHECK(requests[1].prompt[0] == requests[0].prompt[0]);  // the trace's shared block
  workload.seconds = 2;
  CHECK(Make(workload).size() == 8);
}

TEST_CASE("synthetic requests arrive at a mean rate until the end") {
  const Workload workload{.synthetic = {.prompt_tokens = 8}, .rate = 20, .seconds = 50};
  const auto requests = Make(workload, 5);
  CHECK(requests.size() == Approx(1000).epsilon(0.1));
  CHECK(requests.back().start_s < 50);
  CHECK(requests.back().start_s > 48);
}

TEST_CASE("equal seeds give equal prompts, other seeds share not even a first token") {
  const TraceFile file;
  for (const Workload& workload :
       {Workload{.trace = {.path = file.path}},
        Workload{.synthetic = {.n_requests = 21, .prompt_tokens = 64}}}) {
    const auto requests = Make(workload, 1), again = Make(workload, 1), other = Make(workload, 2);
    int equal_beginnings = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      CHECK(requests[i].prompt == again[i].prompt);
      const auto& a = requests[i].prompt;
      equal_beginnings += std::equal(a.begin(), a.begin() + 8, other[i].prompt.begin());
    }
    CHECK(equal_beginnings == 0);
  }
}

TEST_CASE("a rate needs arrivals to scale") {
  const TraceFile file;
  const Workload workload{.trace = {.path = file.path, .n_requests = 1}, .rate = 4};
  const auto made = MakeRequests(workload, 1);
  REQUIRE_FALSE(made.ok());
  CHECK_THAT(std::string(made.status().message()), Catch::Contains("--requests"));
}

}  // namespace baton
