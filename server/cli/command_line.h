// The command line as data: which command, and the resolved configuration. Start of a process, one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/relay/relay_tuning.h"
#include "common/settings.h"
#include "common/status.h"
#include "server/access/key_file.h"
#include "server/config/config.h"

namespace baton {

enum class Command {
  kServe,
  kRouter,
  kPrefill,
  kDecode,
  kConfig,
  kDoctor,
  kKey,
  kPull,
  kQuantize,
  kTune,
  kTop,
  kBench,
  kPrint
};

// baton pull ORG/NAME[@REVISION] [--hub URL] [--token-file FILE] [--include PATTERN]... [--hf-cache
// DIR]
struct PullCommand {
  ModelConfig model;  // path as given; hf_cache: where it goes
  std::string hub = "https://huggingface.co";
  std::string token_file;            // empty: no token
  std::string ca_file;               // authorities of the hub's certificate; empty: the system's
  std::vector<std::string> include;  // patterns of files; empty: what serving needs
  int parallel = 4;                  // files at a time
};

// baton quantize MODEL --to int8|int4 [--group 128] [--out DIR]
struct QuantizeCommand {
  ModelConfig model;  // path as given
  std::string to;
  int group = 128;
  std::string out;  // empty: the model's name with -int8 or -int4 behind, in the working folder
};

// baton key NAME [--tenant T] [--scopes inference,...] [--rate R] [--tokens-per-minute N]
struct NewKeyCommand {
  KeyEntry entry;      // but for its digest
  std::string scopes;  // as given
};

// baton tune MODEL --out FILE [--ranks 2,3,4] [--tokens 1024,2048,4096] [--link 1e9] [--measure]
struct TuneCommand {
  ModelConfig model;  // path as given
  RelayTuningOptions options;
};

// baton doctor [MODEL] [--cluster URL] [--key-file FILE]
struct DoctorCommand {
  std::string cluster_url;  // of a router's API; empty: this host alone
  std::string key_file;     // its first word is the key; empty: there are no keys
};

// baton top [URL] [--key-file FILE]
struct TopCommand {
  std::string url = "http://127.0.0.1:8000";
  std::string key_file;  // its first word is the key; empty: there are no keys
};

struct CommandLine {
  Command command = Command::kPrint;
  std::string text;  // of kPrint: help or version
  Config config;
  Settings settings;             // its targets are in config: never moved, never copied
  bool list_keys = false;        // baton config --keys
  bool write_reference = false;  // baton config, api, metrics --markdown
  int start_descriptor = -1;     // of a supervised role: has its LaunchSpec; -1: none
  int report_descriptor = -1;    // of a supervised role: takes its reports; -1: none
  PullCommand pull;              // of kPull
  QuantizeCommand quantize;      // of kQuantize
  TuneCommand tune;              // of kTune
  NewKeyCommand new_key;         // of kKey
  DoctorCommand doctor;          // of kDoctor, beside the settings
  TopCommand top;                // of kTop
  std::function<int()> bench;    // of kBench

  CommandLine() = default;
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
};

// Reads flags (without the program's name) and the --config file; flags win. NotFound: no such
// file, or no demo model. InvalidArgument: anything else. Errors say what to change.
absl::StatusOr<std::unique_ptr<CommandLine>> ParseCommandLine(const std::vector<std::string>& args);

std::string VersionText();

}  // namespace baton
