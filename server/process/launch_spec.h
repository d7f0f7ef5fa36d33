// How the supervisor and a role it starts speak: one order down before exec (a file in memory with
// the cluster key and the resolved configuration), then lines up through a pipe. Both descriptors
// are inherited; nothing secret is in arguments or the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "common/status.h"
#include "common/ticket.h"

namespace baton {

struct LaunchSpec {
  ClusterKey key{};
  std::string settings;  // YAML, as Settings::Resolved writes it

  std::string Text() const;
  static absl::StatusOr<LaunchSpec> Parse(std::string_view text);
};

std::string KeyText(const ClusterKey& key);  // 64 hex digits
absl::StatusOr<ClusterKey> ParseKey(std::string_view text);

// What a role tells its supervisor, one line each.
struct StartReport {
  enum class Kind { kProgress, kControlPort, kHttpPort, kMetricsPort, kKvCache, kReady };
  Kind kind = Kind::kReady;
  double fraction = 0;  // kProgress: of the model's load
  int port = 0;
  int64_t kv_bytes = 0, kv_pages = 0, kv_tokens = 0, max_context = 0;  // kKvCache
};

std::string ReportLine(const StartReport& report);
// Nothing: not a report of ours.
std::optional<StartReport> ParseReportLine(std::string_view line);

// The role's end. Without a supervisor (descriptor -1) reports go nowhere.
class StartReporter {
 public:
  explicit StartReporter(int descriptor) : descriptor_(descriptor) {}
  bool has_supervisor() const { return descriptor_ >= 0; }
  void Report(const StartReport& report) const;
  void ReportPort(StartReport::Kind kind, int port) const;
  void ReportProgress(double fraction) const;

 private:
  int descriptor_;
};

}  // namespace baton
