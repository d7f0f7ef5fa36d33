#include "tests/e2e/chaos/faults.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/metrics_page.h"

namespace baton {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(3);            // between polls of metrics
constexpr absl::Duration kMaxPatience = absl::Milliseconds(1500);  // then the fault comes anyway

std::vector<Member> Workers(std::vector<Member> members) {
  std::erase_if(members, [](const Member& member) { return member.is_router(); });
  return members;
}

bool IsAt(Moment moment, const MetricsPage& page) {
  return moment == Moment::kPrefill ? page.Sum("baton_worker_prefill_queued_tokens") > 0
                                    : page.Sum("baton_worker_decode_rows") > 0;
}

}  // namespace

FaultInjector::FaultInjector(Cluster* cluster, Clients* clients, LabCluster* lab,
                             std::function<void(const std::string&)> tell)
    : cluster_(cluster), clients_(clients), lab_(lab), tell_(std::move(tell)) {}

void FaultInjector::Run(const std::vector<Fault>& schedule, absl::Time end) {
  const absl::Time start = absl::Now();
  for (const Fault& fault : schedule) {
    if (start + fault.at >= end) break;
    HealUntil(start + fault.at);
    Hit(fault);
  }
  HealUntil(end);
  while (!heals_.empty()) {  // faults that should last longer
    const auto heal = std::move(heals_.begin()->second);
    heals_.erase(heals_.begin());
    heal();
  }
}

void FaultInjector::HealUntil(absl::Time until) {
  while (!heals_.empty() && heals_.begin()->first <= until) {
    absl::SleepFor(heals_.begin()->first - absl::Now());
    const auto heal = std::move(heals_.begin()->second);
    heals_.erase(heals_.begin());
    heal();
  }
  absl::SleepFor(until - absl::Now());
}

void FaultInjector::Later(absl::Duration wait, std::function<void()> heal) {
  heals_.emplace(absl::Now() + wait, std::move(heal));
}

void FaultInjector::Hit(const Fault& fault) {
  std::vector<Member> workers = Workers(cluster_->Members());
  // Only prefill workers compute prompts and only decode workers have rows, but while one is away
  // other workers replace it. The usual role is tried first.
  std::vector<Member> likely = workers;
  std::erase_if(likely, [&](const Member& member) {
    return (fault.moment == Moment::kPrefill && !member.is_prefill()) ||
           (fault.moment == Moment::kDecode && member.is_prefill());
  });
  if (!likely.empty()) workers = likely;
  if (workers.empty()) {
    tell_(absl::StrCat(FaultName(fault.kind), ": no such process is there"));
    return;
  }
  const Member victim = workers[fault.victim % workers.size()];
  FaultRecord record;
  record.kind = fault.kind;
  record.moment = fault.moment;
  record.victim = victim.name;
  record.pid = victim.pid;
  record.lasts = fault.lasts;
  if (fault.moment != Moment::kAny) {
    record.at_moment = AwaitMoment(fault.moment, victim);
    if (record.at_moment) absl::SleepFor(fault.after_moment);
  }
  record.at = absl::Now();
  if (IsNetworkFault(fault.kind)) {
    HitNetwork(fault, workers, &record);
  } else {
    HitProcess(fault, victim, &record);
  }
  records_.push_back(record);
}

// Detects the victim's state from outside: by its /metrics, and for a transfer by the client's
// first token, because the last part of the handoff is under way then.
bool FaultInjector::AwaitMoment(Moment moment, const Member& victim) {
  if (moment == Moment::kTransfer) return clients_->WaitForFirstToken(kMaxPatience);
  const absl::Time give_up = absl::Now() + kMaxPatience;
  while (victim.metrics && absl::Now() < give_up) {
    const auto page = MetricsPage::Fetch(*victim.metrics);
    if (page.ok() && IsAt(moment, *page)) return true;
    absl::SleepFor(kLook);
  }
  return false;
}

void FaultInjector::HitProcess(const Fault& fault, const Member& victim, FaultRecord* record) {
  const int signal = fault.kind == FaultKind::kKill    ? SIGKILL
                     : fault.kind == FaultKind::kPause ? SIGSTOP
                                                       : SIGTERM;
  ::kill(victim.pid, signal);
  const bool pauses = fault.kind == FaultKind::kPause;
  tell_(absl::StrCat(
      FaultName(fault.kind), " ", victim.name, " (process ", victim.pid, ")",
      pauses ? absl::StrCat(" for ",
                            absl::FormatDuration(absl::Trunc(fault.lasts, absl::Milliseconds(1))))
             : "",
      fault.moment == Moment::kAny ? "" : absl::StrCat(" at ", MomentName(fault.moment)),
      fault.moment != Moment::kAny && !record->at_moment ? " (not seen)" : ""));
  if (!pauses) {
    record->lasts = absl::ZeroDuration();
    return;
  }
  Later(fault.lasts, [this, victim] {
    // The process id of a dead process may belong to another process by now.
    for (const Member& member : Workers(cluster_->Members())) {
      if (member.pid != victim.pid) continue;
      ::kill(victim.pid, SIGCONT);
      tell_(absl::StrCat("goes on: ", victim.name));
    }
  });
}

void FaultInjector::HitNetwork(const Fault& fault, const std::vector<Member>& workers,
                               FaultRecord* record) {
  const std::string victim = workers[fault.victim % workers.size()].name;
  std::vector<Member> others = workers;
  std::erase_if(others, [&](const Member& member) { return member.name == victim; });
  const std::string other = others.empty() ? "router" : others[fault.other % others.size()].name;
  const bool is_pair = fault.kind == FaultKind::kBlackHole || fault.kind == FaultKind::kOneWay;
  const std::string what =
      absl::StrCat(FaultName(fault.kind), " ", victim, is_pair ? absl::StrCat(" -> ", other) : "");
  const std::string lasts = absl::FormatDuration(absl::Trunc(fault.lasts, absl::Milliseconds(1)));
  ReportNetwork(absl::StrCat(what, " for ", lasts), lab_->Disturb(fault.kind, victim, other));
  record->victim = victim;
  Later(fault.lasts, [this, fault, what, victim, other] {
    ReportNetwork("heals: " + what, lab_->Heal(fault.kind, victim, other));
  });
}

void FaultInjector::ReportNetwork(std::string what, const absl::Status& status) {
  if (!status.ok()) {
    absl::StrAppend(&what, " FAILED: ", std::string(status.message()));
    failures_.push_back(what);
  }
  tell_(what);
}

}  // namespace baton
