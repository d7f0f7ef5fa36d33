#include "common/process_series.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace baton {
namespace {

constexpr int kStartField = 19;  // of /proc/self/stat, counted from the state, which is 0

double CpuSeconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double OpenFds() {
  struct stat about {};  // its size is their number from Linux 6.2 on, and 0 before
  if (::stat("/proc/self/fd", &about) == 0 && about.st_size > 0)
    return static_cast<double>(about.st_size);
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<double>(std::distance(begin(entries), end(entries)) - 1);  // but this one
}

double MaxFds() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

}  // namespace

double ProcessFigures::ReadStarted() {
  std::ifstream stat("/proc/self/stat"), kernel("/proc/stat");
  std::string text(std::istreambuf_iterator<char>(stat), {});
  const size_t name_end = text.rfind(')');  // the name may have blanks
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 0; i <= kStartField; ++i) fields >> field;
  double booted = 0;
  for (std::string word; kernel >> word;)
    if (word == "btime") kernel >> booted;
  return booted + std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

ProcessFigures ProcessFigures::Read(double started) {
  return {.cpu_seconds = CpuSeconds(),
          .started = started,
          .resident_bytes = ResidentBytes(),
          .open_fds = OpenFds(),
          .max_fds = MaxFds()};
}

ProcessSeries::ProcessSeries(MetricsRegistry* registry, const std::string& version)
    : series_(
          registry,
          {{ProcessMetric("process_cpu_seconds_total"), {}, &ProcessFigures::cpu_seconds},
           {ProcessMetric("process_start_time_seconds"), {}, &ProcessFigures::started},
           {ProcessMetric("process_resident_memory_bytes"), {}, &ProcessFigures::resident_bytes},
           {ProcessMetric("process_open_fds"), {}, &ProcessFigures::open_fds},
           {ProcessMetric("process_max_fds"), {}, &ProcessFigures::max_fds}}) {
  registry->Gauge(ProcessMetric("baton_build_info"), {{"version", version}}).Set(1);
}

}  // namespace baton
