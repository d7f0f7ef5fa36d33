// `baton top`: what a running cluster does, in a terminal: the figures of the page /ui, asked for
// once a second.
#pragma once

#include "server/cli/command_line.h"

namespace baton {

// Draws anew every second until Ctrl-C, or q and Enter; where stdout is no terminal, prints once.
// Returns the exit status.
int RunTop(const TopCommand& command);

}  // namespace baton
