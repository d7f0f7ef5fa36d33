// Applies the faults of a schedule to a cluster, reports each fault with its time, and heals all.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/clients.h"
#include "tests/e2e/chaos/cluster.h"
#include "tests/e2e/chaos/lab_cluster.h"
#include "tests/e2e/chaos/schedule.h"

namespace baton {

struct FaultRecord {
  absl::Time at;
  FaultKind kind = FaultKind::kKill;
  Moment moment = Moment::kAny;
  bool at_moment = false;  // the moment was seen; else the fault came without it
  std::string victim;      // name of the worker
  pid_t pid = 0;
  absl::Duration lasts;
};

// One thread.
class FaultInjector {
 public:
  // lab: for network faults; null: the profile has none. tell: takes a line for the reader.
  FaultInjector(Cluster* cluster, Clients* clients, LabCluster* lab,
                std::function<void(const std::string&)> tell);

  // Runs the schedule, whose times count from now, until `end`; then heals everything.
  void Run(const std::vector<Fault>& schedule, absl::Time end);
  const std::vector<FaultRecord>& records() const { return records_; }
  // Faults that could not be made or healed; the run tested less than its profile says.
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void Hit(const Fault& fault);
  bool AwaitMoment(Moment moment, const Member& victim);
  void HitProcess(const Fault& fault, const Member& victim, FaultRecord* record);
  void HitNetwork(const Fault& fault, const std::vector<Member>& workers, FaultRecord* record);
  void HealUntil(absl::Time until);  // sleeps until then, heals faults that are due
  void ReportNetwork(std::string what, const absl::Status& status);
  void Later(absl::Duration wait, std::function<void()> heal);

  Cluster* cluster_;
  Clients* clients_;
  LabCluster* lab_;
  std::function<void(const std::string&)> tell_;
  std::multimap<absl::Time, std::function<void()>> heals_;
  std::vector<FaultRecord> records_;
  std::vector<std::string> failures_;
};

}  // namespace baton
