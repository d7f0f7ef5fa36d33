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

// True if host:port names this machine's loopback: localhost, [::1] or 127.*. Plain-text
// control streams go nowhere else.
bool IsLoopbackAddress(std::string_view address);

}  // namespace baton
