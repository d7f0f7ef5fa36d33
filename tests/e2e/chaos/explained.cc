#include "tests/e2e/chaos/explained.h"

#include <set>
#include <string_view>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr int kMaxWaiting = 1024;                    // router.max_waiting, which no profile changes
constexpr absl::Duration kBack = absl::Seconds(15);  // a worker's new start, on a busy machine
constexpr std::string_view kStands = "gets nothing new: its engine";

// Whether all workers may have been away by faults at one moment from `sent` to `ended`.
bool AllAway(const ExchangeRecord& exchange, const std::vector<FaultRecord>& faults,
             int n_workers) {
  const auto away_at = [&](absl::Time moment) {
    std::set<std::string> away;
    for (const FaultRecord& fault : faults)
      if (fault.at <= moment && moment <= fault.at + fault.lasts + kBack) away.insert(fault.victim);
    return static_cast<int>(away.size()) >= n_workers;
  };
  // The number of those away grows only where a fault begins.
  if (away_at(exchange.sent)) return true;
  for (const FaultRecord& fault : faults)
    if (fault.at >= exchange.sent && fault.at <= exchange.ended && away_at(fault.at)) return true;
  return false;
}

}  // namespace

std::vector<std::string> UnexplainedRefusals(const std::vector<ExchangeRecord>& exchanges,
                                             const std::vector<FaultRecord>& faults, int n_workers,
                                             int n_clients) {
  std::vector<std::string> complaints;
  for (const ExchangeRecord& exchange : exchanges) {
    if (exchange.verdict != Verdict::kRefused) continue;
    const bool is_explained = exchange.http_status == 429 ? n_clients > kMaxWaiting
                                                          : AllAway(exchange, faults, n_workers);
    if (is_explained) continue;
    complaints.push_back(absl::StrFormat(
        "a request sent at %s was refused with %d, which no bound explains",
        absl::FormatTime("%H:%M:%E3S", exchange.sent, absl::UTCTimeZone()), exchange.http_status));
  }
  return complaints;
}

int StandStills(const std::string& log) {
  int n = 0;
  for (size_t at = log.find(kStands); at != std::string::npos; at = log.find(kStands, at + 1)) ++n;
  return n;
}

bool StopsNothing(const Profile& profile) {
  return !profile.needs_lab && profile.weights[static_cast<int>(FaultKind::kPause)] == 0;
}

}  // namespace baton
