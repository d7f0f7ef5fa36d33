// `baton quantize MODEL --to int8|int4`: writes a checkpoint with integer weights
// (engine/cpu/quantize/checkpoint_quantizer.h), with progress on stdout. Called on the main thread.
#pragma once

#include "server/cli/command_line.h"

namespace baton {

// Returns the exit status: 0, or 1 with the reason on stderr.
int RunQuantize(const QuantizeCommand& command);

}  // namespace baton
