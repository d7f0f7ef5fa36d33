#include "tests/e2e/chaos/network_lab.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/chaos/command.h"

namespace baton {
namespace {

constexpr char kDevice[] = "eth0";                  // inside each namespace
constexpr int kSourceAt = 26, kDestinationAt = 30;  // of IPv4 addresses in a frame

absl::Status Run(const std::string& command) {
  return RunCommand(absl::StrSplit(command, ' ', absl::SkipEmpty()));
}

// Returns classic BPF for `tc ... bpf da`: drops IPv4 packets whose address at `offset` is
// `address` (verdict 2), and passes all others (-1).
std::string DropProgram(int offset, const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, '.');
  uint32_t word = 0;
  for (const std::string& part : parts) word = word << 8 | static_cast<uint32_t>(std::stoul(part));
  return absl::StrFormat("6,40 0 0 12,21 0 3 2048,32 0 0 %d,21 0 1 %u,6 0 0 2,6 0 0 4294967295",
                         offset, word);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkLab>> NetworkLab::Build(
    const std::vector<std::string>& hosts) {
  const int pid = ::getpid();
  std::unique_ptr<NetworkLab> lab(new NetworkLab());
  lab->prefix_ = absl::StrFormat("bc%d", pid % 100000);
  lab->network_ = absl::StrFormat("10.%d.%d.", 64 + pid % 64, pid / 64 % 256);
  const std::string bridge = lab->prefix_ + "br";
  RETURN_IF_ERROR(Run("ip link add " + bridge + " type bridge"));
  RETURN_IF_ERROR(Run("ip addr add " + lab->network_ + "1/24 dev " + bridge));
  RETURN_IF_ERROR(Run("ip link set " + bridge + " up"));
  int number = 1;
  for (const std::string& host : hosts) RETURN_IF_ERROR(lab->BuildHost(host, ++number));
  return lab;
}

absl::Status NetworkLab::BuildHost(const std::string& host, int number) {
  numbers_[host] = number;
  const std::string space = Namespace(host), outside = absl::StrCat(prefix_, "v", number);
  RETURN_IF_ERROR(Run("ip netns add " + space));
  for (const std::string& command :
       {absl::StrCat("ip link add ", outside, " type veth peer name ", kDevice, " netns ", space),
        absl::StrCat("ip link set ", outside, " master ", prefix_, "br up"),
        absl::StrCat("ip -n ", space, " addr add ", Address(host), "/24 dev ", kDevice),
        absl::StrCat("ip -n ", space, " link set lo up"),
        absl::StrCat("ip -n ", space, " link set ", kDevice, " up"),
        absl::StrCat("tc -n ", space, " qdisc add dev ", kDevice, " clsact")}) {
    RETURN_IF_ERROR(Run(command));
  }
  return absl::OkStatus();
}

// Also takes down a partly built lab, so errors for missing parts are ignored.
NetworkLab::~NetworkLab() {
  for (const auto& [host, number] : numbers_) {
    Run("ip netns del " + Namespace(host)).IgnoreError();
    Run(absl::StrCat("ip link del ", prefix_, "v", number)).IgnoreError();
  }
  Run("ip link del " + prefix_ + "br").IgnoreError();
}

std::string NetworkLab::Namespace(const std::string& host) const { return prefix_ + host; }

std::string NetworkLab::Address(const std::string& host) const {
  const auto found = numbers_.find(host);
  return absl::StrCat(network_, found == numbers_.end() ? 1 : found->second);
}

std::vector<std::string> NetworkLab::On(const std::string& host) const {
  return {"ip", "netns", "exec", Namespace(host)};
}

std::vector<NetworkLab::Obstacle> NetworkLab::Obstacles(FaultKind kind, const std::string& victim,
                                                        const std::string& other) const {
  const std::string space = Namespace(victim);
  const auto words = [](const std::string& command) -> Words {
    return absl::StrSplit(command, ' ', absl::SkipEmpty());
  };
  const auto swallow = [&](const char* way, int address_at) {
    const std::string place =
        absl::StrCat(" dev ", kDevice, " ", way, " pref ", numbers_.at(other) + 1);
    Words program = {"protocol", "all",      "bpf",
                     "da",       "bytecode", DropProgram(address_at, Address(other))};
    Obstacle obstacle{words(absl::StrCat("tc -n ", space, " filter add", place)),
                      words(absl::StrCat("tc -n ", space, " filter del", place))};
    obstacle.put.insert(obstacle.put.end(), program.begin(), program.end());
    return obstacle;
  };
  switch (kind) {
    case FaultKind::kCutLink: {
      const std::string link = absl::StrCat("ip -n ", space, " link set ", kDevice);
      return {{words(link + " down"), words(link + " up")}};
    }
    case FaultKind::kSlowLink: {
      const std::string tc = absl::StrCat("tc -n ", space, " qdisc "),
                        root = absl::StrCat(" dev ", kDevice, " root");
      return {{words(tc + "add" + root + " tbf rate 1mbit burst 128kb latency 50ms"),
               words(tc + "del" + root)}};
    }
    case FaultKind::kBlackHole:
      return {swallow("ingress", kSourceAt), swallow("egress", kDestinationAt)};
    case FaultKind::kOneWay:
      return {swallow("egress", kDestinationAt)};
    default:
      return {};
  }
}

absl::Status NetworkLab::Disturb(FaultKind kind, const std::string& victim,
                                 const std::string& other) {
  absl::Status status;
  for (const Obstacle& obstacle : Obstacles(kind, victim, other)) {
    if (++n_causes_[obstacle.put] == 1) status.Update(RunCommand(obstacle.put));
  }
  return status;
}

absl::Status NetworkLab::Heal(FaultKind kind, const std::string& victim, const std::string& other) {
  absl::Status status;
  for (const Obstacle& obstacle : Obstacles(kind, victim, other)) {
    if (--n_causes_[obstacle.put] == 0) status.Update(RunCommand(obstacle.remove));
  }
  return status;
}

}  // namespace baton
