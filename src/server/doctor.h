// `baton doctor`: what this machine can do and what would hold it back, on one screen.
#pragma once

#include "server/config.h"

namespace baton {

// Prints one line per check. Returns 0 when nothing failed. With a model in the configuration its
// shape, KV size and fingerprint are shown too (loads it).
int RunDoctor(const Config& config);

}  // namespace baton
