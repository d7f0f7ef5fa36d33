#include "server/cli/host_report.h"

#include <sys/resource.h>
#include <sys/timex.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr uint64_t kWantedDescriptors = 4096;
constexpr double kWantedError = 1;  // seconds; certificates and logs want no better
constexpr char kHugePages[] = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr char kClockSource[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

std::string LineOf(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Finding InspectDescriptors(uint64_t limit) {
  if (limit >= kWantedDescriptors) return Good("nofile", absl::StrCat(limit, " open files"));
  return Note("nofile", absl::StrCat(limit,
                                     " open files; raise it for many clients: ulimit -n 65536, or "
                                     "LimitNOFILE=65536 in the systemd unit"));
}

Finding InspectLockedMemory(uint64_t bytes) {
  if (bytes == UINT64_MAX) return Good("memlock", "unlimited");
  return Good("memlock",
              absl::StrCat(bytes >> 10,
                           " KiB, enough for KV over tcp; RDMA registers the whole pool and needs "
                           "unlimited: LimitMEMLOCK=infinity in the systemd unit, ulimit -l "
                           "unlimited, rdma.ipcLock in the chart"));
}

Finding InspectHugePages(const std::string& enabled) {
  if (absl::StrContains(enabled, "[always]") || absl::StrContains(enabled, "[madvise]"))
    return Good("huge pages", absl::StrCat("transparent: ", enabled));
  return Note("huge pages",
              absl::StrCat(enabled.empty() ? "this kernel has no transparent ones"
                                           : absl::StrCat("transparent: ", enabled),
                           "; weights and KV get pages of 4 KiB, which costs decode steps time: "
                           "echo madvise > ",
                           kHugePages));
}

Finding InspectClockSource(const std::string& source) {
  for (const char* slow : {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}) {
    if (source == slow) {
      return Note("clock source",
                  absl::StrCat(source,
                               ": reading the time is slow, and tokens are stamped; use the "
                               "processor's: boot with clocksource=tsc tsc=reliable"));
    }
  }
  return Good("clock source", source.empty() ? "not told by the kernel" : source);
}

Finding InspectDate(const HostFacts& facts) {
  if (!facts.is_clock_kept) {
    return Note("clock",
                "nothing keeps the date, as far as the kernel knows; certificates, logs and traces "
                "of several hosts need it: run chrony or systemd-timesyncd (in a container: on its "
                "host)");
  }
  const std::string text = absl::StrFormat("kept, off by %.3g s at most", facts.clock_error_s);
  if (facts.clock_error_s <= kWantedError) return Good("clock", text);
  return Note("clock", text + "; look at its servers: chronyc sources, timedatectl");
}

}  // namespace

HostFacts ReadHostFacts() {
  HostFacts facts;
  rlimit files{}, memlock{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  facts.max_descriptors = files.rlim_cur;
  facts.max_locked_bytes = memlock.rlim_cur == RLIM_INFINITY ? UINT64_MAX : memlock.rlim_cur;
  facts.huge_pages = LineOf(kHugePages);
  facts.clock_source = LineOf(kClockSource);
  timex state{};
  const int clock = adjtimex(&state);
  facts.is_clock_kept = clock >= 0 && clock != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  facts.clock_error_s = static_cast<double>(state.maxerror) * 1e-6;
  return facts;
}

std::vector<Finding> InspectHost(const HostFacts& facts) {
  return {InspectDescriptors(facts.max_descriptors), InspectLockedMemory(facts.max_locked_bytes),
          InspectHugePages(facts.huge_pages), InspectClockSource(facts.clock_source),
          InspectDate(facts)};
}

}  // namespace baton
