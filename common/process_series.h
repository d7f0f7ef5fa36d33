// Series of a process: its build, and what it takes of its machine, by /proc. One thread.
#pragma once

#include <string>

#include "common/metric_table.h"

namespace baton {

inline constexpr MetricDeclaration kProcessMetrics[] = {
    {MetricKind::kGauge, "baton_build_info", "1", "version", "The build, always 1."},
    {MetricKind::kTotal, "process_cpu_seconds_total", "seconds", "",
     "Processor time of the process, user and system."},
    {MetricKind::kGauge, "process_max_fds", "descriptors", "",
     "The limit of open file descriptors."},
    {MetricKind::kGauge, "process_open_fds", "descriptors", "", "Open file descriptors."},
    {MetricKind::kGauge, "process_resident_memory_bytes", "bytes", "",
     "Memory of the process that is in RAM."},
    {MetricKind::kGauge, "process_start_time_seconds", "seconds", "",
     "When the process started, since 1970."},
};

consteval const MetricDeclaration& ProcessMetric(std::string_view name) {
  return FindMetric(kProcessMetrics, name);
}

// Figures of this process, from /proc; zeros where it cannot be read.
struct ProcessFigures {
  double cpu_seconds = 0, started = 0;  // started: since 1970
  double resident_bytes = 0, open_fds = 0, max_fds = 0;

  // All of them; the start is read once, by whoever reads again.
  static ProcessFigures Read() { return Read(ReadStarted()); }
  static ProcessFigures Read(double started);
  static double ReadStarted();
};

class ProcessSeries {
 public:
  ProcessSeries(MetricsRegistry* registry, const std::string& version);
  // Some 20 us: when the page is read. From 8 ms on with 10,000 descriptors on Linux before 6.2.
  void Update() { series_.Take(ProcessFigures::Read(started_)); }

 private:
  const double started_ = ProcessFigures::ReadStarted();
  MetricTable<ProcessFigures> series_;
};

}  // namespace baton
