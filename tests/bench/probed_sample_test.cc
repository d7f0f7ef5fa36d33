// A share of a limit is reported only if the probes around a sample met the same state of the
// machine.
#include "bench/probed_sample.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

namespace baton {
namespace {

using Catch::Matchers::Contains;
using Doubt = ProbedSample::Doubt;

ProbedSample Sample(double seconds, double min_before, double min_after) {
  ProbedSample sample;
  sample.Add(seconds, min_before, min_after);
  return sample;
}

KernelResult LineOf(const std::vector<ProbedSample>& samples) {
  KernelResult line;
  line.name = "decode_1";
  line.unit = "tok/s";
  SetSamples(samples, 1, &line);
  return line;
}

boost::json::object JsonOf(const KernelResult& line) {
  const boost::json::value object = boost::json::parse(KernelJson("v1", {line}));
  return object.at("results").at(0).as_object();
}

TEST_CASE("a sample counts between probes of one state and below its limit") {
  CHECK(Sample(2.0, 1.0, 1.09).doubt() == Doubt::kNone);
  CHECK(Sample(2.0, 1.0, 1.11).doubt() == Doubt::kTwoStates);
  CHECK(Sample(2.0, 1.11, 1.0).doubt() == Doubt::kTwoStates);
  CHECK(Sample(0.99, 1.0, 1.05).doubt() == Doubt::kAboveLimit);
  CHECK(Sample(1.0, 1.0, 1.05).doubt() == Doubt::kNone);
  CHECK(Sample(2.0, 1.0, 1.05).share() == 0.5);      // of the faster probe's limit
  CHECK(Sample(2.0, 0, 0).doubt() == Doubt::kNone);  // no limit
}

TEST_CASE("a sample of parts is in doubt if most of its time is") {
  ProbedSample sample = Sample(3.0, 1.0, 1.05);
  sample.Add(2.0, 1.0, 2.0);
  CHECK(sample.seconds() == 5.0);
  CHECK(sample.min_seconds() == 2.0);
  CHECK(sample.doubt() == Doubt::kNone);
  sample.Add(2.0, 2.0, 1.0);
  CHECK(sample.doubt() == Doubt::kTwoStates);
}

TEST_CASE("a line is the median of the samples that count, with the spread of all") {
  // Shares 1/4, 1/2 and 1/3, and a sample without a matching probe, which would be the highest.
  const KernelResult line =
      LineOf({Sample(4, 1, 1), Sample(2, 1, 1), Sample(3, 1, 1.05), Sample(1, 1, 5)});
  CHECK(line.not_counted.empty());
  CHECK((line.n_samples == 4 && line.n_counted == 3));
  CHECK(line.value == Approx(1.0 / 3));
  CHECK(line.limit == 1);
  CHECK(line.seconds == 3);
  CHECK((line.samples.min == 0.25 && line.samples.max == 1));
  CHECK((line.limits.min == 0.2 && line.limits.max == 1));
  CHECK_THAT(KernelTable("", {line}), Contains(" 33.3 % of 1.0") && !Contains("NOT COUNTED"));
  const boost::json::object json = JsonOf(line);
  CHECK(json.at("counted").as_bool());
  CHECK(json.at("percent_of_limit").to_number<double>() == Approx(100.0 / 3));
  CHECK(json.at("samples").at("taken").as_int64() == 4);
  CHECK(json.at("samples").at("counted").as_int64() == 3);
  CHECK(json.at("limits").at("min").to_number<double>() == 0.2);
}

TEST_CASE("a line half of whose samples met another state tells no share of a limit") {
  const KernelResult line = LineOf({Sample(4, 1, 1), Sample(2, 1, 1), Sample(3, 1, 1.5),
                                    Sample(0.9, 1, 1)});  // about 107 % of its limit
  CHECK((line.n_samples == 4 && line.n_counted == 2));
  CHECK_THAT(line.not_counted, Contains("of 4 samples") && Contains("after 1 differ") &&
                                   Contains("1 are above their limit"));
  const std::string table = KernelTable("", {line});
  CHECK_THAT(table, Contains("! decode_1") && Contains("NOT COUNTED: of 4 samples"));
  CHECK_THAT(table, !Contains("% of"));
  const boost::json::object json = JsonOf(line);
  CHECK_FALSE(json.at("counted").as_bool());
  CHECK_THAT(std::string(json.at("reason").as_string()), Contains("of 4 samples"));
  CHECK_FALSE(json.contains("percent_of_limit"));
}

TEST_CASE("without a limit the median is that of speed") {
  const KernelResult line = LineOf({Sample(4, 0, 0), Sample(1, 0, 0), Sample(2, 0, 0)});
  CHECK(line.value == 0.5);
  CHECK(line.limit == 0);
  CHECK(line.not_counted.empty());
  CHECK_FALSE(JsonOf(line).contains("limits"));
}

TEST_CASE("each sample lies between two probes, which the next one shares") {
  std::string order;
  const auto samples = SampleInTurns({.min_samples = 2, .seconds = 0},
                                     {[&] { order += order.back() == 'b' ? "" : "a"; },
                                      [&] { order += order.back() == 'b' ? "" : "b"; }},
                                     [&] {
                                       order += "p";
                                       return 1e-9;
                                     });
  REQUIRE(samples.size() == 2);
  CHECK((samples[0].size() == 2 && samples[1].size() == 2));
  CHECK(order == "pabpabp");  // runs in turns, without repetitions
}

}  // namespace
}  // namespace baton
