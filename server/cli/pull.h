// The command `baton pull`. Start of a process, one thread.
#pragma once

#include "server/cli/command_line.h"

namespace baton {

// 0: the model is in the cache. 1: it is not, or not whole; the message says what to change.
int RunPull(const PullCommand& command);

}  // namespace baton
