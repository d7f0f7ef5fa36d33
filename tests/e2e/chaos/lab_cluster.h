// A cluster of single roles whose control streams go through relays: each worker on its own host of
// a network lab, or all on the loopback; the router is where the clients are. A worker that ends is
// not started again.
#pragma once

#include <map>
#include <memory>

#include "tests/e2e/chaos/cluster.h"
#include "tests/e2e/chaos/network_lab.h"
#include "tests/e2e/chaos/tcp_relay.h"

namespace baton {

enum class Wires {
  kNamespaces,  // of a network lab
  kLoopback,    // the only network fault is kMute; members have no metrics
};

class LabCluster : public Cluster {
 public:
  // args: model and settings. The next list is for prefill workers only. folder: for the logs and
  // the key.
  static absl::StatusOr<std::unique_ptr<LabCluster>> Start(
      std::vector<std::string> args, const std::string& folder, Wires wires,
      std::vector<std::string> prefill_args = {});
  ~LabCluster() override;  // kills the processes that still run

  HttpUrl url() const override { return url_; }
  std::vector<Member> Members() override { return members_; }
  std::string Log() const override;
  absl::Status Stop() override;
  // Makes or heals a network fault of a worker. other: the second worker of a black hole.
  absl::Status Disturb(FaultKind kind, const std::string& victim, const std::string& other);
  absl::Status Heal(FaultKind kind, const std::string& victim, const std::string& other);
  // Bytes of all reports and tokens that the worker has sent to the router.
  int64_t BytesFrom(const std::string& worker) const;

 private:
  explicit LabCluster(std::string folder) : folder_(std::move(folder)) {}
  absl::Status StartRouter();
  absl::Status StartWorker(const std::string& name);
  absl::Status Spawn(const std::string& name, std::vector<std::string> command);
  std::string LogOf(const std::string& name) const;

  const std::string folder_;
  std::vector<std::string> args_, prefill_args_;
  HttpUrl control_;  // the address that the workers' relays dial: the router or the router's relay
  HttpUrl url_;
  std::unique_ptr<NetworkLab> lab_;  // null: all on the loopback
  std::unique_ptr<TcpRelay> router_relay_;
  std::map<std::string, std::unique_ptr<TcpRelay>> relays_;  // key: name of the worker
  std::map<std::string, int> n_mutes_;                       // mutes that last now, by worker
  std::vector<Member> members_;
};

}  // namespace baton
