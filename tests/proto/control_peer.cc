// A process to be killed by tests: one end of a control stream.
//   control_peer serve            listens, prints its port, sends every token it gets back as a
//                                 CancelRequest with the token's position as epoch
//   control_peer dial PORT        dials as worker 77 and says nothing more
// The cluster key is all zero. Lives until killed or until its standard input ends.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "common/mailbox.h"
#include "proto/control_client.h"
#include "proto/control_server.h"

namespace baton {
namespace {

WorkerAnnounce PeerAnnounce() {
  WorkerAnnounce announce;
  announce.incarnation = 77;
  announce.name = "peer";
  announce.transfer = {.incarnation = 77, .address = "127.0.0.1:1"};
  announce.page_tokens = 16;
  announce.max_context = 64;
  return announce;
}

int Serve() {
  Mailbox<int> wakes(1);
  ControlServerOptions options;
  options.wake = [&wakes] { static_cast<void>(wakes.TryPost(1)); };
  auto server = ControlServer::Start(options);
  if (!server.ok()) return 1;
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  std::vector<int> woken;
  while (wakes.WaitAndDrain(&woken)) {
    woken.clear();
    std::vector<ControlEvent> events;
    (*server)->TakeEvents(&events);
    for (const ControlEvent& event : events) {
      const auto* reported = std::get_if<WorkerReported>(&event);
      if (reported == nullptr) continue;
      std::vector<RouterMessage> answers;
      for (const WorkerEvent& e : reported->report.events)
        if (const auto* token = std::get_if<TokenOut>(&e))
          answers.push_back(CancelRequest{.request_id = token->request_id,
                                          .epoch = static_cast<Epoch>(token->position)});
      if (!answers.empty()) (*server)->Send(reported->worker, std::move(answers));
    }
  }
  return 0;
}

int Dial(const char* port) {
  ControlClientOptions options;
  options.router_address = std::string("127.0.0.1:") + port;
  options.announce = PeerAnnounce();
  options.on_event = [](RouterEvent) { return true; };
  ControlClient client(std::move(options));
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "serve") == 0) return baton::Serve();
  if (argc == 3 && std::strcmp(argv[1], "dial") == 0) return baton::Dial(argv[2]);
  return 2;
}
