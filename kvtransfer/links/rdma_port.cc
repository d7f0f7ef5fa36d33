#include "kvtransfer/links/rdma_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// Returns the first line; empty: there is no such file, or it cannot be read, as GIDs not in use.
std::string LineOf(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Ascending; empty: the folder cannot be read, as that of a card that was just taken out.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Returns the index of the port's GID that is this IPv4 address by RoCE v2; -1: none is.
int GidOf(const fs::path& port, const in_addr& host) {
  const uint32_t address = ntohl(host.s_addr);
  const std::string wanted =
      absl::StrFormat("0000:0000:0000:0000:0000:ffff:%04x:%04x", address >> 16, address & 0xffff);
  for (const fs::path& gid : EntriesOf(port / "gids")) {
    int index = -1;
    if (LineOf(gid) == wanted && absl::SimpleAtoi(gid.filename().string(), &index) &&
        absl::StrContains(LineOf(port / "gid_attrs" / "types" / gid.filename()), "v2"))
      return index;
  }
  return -1;
}

// True if the port of the device is that of the network device: by its GIDs, or by the number that
// a network device of a card with several ports has.
bool Carries(const fs::path& device, const fs::path& port, const std::string& network_device) {
  for (const fs::path& file : EntriesOf(port / "gid_attrs" / "ndevs"))
    if (LineOf(file) == network_device) return true;
  std::error_code error;
  const fs::path interface = device / "device/net" / network_device;
  if (!fs::exists(interface, error)) return false;
  int number = 0, dev_port = 0;
  return !absl::SimpleAtoi(LineOf(interface / "dev_port"), &dev_port) ||
         !absl::SimpleAtoi(port.filename().string(), &number) || number == dev_port + 1;
}

}  // namespace

absl::StatusOr<RdmaPort> FindRdmaPort(const in_addr& host, const std::string& network_device,
                                      const std::string& root) {
  std::vector<std::string> seen;
  absl::Status inactive;
  for (const fs::path& device : EntriesOf(root)) {
    for (const fs::path& port : EntriesOf(device / "ports")) {
      const std::string name =
          absl::StrCat(device.filename().string(), ":", port.filename().string());
      seen.push_back(name);
      const int gid_index = GidOf(port, host);
      const bool is_infiniband = LineOf(port / "link_layer") == "InfiniBand";
      if (gid_index < 0 && !(is_infiniband && Carries(device, port, network_device))) continue;
      if (const std::string state = LineOf(port / "state"); !absl::StrContains(state, "ACTIVE")) {
        inactive.Update(absl::FailedPreconditionError(
            absl::StrCat("RDMA port ", name, " is not active (", state,
                         "): look at cable, switch and subnet "
                         "manager (tools/rdma_check.sh)")));
        continue;
      }
      return RdmaPort{name, gid_index};
    }
  }
  RETURN_IF_ERROR(inactive);
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &host, text, sizeof(text));
  std::string devices;
  for (const std::string& name : seen) absl::StrAppend(&devices, devices.empty() ? "" : ", ", name);
  return absl::NotFoundError(absl::StrCat(
      "no RDMA device has the address ", text, " of ", network_device, " (", root, " has ",
      devices.empty() ? "none" : devices,
      "): set cluster.worker_host to the address of an InfiniBand or RoCE card, load its driver "
      "(tools/rdma_check.sh says more), or set kvtransfer.transport to tcp"));
}

}  // namespace baton
