// A small network on one machine: every host a network namespace, all of them on one bridge, whose
// own address is the machine's (there the router and the clients are). Links can be cut and slowed
// and packets swallowed. Needs root and Linux; netem and iptables are not needed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/e2e/chaos/profile.h"

namespace baton {

class NetworkLab {
 public:
  // Error: this machine does not let us; says which command failed.
  static absl::StatusOr<std::unique_ptr<NetworkLab>> Build(const std::vector<std::string>& hosts);
  ~NetworkLab();  // takes everything down
  NetworkLab(const NetworkLab&) = delete;
  NetworkLab& operator=(const NetworkLab&) = delete;

  // IPv4 address of a host; of the bridge for a name that is no host.
  std::string Address(const std::string& host) const;
  std::string Namespace(const std::string& host) const;  // as `ip netns` names it
  // Words in front of a command that make it run on the host.
  std::vector<std::string> On(const std::string& host) const;

  // Network faults but kMute. other: of black holes. Disturbances may overlap: what two
  // of them want goes with the last.
  absl::Status Disturb(FaultKind kind, const std::string& victim, const std::string& other);
  absl::Status Heal(FaultKind kind, const std::string& victim, const std::string& other);

 private:
  using Words = std::vector<std::string>;
  struct Obstacle {
    Words put, remove;  // commands
  };

  NetworkLab() = default;
  std::vector<Obstacle> Obstacles(FaultKind kind, const std::string& victim,
                                  const std::string& other) const;
  absl::Status BuildHost(const std::string& host, int number);

  std::string prefix_;                  // of names of namespaces and links, this process's own
  std::string network_;                 // "10.77.3."
  std::map<std::string, int> numbers_;  // of hosts; the bridge is 1
  std::map<Words, int> n_causes_;       // disturbances that want the obstacle this command puts
};

}  // namespace baton
