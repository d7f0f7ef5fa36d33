// The peer process of ucx_contract_test.cc: prints its address, then accepts every announced chunk
// ("accept") or none ("hold"), until it is killed.
#include <poll.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "common/check.h"
#include "kvtransfer/links/ucx_link.h"

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  BATON_CHECK(argc == 2);
  const bool accept = std::string_view(argv[1]) == "accept";
  auto made = baton::MakeUcxLink("127.0.0.1");
  BATON_CHECK(made.ok());
  const std::unique_ptr<baton::Link> link = *std::move(made);
  std::printf("%s\n", link->address().c_str());
  std::fflush(stdout);
  std::vector<std::byte> memory(64 << 20);
  uint64_t n_accepted = 0;
  for (;;) {
    std::vector<baton::LinkEvent> events;
    const bool any = link->Poll(&events);
    for (const baton::LinkEvent& event : events) {
      const auto* announced = std::get_if<baton::ChunkAnnounced>(&event);
      if (announced == nullptr || !accept) continue;
      link->Accept(announced->announcement, n_accepted, memory.data() + (n_accepted % 64 << 20));
      ++n_accepted;
    }
    if (any || !link->Arm()) continue;
    pollfd fd{link->wake_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
  }
}
