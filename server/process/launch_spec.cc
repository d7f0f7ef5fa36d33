#include "server/process/launch_spec.h"

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace baton {

std::string KeyText(const ClusterKey& key) {
  std::string text;
  for (const uint8_t byte : key) absl::StrAppendFormat(&text, "%02x", byte);
  return text;
}

absl::StatusOr<ClusterKey> ParseKey(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  ClusterKey key{};
  if (text.size() != 2 * key.size()) {
    return absl::InvalidArgumentError("a cluster key is 64 hex digits (openssl rand -hex 32)");
  }
  for (size_t i = 0; i < key.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError("a cluster key is 64 hex digits in lower case");
    }
    key[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return key;
}

// Arguments stand in one line, a tab behind each; what they have of tabs and line feeds is escaped.
std::string LaunchSpec::Text() const {
  std::string text = KeyText(key) + "\n";
  for (const std::string& argument : arguments)
    absl::StrAppend(&text, absl::CEscape(argument), "\t");
  return absl::StrCat(text, "\n", settings);
}

absl::StatusOr<LaunchSpec> LaunchSpec::Parse(std::string_view text) {
  const auto error = [] {
    return absl::InvalidArgumentError("the start order is not as the supervisor writes it");
  };
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(text), absl::MaxSplits('\n', 2));
  if (lines.size() != 3) return error();
  LaunchSpec order;
  ASSIGN_OR_RETURN(order.key, ParseKey(lines[0]));
  std::vector<std::string> words = absl::StrSplit(lines[1], '\t');
  words.pop_back();  // behind the last tab
  for (const std::string& word : words)
    if (!absl::CUnescape(word, &order.arguments.emplace_back())) return error();
  order.settings = lines[2];
  if (order.Text() != text) return error();
  return order;
}

std::string ReportLine(const StartReport& report) {
  switch (report.kind) {
    case StartReport::Kind::kProgress:
      return absl::StrFormat("progress %.4f\n", report.fraction);
    case StartReport::Kind::kControlPort:
      return absl::StrFormat("control %d\n", report.port);
    case StartReport::Kind::kHttpPort:
      return absl::StrFormat("http %d\n", report.port);
    case StartReport::Kind::kMetricsPort:
      return absl::StrFormat("metrics %d\n", report.port);
    case StartReport::Kind::kKvCache:
      return absl::StrFormat("kv %d %d %d %d\n", report.kv_bytes, report.kv_pages, report.kv_tokens,
                             report.max_context);
    case StartReport::Kind::kReady:
      return "ready\n";
  }
  BATON_CHECK(false);
  return "";
}

std::optional<StartReport> ParseReportLine(std::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(std::string(line), ' ');
  StartReport report;
  const auto port = [&](StartReport::Kind kind) -> std::optional<StartReport> {
    report.kind = kind;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &report.port)) return std::nullopt;
    return report;
  };
  if (words[0] == "control") return port(StartReport::Kind::kControlPort);
  if (words[0] == "http") return port(StartReport::Kind::kHttpPort);
  if (words[0] == "metrics") return port(StartReport::Kind::kMetricsPort);
  if (words[0] == "ready" && words.size() == 1) return report;
  if (words[0] == "progress" && words.size() == 2) {
    report.kind = StartReport::Kind::kProgress;
    if (absl::SimpleAtod(words[1], &report.fraction)) return report;
  }
  if (words[0] == "kv" && words.size() == 5) {
    report.kind = StartReport::Kind::kKvCache;
    if (absl::SimpleAtoi(words[1], &report.kv_bytes) &&
        absl::SimpleAtoi(words[2], &report.kv_pages) &&
        absl::SimpleAtoi(words[3], &report.kv_tokens) &&
        absl::SimpleAtoi(words[4], &report.max_context)) {
      return report;
    }
  }
  return std::nullopt;
}

void StartReporter::Report(const StartReport& report) const {
  if (descriptor_ < 0) return;
  const std::string line = ReportLine(report);
  // Far below the size of a pipe; a supervisor that is gone takes this process with it.
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  static_cast<void>(written);
}

void StartReporter::ReportPort(StartReport::Kind kind, int port) const {
  StartReport report;
  report.kind = kind;
  report.port = port;
  Report(report);
}

void StartReporter::ReportProgress(double fraction) const {
  StartReport report;
  report.kind = StartReport::Kind::kProgress;
  report.fraction = fraction;
  Report(report);
}

}  // namespace baton
