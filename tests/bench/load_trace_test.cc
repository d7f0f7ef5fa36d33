// Requests for `baton bench load` from a trace: the same in every run, with the trace's lengths,
// arrivals and shared prefixes.
#include "bench/load/load_trace.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

namespace baton {
namespace {

struct TraceFile {
  TraceFile() {
    std::ofstream file(path);
    for (int i = 0; i < 40; ++i) {
      file << "{\"timestamp\": " << i / 10 * 3000 << ", \"input_length\": " << 1200 + 100 * i
           << ", \"output_length\": 64, \"hash_ids\": [0, " << i % 2 + 1 << ", " << 10 + i
           << "]}\n";
    }
  }
  ~TraceFile() { std::remove(path.c_str()); }
  std::string path = "load_trace_test." + std::to_string(getpid()) + ".jsonl";
};

std::vector<LoadRequest> Read(const TraceOptions& options) {
  const auto requests = ReadTrace(options);
  REQUIRE(requests.ok());
  return *requests;
}

}  // namespace

TEST_CASE("lengths and arrivals of a trace are scaled, equal blocks are equal prefixes") {
  const TraceFile file;
  const auto requests = Read({.path = file.path, .length_scale = 0.125, .time_scale = 2});
  REQUIRE(requests.size() == 40);
  CHECK(requests[0].prompt.size() == 150);
  CHECK(requests[39].prompt.size() == 638);
  CHECK(requests[10].start_s == 6);
  CHECK(requests[0].max_tokens == 8);
  const auto equal = [&](size_t a, size_t b) {  // tokens
    const auto& x = requests[a].prompt;
    return std::mismatch(x.begin(), x.end(), requests[b].prompt.begin()).first - x.begin();
  };
  CHECK(equal(0, 1) == 64);
  CHECK(equal(0, 2) == 128);
}

TEST_CASE("arrivals spread over what the trace was rounded to: ascending, of the seed") {
  const TraceFile file;
  TraceOptions options{
      .path = file.path, .time_scale = 0.5, .spread_s = 3, .max_context = 1 << 20, .seed = 7};
  const auto spread = Read(options);
  std::map<size_t, double> at_length;  // arrivals by length, which is different for each request
  options.spread_s = 0;
  for (const LoadRequest& request : Read(options))
    at_length[request.prompt.size()] = request.start_s;
  double sum = 0, before = 0;
  for (const LoadRequest& request : spread) {
    const double later = request.start_s - at_length.at(request.prompt.size());
    CHECK((later >= 0 && later < 1.5));
    sum += later;
    CHECK(request.start_s >= before);
    before = request.start_s;
  }
  CHECK(sum / 40 == Approx(0.75).margin(0.2));
  options.spread_s = 3;
  const auto again = Read(options);
  for (size_t i = 0; i < 40; ++i) CHECK(again[i].start_s == spread[i].start_s);
  options.seed = 8;
  CHECK(Read(options)[5].start_s != spread[5].start_s);
}

TEST_CASE("a trace that cannot be read says which line") {
  const TraceFile file;
  std::ofstream(file.path, std::ios::app) << "{\"timestamp\": 1}\n";
  const auto broken = ReadTrace({.path = file.path});
  REQUIRE_FALSE(broken.ok());
  CHECK_THAT(std::string(broken.status().message()), Catch::Contains("line 41"));
  CHECK_FALSE(ReadTrace({.path = "nowhere.jsonl"}).ok());
}

}  // namespace baton
