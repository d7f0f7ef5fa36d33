// Messages between the supervisor and a role that it starts: one LaunchSpec down before exec (a
// file in memory with the cluster key, the resolved configuration, and the command line that gave
// it), then report lines up through a pipe. Both descriptors are inherited; arguments and
// environment hold no secret. Plain data and functions, any thread.
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
  std::vector<std::string> arguments;  // of the supervisor, to read its settings again
  std::string settings;                // YAML, as Settings::Resolved writes it

  std::string Text() const;  // the key's line, the arguments', then the settings
  // InvalidArgument: not a text that Text wrote.
  static absl::StatusOr<LaunchSpec> Parse(std::string_view text);
};

std::string KeyText(const ClusterKey& key);  // 64 hex digits in lower case
// InvalidArgument: anything but 64 hex digits in lower case. The error does not repeat the text.
absl::StatusOr<ClusterKey> ParseKey(std::string_view text);

// A role's report to its supervisor, one line each.
struct StartReport {
  enum class Kind { kProgress, kControlPort, kHttpPort, kMetricsPort, kKvCache, kReady };
  Kind kind = Kind::kReady;
  double fraction = 0;  // kProgress: share of the model loaded, 0 to 1
  int port = 0;
  // kKvCache: size of the pool in bytes, pages and tokens; max_context in tokens.
  int64_t kv_bytes = 0, kv_pages = 0, kv_tokens = 0, max_context = 0;
};

std::string ReportLine(const StartReport& report);  // ends with a line feed
// Takes a line without its line feed. Empty: the line is no report.
std::optional<StartReport> ParseReportLine(std::string_view line);

// The role's end of the pipe, whose descriptor stays open. Without a supervisor (descriptor -1)
// reports go nowhere.
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
