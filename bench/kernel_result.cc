#include "bench/kernel_result.h"

#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
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

std::string SpreadText(const Spread& spread) {
  return absl::StrFormat("%.1f/%.1f/%.1f", spread.min, spread.median, spread.max);
}

boost::json::object SpreadJson(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

void AddSamples(const KernelResult& r, boost::json::object* row) {
  (*row)["counted"] = r.not_counted.empty();
  if (!r.not_counted.empty()) (*row)["reason"] = r.not_counted;
  boost::json::object samples = SpreadJson(r.samples);
  samples["taken"] = r.n_samples;
  samples["counted"] = r.n_counted;
  (*row)["samples"] = std::move(samples);
  if (r.limits.max > 0) (*row)["limits"] = SpreadJson(r.limits);
}

}  // namespace

std::string KernelTable(std::string_view title, const std::vector<KernelResult>& results) {
  std::string text = absl::StrCat(std::string(title), "\n");
  bool has_samples = false;
  for (const KernelResult& r : results) {
    const bool is_counted = r.not_counted.empty();
    absl::StrAppendFormat(&text, "%s %-44s %9.*f %-8s", is_counted ? " " : "!", r.name,
                          r.whole > 0 ? 3 : 1, r.value, r.unit);
    if (r.seconds > 0) absl::StrAppendFormat(&text, " %10s", TimeText(r.seconds));
    if (r.limit > 0 && is_counted) {
      absl::StrAppendFormat(&text, " %5.1f %% of %.1f", Percent(r), r.limit);
    }
    if (r.whole > 0) absl::StrAppendFormat(&text, " %10.1f %%", 100 * r.value / r.whole);
    if (!is_counted) absl::StrAppend(&text, "  NOT COUNTED: ", r.not_counted);
    if (!r.note.empty()) absl::StrAppend(&text, "  ", r.note);
    if (r.n_samples > 0) {
      has_samples = true;
      absl::StrAppendFormat(&text, "  [%d of %d samples, %s", r.n_counted, r.n_samples,
                            SpreadText(r.samples));
      if (r.limits.max > 0) absl::StrAppend(&text, "; limits ", SpreadText(r.limits));
      absl::StrAppend(&text, "]");
    }
    absl::StrAppend(&text, "\n");
  }
  if (has_samples) {
    absl::StrAppend(&text,
                    "  [samples that count of those taken, min/median/max of these; the "
                    "same of the limits by the probes before and after each]\n");
  }
  return text;
}

std::string KernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results) {
  boost::json::array rows;
  for (const KernelResult& r : results) {
    boost::json::object row{{"name", r.name}, {"value", r.value}, {"unit", r.unit}};
    if (r.limit > 0) {
      row["limit"] = r.limit;
      if (r.not_counted.empty()) row["percent_of_limit"] = Percent(r);
    }
    if (r.seconds > 0) row["seconds"] = r.seconds;
    if (!r.digest.empty()) row["digest"] = r.digest;
    if (r.whole > 0) row["percent_of_whole"] = 100 * r.value / r.whole;
    if (!r.note.empty()) row["note"] = r.note;
    if (r.n_samples > 0) AddSamples(r, &row);
    rows.push_back(std::move(row));
  }
  const boost::json::object object{
      {"machine", {{"cpu", CpuModel()}, {"cores", std::thread::hardware_concurrency()}}},
      {"numerics_id", std::string(numerics_id)},
      {"results", std::move(rows)}};
  return boost::json::serialize(object);
}

void PrintKernelTable(std::string_view title, const std::vector<KernelResult>& results) {
  std::fputs(KernelTable(title, results).c_str(), stdout);
}

void PrintKernelJson(std::string_view numerics_id, const std::vector<KernelResult>& results) {
  std::printf("%s\n", KernelJson(numerics_id, results).c_str());
}

}  // namespace baton
