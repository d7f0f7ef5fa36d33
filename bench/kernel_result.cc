#include "bench/kernel_result.h"

#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

double Percent(const KernelResult& r) { return 100 * r.value / r.limit; }

std::string TimeText(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  return seconds >= 1e-3 ? absl::StrFormat("%.2f ms", seconds * 1e3)
                         : absl::StrFormat("%.1f us", seconds * 1e6);
}

}  // namespace

absl::Status CheckBelowLimit(const KernelResult& result) {
  if (result.limit <= 0 || result.value <= result.limit) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "%s reached %.1f %s, more than the %.1f that the machine can do by its probe: the probe is "
      "not the fastest way to read, or the machine changed between them; run it again",
      result.name, result.value, result.unit, result.limit));
}

void PrintKernelTable(std::string_view title, const std::vector<KernelResult>& results) {
  std::printf("%s\n", std::string(title).c_str());
  for (const KernelResult& r : results) {
    std::printf("  %-44s %9.1f %-8s", r.name.c_str(), r.value, r.unit.c_str());
    if (r.seconds > 0) std::printf(" %10s", TimeText(r.seconds).c_str());
    if (r.limit > 0) std::printf(" %5.1f %% of %.1f", Percent(r), r.limit);
    if (!r.note.empty()) std::printf("  %s", r.note.c_str());
    std::printf("\n");
  }
}

void PrintKernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results) {
  boost::json::array rows;
  for (const KernelResult& r : results) {
    boost::json::object row{{"name", r.name}, {"value", r.value}, {"unit", r.unit}};
    if (r.limit > 0) {
      row["limit"] = r.limit;
      row["percent_of_limit"] = Percent(r);
    }
    if (r.seconds > 0) row["seconds"] = r.seconds;
    if (!r.digest.empty()) row["digest"] = r.digest;
    rows.push_back(std::move(row));
  }
  const boost::json::object object{
      {"machine", {{"cpu", CpuModel()}, {"cores", std::thread::hardware_concurrency()}}},
      {"numerics_id", std::string(numerics_id)},
      {"results", std::move(rows)}};
  std::printf("%s\n", boost::json::serialize(object).c_str());
}

}  // namespace baton
