#include "common/process_series.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace baton {
namespace {

TEST_CASE("a process tells what /proc says of it") {
  const ProcessFigures before = ProcessFigures::Read();
  CHECK(before.resident_bytes > 1e6);
  CHECK(before.open_fds >= 3);
  CHECK(before.max_fds >= before.open_fds);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  CHECK(before.started < now + 2);  // seconds and ticks are rounded
  CHECK(before.started > now - 3600);
  const std::ifstream open_file("/proc/self/stat");
  ProcessFigures after = ProcessFigures::Read();
  CHECK(after.open_fds == before.open_fds + 1);
  while (after.cpu_seconds <= before.cpu_seconds) after = ProcessFigures::Read();
  CHECK(after.started == before.started);
}

TEST_CASE("open descriptors are as many as /proc lists, however many they are") {
  std::vector<std::ifstream> many(100);
  const auto listed = [] {
    std::filesystem::directory_iterator entries("/proc/self/fd");
    return static_cast<double>(std::distance(begin(entries), end(entries)) - 1);  // but this one
  };
  CHECK(ProcessFigures::Read(0).open_fds == listed());
  const double before = listed();
  for (std::ifstream& file : many) file.open("/proc/self/stat");
  CHECK(ProcessFigures::Read(0).open_fds == before + 100);
  CHECK(listed() == before + 100);
}

TEST_CASE("the start of a process is read once: the rest is what a later reading costs") {
  const double started = ProcessFigures::ReadStarted();
  CHECK(ProcessFigures::Read(started - 5).started == started - 5);
  CHECK(ProcessFigures::Read().started == started);
}

TEST_CASE("its series have the names that Prometheus' own clients give") {
  MetricsRegistry registry;
  ProcessSeries series(&registry, "1.2");
  series.Update();
  const std::string text = registry.Text();
  CHECK(text.find("baton_build_info{version=\"1.2\"} 1\n") != std::string::npos);
  CHECK(text.find("# TYPE process_cpu_seconds_total counter\n") != std::string::npos);
  CHECK(text.find("\nprocess_resident_memory_bytes ") != std::string::npos);
}

}  // namespace
}  // namespace baton
