// The other process of ucx_process_test.cc and ucx_kill_test.cc (peer_process.h).
//   transfer_peer sink TRANSPORT PAGES CELL_BYTES              lends its pages, prints its address
//   transfer_peer source TRANSPORT PAGES CELL_BYTES ADDRESS N  hands all its pages to the sink
//                                                              there, with the Nth ticket
//   ... N uncommitted   the same without COMMIT: cannot end by itself
// Both have two planes, say what happened line by line, and leave when their input is closed.
// Incarnations: the source is 1, the sink 2.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"
#include "tests/kvtransfer/transfer_node.h"

namespace baton {
namespace {

void Send(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void WaitForEndOfInput() {
  char c;
  while (::read(STDIN_FILENO, &c, 1) > 0) {
  }
}

int RunSink(KvTransport transport, int32_t n_pages, int64_t cell_bytes) {
  UcxNode node(OptionsBy(transport, 2), n_pages, {cell_bytes, cell_bytes});
  BATON_CHECK(node.status().ok());
  node.LendAll();
  Send(node.transfer().address());
  const auto arrived = node.Wait<HandoffArrived>(60'000);
  BATON_CHECK(arrived.has_value());
  uint32_t crc = 0;
  for (const int32_t page : arrived->pages)
    crc = ExtendCrc32c(crc, node.pool().page(page).data(), node.pool().page(page).size());
  Send(std::to_string(crc));
  WaitForEndOfInput();
  return 0;
}

KvTransport TransportOf(const std::string& name) {
  for (const auto& [each, transport] : kTransportNames)
    if (name == each) return transport;
  BATON_CHECK(false);
}

int RunSource(KvTransport transport, int32_t n_pages, int64_t cell_bytes, const std::string& sink,
              uint64_t n, bool commits) {
  UcxNode node(OptionsBy(transport, 1), n_pages, {cell_bytes, cell_bytes});
  BATON_CHECK(node.status().ok());
  std::vector<int32_t> pages;
  for (int32_t page = 0; page < n_pages; ++page) {
    node.pool().FillPage(page, 8);
    pages.push_back(page);
  }
  const Ticket ticket = MakeTicket(n, 2, n_pages, n_pages);
  node.transfer().Post(OpenHandoff{ticket, 2, sink});
  BATON_CHECK(node.Wait<HandoffPromised>().has_value());
  Send("promised");
  node.Send(ticket, pages);
  if (commits) node.Commit(ticket);
  const auto ended = node.Wait<HandoffEnded>(60'000);
  BATON_CHECK(ended.has_value());
  Send(ended->status.ToString());
  WaitForEndOfInput();
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  BATON_CHECK(argc >= 5);
  const baton::KvTransport transport = baton::TransportOf(argv[2]);
  const int32_t n_pages = std::stoi(argv[3]);
  const int64_t cell_bytes = std::stoll(argv[4]);
  return argc == 5 ? baton::RunSink(transport, n_pages, cell_bytes)
                   : baton::RunSource(transport, n_pages, cell_bytes, argv[5], std::stoull(argv[6]),
                                      argc == 7);
}
