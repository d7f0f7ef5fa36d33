// A small network on one machine: every host is a network namespace, and all are on one bridge,
// whose address is the machine's (the router and the clients are there). Links can be cut and
// slowed, and packets dropped. Needs root and Linux, but neither netem nor iptables.
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
  // Error: this machine does not allow it; the message has the failed command.
  static absl::StatusOr<std::unique_ptr<NetworkLab>> Build(const std::vector<std::string>& hosts);
  ~NetworkLab();  // takes everything down
  NetworkLab(const NetworkLab&) = delete;
  NetworkLab& operator=(const NetworkLab&) = delete;

  // Returns the IPv4 address of a host, or of the bridge for a name that is no host.
  std::string Address(const std::string& host) const;
  std::string Namespace(const std::string& host) const;  // the name for `ip netns`
  // Returns the words in front of a command that run it on the host.
  std::vector<std::string> On(const std::string& host) const;

  // Makes or heals a network fault except kMute. other: the second worker of a black hole. Faults
  // may overlap: an obstacle of two faults is removed with the second.
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

  std::string prefix_;                  // prefix of namespaces and links, different per process
  std::string network_;                 // "10.77.3."
  std::map<std::string, int> numbers_;  // key: host; the bridge is 1
  std::map<Words, int> n_causes_;       // faults that need the obstacle which this command makes
};

}  // namespace baton
