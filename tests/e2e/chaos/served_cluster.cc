#include "tests/e2e/chaos/served_cluster.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {

absl::StatusOr<std::unique_ptr<ServedCluster>> ServedCluster::Start(std::vector<std::string> args) {
  args.insert(args.end(), {absl::StrCat("--prefill=", kPrefillWorkers),
                           absl::StrCat("--decode=", kDecodeWorkers)});
  ASSIGN_OR_RETURN(std::unique_ptr<ServedBaton> served, ServedBaton::Start(args));
  return std::unique_ptr<ServedCluster>(new ServedCluster(std::move(served)));
}

std::vector<Member> ServedCluster::Members() {
  std::lock_guard lock(mutex_);
  ReadLog();
  std::vector<Member> members;
  for (const auto& [name, member] : members_) {
    if (member.pid != 0) members.push_back(member);
  }
  std::stable_partition(members.begin(), members.end(),
                        [](const Member& member) { return member.is_router(); });
  return members;
}

void ServedCluster::ReadLog() {
  const std::string fresh = served_->LogFrom(n_read_);
  n_read_ += fresh.size();
  partial_ += fresh;
  size_t start = 0, end = 0;
  while ((end = partial_.find('\n', start)) != std::string::npos) {
    OnLine(partial_.substr(start, end - start));
    start = end + 1;
  }
  partial_.erase(0, start);
}

// Parses "<time> info serve started NAME, process PID, ...", "<time> warn serve NAME ended with
// ..." and "<time> info NAME metrics on http://HOST:PORT/metrics".
void ServedCluster::OnLine(const std::string& line) {
  char process[64], name[64], url[128];
  int pid = 0, port = 0;
  if (std::sscanf(line.c_str(), "%*s %*s serve started %63[^,], process %d", name, &pid) == 2) {
    members_[name] = Member{name, pid, std::nullopt};
  } else if (std::sscanf(line.c_str(), "%*s %*s serve %63s ended with", name) == 1 &&
             line.find(" ended with ") != std::string::npos) {
    members_[name].pid = 0;
  } else if (std::sscanf(line.c_str(), "%*s %*s %63s metrics on http://%127[^:]:%d", process, url,
                         &port) == 3) {
    members_[process].metrics = HttpUrl{url, port};
  }
  if (auto router = members_.find("router"); router != members_.end()) {
    router->second.metrics = served_->url();
  }
}

absl::Status ServedCluster::Stop() {
  ASSIGN_OR_RETURN(const int status, served_->Terminate(absl::Seconds(60)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("baton serve ended with status %d", status));
}

}  // namespace baton
