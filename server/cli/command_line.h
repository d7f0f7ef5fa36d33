// The command line as data: which command, and the resolved configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/relay/relay_tuning.h"
#include "common/settings.h"
#include "common/status.h"
#include "server/config/config.h"

namespace baton {

enum class Command {
  kServe,
  kRouter,
  kPrefill,
  kDecode,
  kConfig,
  kDoctor,
  kQuantize,
  kTune,
  kBench,
  kPrint
};

// baton quantize MODEL --to int8|int4 [--group 128] [--out DIR]
struct QuantizeCommand {
  ModelConfig model;  // path as given
  std::string to;
  int group = 128;
  std::string out;  // empty: MODEL with -int8 or -int4 behind it, in this folder
};

// baton tune MODEL --out FILE [--ranks 2,3,4] [--tokens 1024,2048,4096] [--link 1e9] [--measure]
struct TuneCommand {
  ModelConfig model;  // path as given
  RelayTuningOptions options;
};

struct CommandLine {
  Command command = Command::kPrint;
  std::string text;  // of kPrint: help or version
  Config config;
  Settings settings;             // its targets are in config: never moved, never copied
  bool list_keys = false;        // baton config --keys
  bool write_reference = false;  // baton config --markdown
  int start_descriptor = -1;     // a supervised role: where its start order lies
  int report_descriptor = -1;    // and where it reports to
  QuantizeCommand quantize;      // of kQuantize
  TuneCommand tune;              // of kTune
  std::function<int()> bench;    // of kBench

  CommandLine() = default;
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
};

// Reads flags and the --config file (flags win). Errors say what to change.
absl::StatusOr<std::unique_ptr<CommandLine>> ParseCommandLine(const std::vector<std::string>& args);

std::string VersionText();

}  // namespace baton
