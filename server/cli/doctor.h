// `baton doctor`: shows what this machine can do and what would hold it back, on one screen. One
// thread, which starts others and joins them.
#pragma once

#include "server/cli/command_line.h"
#include "server/config/config.h"

namespace baton {

// Prints one line per check to stdout. Returns the exit status: 0 when nothing failed, else 1. With
// a model in the configuration, also says which of its files are supported (model_report.h); if all
// are, loads the model and shows its KV size and fingerprint. With a cluster's address, also what
// its router tells of all hosts (fleet_report.h).
int RunDoctor(const Config& config, const DoctorCommand& command);

}  // namespace baton
