// Settings shared by both ends of a control stream, as gRPC's generic channel arguments. Pure
// functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct ChannelArgument {
  std::string name;
  int value = 0;
};

// Keepalive that notices a dead or stopped peer in about 4 s, and Baton's message size limit.
std::vector<ChannelArgument> ControlChannelArguments();

// Sends what gRPC itself would write to stderr to the log, at level debug: it writes a line per
// handshake that fails, and strangers can make many. Once per process, before gRPC is used.
void QuietGrpc();

// True if host:port names this machine's loopback: localhost, [::1] or 127.*. Beside Unix sockets
// (unix_control.h), plain-text control streams go nowhere else.
bool IsLoopbackAddress(std::string_view address);

}  // namespace baton
