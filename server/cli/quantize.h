// `baton quantize MODEL --to int8|int4`: a checkpoint with integer weights, with progress on
// stdout.
#pragma once

#include "server/cli/command_line.h"

namespace baton {

// The exit code; what went wrong is on stderr.
int RunQuantize(const QuantizeCommand& command);

}  // namespace baton
