// `baton doctor`: what this machine can do and what would hold it back, on one screen.
#pragma once

#include "server/config/config.h"

namespace baton {

// Prints one line per check. Returns 0 when nothing failed. With a model in the configuration what
// of its files is supported is shown too (model_report.h) and, where all is, its KV size and
// fingerprint (loads it).
int RunDoctor(const Config& config);

}  // namespace baton
