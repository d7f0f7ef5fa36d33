// A cluster of single roles in a network lab: each worker on a host of its own, the router where
// the clients are. Nobody starts a worker again.
#pragma once

#include <memory>

#include "e2e/chaos/cluster.h"
#include "e2e/chaos/network_lab.h"
#include "e2e/chaos/relay.h"

namespace baton {

class LabCluster : public Cluster {
 public:
  // args: model and settings. folder: for the logs and the key.
  static absl::StatusOr<std::unique_ptr<LabCluster>> Start(std::vector<std::string> args,
                                                           const std::string& folder);
  ~LabCluster() override;  // kills what runs

  HttpUrl url() const override { return url_; }
  std::vector<Member> Members() override { return members_; }
  std::string Log() const override;
  absl::Status Stop() override;
  NetworkLab* lab() { return lab_.get(); }

 private:
  explicit LabCluster(std::string folder) : folder_(std::move(folder)) {}
  absl::Status StartRouter();
  absl::Status StartWorker(const std::string& name);
  absl::Status Spawn(const std::string& name, std::vector<std::string> command);
  std::string LogOf(const std::string& name) const;

  const std::string folder_;
  std::vector<std::string> args_;
  HttpUrl bridge_;  // where the relays of the workers find the router's
  HttpUrl url_;
  std::unique_ptr<NetworkLab> lab_;
  std::vector<std::unique_ptr<Relay>> relays_;
  std::vector<Member> members_;
};

}  // namespace baton
