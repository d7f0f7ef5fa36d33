#include "server/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/api/endpoints/endpoints.h"
#include "server/cli/bench_command_line.h"
#include "server/cli/commit.h"
#include "server/cli/metric_reference.h"
#include "server/cli/setting_flags.h"
#include "server/config/live_settings.h"
#include "server/config/model_folder.h"

namespace baton {
namespace {

constexpr char kHelp[] =
    R"(baton: serves language models with prefill and decode on different workers

  baton serve --demo           the small model that comes along: try this first
  baton serve MODEL            all roles on this machine
  baton router|prefill|decode  one role, where a cluster has several machines
  baton doctor [MODEL] [--cluster URL]  the machine, MODEL, a running cluster
  baton top [URL]              what a running cluster does; --key-file FILE
  baton key NAME >> FILE       a new API key, shown once; FILE gets its hash
  baton bench [--help]         speed beside the machine's limits
  baton pull ORG/NAME[@REV]    a model of a hub; --hub URL, --token-file FILE
  baton quantize MODEL --to int8|int4 [--group 128] [--out DIR]  integer weights
  baton tune MODEL --out FILE  how ranks of a relay should share its prompts
  baton config [--keys] | api | metrics | version  settings, OpenAPI, metrics

MODEL: a folder in Hugging Face layout, a .gguf file, ORG/NAME that was pulled,
or random:<config.json> (random weights of that shape).

  --port 8000          HTTP port, 0 picks one     --host 127.0.0.1
  --grpc-port 8001     gRPC too                   --uds PATH   a Unix socket too
  --tls-cert FILE --tls-key FILE  TLS; with --tls-client-ca FILE known clients
  --api-key-file FILE  who may ask (docs/SECURITY.md); needed beyond loopback
  --prefill 2 --decode 1  workers of each phase; --colocated: all do both
  --served-model-name  model id; may repeat       --max-model-len  context
  --config FILE        YAML file   --KEY=VALUE  any, as --decode.max_batch=64
)";

constexpr char kReferenceHead[] =
    R"(# Settings

Written by `baton config --markdown` from the declarations beside each room's options; a test holds
this page equal to them. `baton config --keys` prints the same in a terminal.

Each setting is a line of the file given with `--config` (YAML, a section per heading below) or a
flag, `--KEY=VALUE`, which wins; `baton config` prints all values with where each comes from. A key
that was renamed is refused with an error that names the new one. Some keys may change
[while a process runs](#changed-while-running).
)";

std::string KeysText(const Settings& settings) {
  std::string text;
  for (const Settings::Setting& setting : settings.all()) {
    absl::StrAppend(&text, absl::StrFormat("%s = %s\n    %s; %s\n", setting.key,
                                           setting.get().empty() ? "\"\"" : setting.get(),
                                           setting.help, setting.allowed));
  }
  return text;
}

// docs/CONFIG.md, which a test holds equal.
std::string ReferenceText(const Settings& settings) {
  return absl::StrCat(kReferenceHead, settings.Markdown(), LiveSettingsMarkdown());
}

struct Parser {
  explicit Parser(CommandLine* line) : out(*line), flags(&line->settings) {}

  CommandLine& out;
  SettingFlags flags;
  Settings tune_settings;  // of the engines of baton tune
  SettingFlags tune_flags{&tune_settings};
  CLI::App app{"baton"};
  BenchCommandLine bench_line;
  std::string config_file, model;
  bool demo = false, version = false;
  CLI::App *serve = nullptr, *router = nullptr, *prefill = nullptr, *decode = nullptr,
           *config = nullptr, *doctor = nullptr, *key = nullptr, *pull = nullptr,
           *quantize = nullptr, *tune = nullptr, *top = nullptr, *bench = nullptr, *api = nullptr,
           *metrics = nullptr, *version_command = nullptr;

  CLI::App* AddCommand(CLI::App* parent, const char* name, bool takes_settings) {
    CLI::App* command = parent->add_subcommand(name, "");
    if (takes_settings) {
      command->add_option("--config", config_file);
      command->add_option("MODEL", model);
      command->add_flag("--demo", demo);
      flags.AddTo(command);
    }
    return command;
  }
  void Declare() {
    app.add_flag("--version", version);
    serve = AddCommand(&app, "serve", true);
    router = AddCommand(&app, "router", true);
    prefill = AddCommand(&app, "prefill", true);
    decode = AddCommand(&app, "decode", true);
    for (CLI::App* role : {router, prefill, decode}) {
      role->add_option("--start-descriptor", out.start_descriptor)->group("");
      role->add_option("--report-descriptor", out.report_descriptor)->group("");
    }
    config = AddCommand(&app, "config", true);
    config->add_flag("--keys", out.list_keys);
    config->add_flag("--markdown", out.write_reference);
    api = AddCommand(&app, "api", false);
    api->add_flag("--markdown", out.write_reference);
    metrics = AddCommand(&app, "metrics", false);
    metrics->add_flag("--markdown", out.write_reference);
    doctor = AddCommand(&app, "doctor", true);
    doctor->add_option("--cluster", out.doctor.cluster_url);
    doctor->add_option("--key-file", out.doctor.key_file);
    DeclareKey();
    version_command = AddCommand(&app, "version", false);
    DeclarePull();
    quantize = AddCommand(&app, "quantize", false);
    quantize->add_option("MODEL", out.quantize.model.path);
    quantize->add_option("--to", out.quantize.to)->check(CLI::IsMember({"int8", "int4"}));
    quantize->add_option("--group", out.quantize.group)->check(CLI::IsMember({32, 64, 128}));
    quantize->add_option("--out", out.quantize.out);
    quantize->add_option("--hf-cache", out.quantize.model.hf_cache);
    DeclareTune();
    top = AddCommand(&app, "top", false);
    top->add_option("URL", out.top.url);
    top->add_option("--key-file", out.top.key_file);
    bench = AddCommand(&app, "bench", false);
    bench_line.Declare(bench);
  }
  void DeclareKey();
  void DeclarePull();
  void DeclareTune();
};

void Parser::DeclareKey() {
  KeyEntry& entry = out.new_key.entry;
  key = AddCommand(&app, "key", false);
  key->add_option("NAME", entry.name);
  key->add_option("--tenant", entry.tenant);
  key->add_option("--scopes", out.new_key.scopes);
  key->add_option("--rate", entry.requests_per_second)->check(CLI::PositiveNumber);
  key->add_option("--tokens-per-minute", entry.tokens_per_minute)->check(CLI::PositiveNumber);
}

void Parser::DeclarePull() {
  PullCommand& command = out.pull;
  pull = AddCommand(&app, "pull", false);
  pull->add_option("MODEL", command.model.path);
  pull->add_option("--hub", command.hub);
  pull->add_option("--token-file", command.token_file);
  pull->add_option("--ca", command.ca_file);
  pull->add_option("--include", command.include)->allow_extra_args(false);
  pull->add_option("--parallel", command.parallel)->check(CLI::Range(1, 64));
  pull->add_option("--hf-cache", command.model.hf_cache);
}

void Parser::DeclareTune() {
  RelayTuningOptions& options = out.tune.options;
  tune = AddCommand(&app, "tune", false);
  tune->add_option("MODEL", out.tune.model.path);
  tune->add_option("--hf-cache", out.tune.model.hf_cache);
  tune->add_option("--out", options.out);
  tune->add_option("--ranks", options.ranks)->delimiter(',');
  tune->add_option("--tokens", options.tokens)->delimiter(',');
  tune->add_option("--link", options.link);
  tune->add_option("--rounds", options.rounds);
  tune->add_flag("--measure", options.measure);
  tune->add_option("--threads-per-rank", options.rig.threads_per_rank);
  DeclareEngine(&options.rig.engine, &tune_settings);
  tune_flags.AddTo(tune, {"model.dtype", "model.isa", "model.page_tokens", "model.weight_cache"});
}

absl::Status UnknownArgument(const Parser& parser, const Settings& settings) {
  const std::vector<std::string> extras = parser.app.remaining(true);
  const std::string word = extras.empty() ? "" : extras.front();
  const std::string name = word.substr(0, word.find('='));
  const std::string new_name = NewFlagName(name, settings);
  if (!new_name.empty())
    return absl::InvalidArgumentError(absl::StrCat("flag ", name, " was renamed to ", new_name));
  if (parser.bench->parsed()) return parser.bench_line.UnknownArgument(name);
  std::vector<std::string> flags = parser.flags.names();
  for (const char* flag : {"--config", "--demo", "--help", "--version"}) flags.push_back(flag);
  if (name.rfind('-', 0) == 0) {
    const std::string nearest = NearestWord(name, flags);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag ", name,
                     nearest.empty() ? "; see baton --help and baton config --keys"
                                     : absl::StrCat("; did you mean ", nearest, "?")));
  }
  const std::string nearest =
      NearestWord(name, {"serve", "router", "prefill", "decode", "pull", "quantize", "tune",
                         "bench", "doctor", "key", "top", "config", "api", "metrics", "version"});
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected argument ", word,
                   nearest.empty() ? "; see baton --help"
                                   : absl::StrCat("; did you mean baton ", nearest, "?")));
}

absl::Status ApplySettings(const Parser& parser, CommandLine* out) {
  if (!parser.config_file.empty()) RETURN_IF_ERROR(out->settings.ReadFile(parser.config_file));
  RETURN_IF_ERROR(parser.flags.Apply());
  if (parser.demo && !parser.model.empty()) {
    return absl::InvalidArgumentError("give either MODEL or --demo, not both");
  }
  if (parser.demo) {
    ASSIGN_OR_RETURN(const std::string folder, DemoFolder());
    RETURN_IF_ERROR(out->settings.SetFlag("model.path", folder, "--demo"));
    if (out->config.model.name.empty()) {
      RETURN_IF_ERROR(out->settings.SetFlag("model.name", "demo", "--demo"));
    }
  } else if (!parser.model.empty()) {
    RETURN_IF_ERROR(out->settings.SetFlag("model.path", parser.model, "MODEL"));
  }
  const int page_tokens = out->config.decode.worker.engine.page_tokens;
  if (page_tokens != 16 && page_tokens != 32 && page_tokens != 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.page_tokens: ", page_tokens, " must be 16, 32 or 64"));
  }
  RETURN_IF_ERROR(ParseCpuList(out->config.prefill.cpus).status());
  return ParseCpuList(out->config.decode.cpus).status();
}

absl::Status CompleteNewKey(NewKeyCommand* command) {
  KeyEntry& entry = command->entry;
  if (entry.tenant.empty()) entry.tenant = entry.name;
  if (!IsKeyName(entry.name) || !IsKeyName(entry.tenant)) {
    return absl::InvalidArgumentError(
        "key needs a name, and may have a tenant, each of up to 64 letters, digits, . _ and -: "
        "baton key NAME [--tenant T]");
  }
  entry.scopes = ScopesOf(command->scopes.empty() ? "inference" : command->scopes);
  if (entry.scopes != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--scopes takes inference, metrics and admin, with commas between them");
}

Command ChosenCommand(const Parser& parser) {
  if (parser.serve->parsed()) return Command::kServe;
  if (parser.router->parsed()) return Command::kRouter;
  if (parser.prefill->parsed()) return Command::kPrefill;
  if (parser.decode->parsed()) return Command::kDecode;
  if (parser.doctor->parsed()) return Command::kDoctor;
  if (parser.key->parsed()) return Command::kKey;
  if (parser.pull->parsed()) return Command::kPull;
  if (parser.quantize->parsed()) return Command::kQuantize;
  if (parser.tune->parsed()) return Command::kTune;
  if (parser.top->parsed()) return Command::kTop;
  if (parser.bench_line.Chosen()) return Command::kBench;
  return parser.config->parsed() ? Command::kConfig : Command::kPrint;
}

}  // namespace

std::string VersionText() {
  const std::string commit = kCommit;
  return absl::StrCat("baton ", BATON_VERSION, commit.empty() ? "" : " (" + commit + ")", "\n");
}

absl::StatusOr<std::unique_ptr<CommandLine>> ParseCommandLine(
    const std::vector<std::string>& args) {
  auto line = std::make_unique<CommandLine>();
  bool help = false;  // each command's own flag; asked for, it comes before what is missing
  DeclareSettings(&line->config, &line->settings);
  Parser parser(line.get());
  parser.Declare();
  try {  // CLI11 reports by exceptions; none leaves this function
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    parser.app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    help = true;
  } catch (const CLI::ExtrasError&) {
    return UnknownArgument(parser, line->settings);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        error.what(), parser.bench->parsed() ? "; see baton bench --help" : "; see baton --help"));
  }
  line->command = ChosenCommand(parser);
  if (parser.version || parser.version_command->parsed()) {
    line->command = Command::kPrint;
    line->text = VersionText();
    return line;
  }
  if (parser.api->parsed() && !help) {
    line->text = line->write_reference ? ApiReference() : OpenApiDocument(BATON_VERSION) + "\n";
    return line;
  }
  if (parser.metrics->parsed() && !help) {
    line->text = line->write_reference ? MetricReference() : MetricList();
    return line;
  }
  if (help || line->command == Command::kPrint) {
    line->command = Command::kPrint;
    line->text = parser.bench->parsed() ? parser.bench_line.Help() : kHelp;
    return line;
  }
  if (line->command == Command::kKey) {
    RETURN_IF_ERROR(CompleteNewKey(&line->new_key));
    return line;
  }
  if (line->command == Command::kPull) {
    if (!line->pull.model.path.empty()) return line;
    return absl::InvalidArgumentError("pull needs a model: baton pull ORG/NAME[@REVISION]");
  }
  if (line->command == Command::kQuantize) {
    if (!line->quantize.model.path.empty() && !line->quantize.to.empty()) return line;
    return absl::InvalidArgumentError(
        "quantize needs a model and a type: baton quantize MODEL --to int8|int4");
  }
  if (line->command == Command::kTune) {
    RETURN_IF_ERROR(parser.tune_flags.Apply());
    if (!line->tune.model.path.empty() && !line->tune.options.out.empty()) return line;
    return absl::InvalidArgumentError(
        "tune needs a model and a file to write: baton tune MODEL --out FILE");
  }
  if (line->command == Command::kTop) return line;
  if (line->command == Command::kBench) {
    RETURN_IF_ERROR(parser.bench_line.Apply());
    line->bench = parser.bench_line.Chosen();
    return line;
  }
  if (line->command == Command::kConfig && (line->list_keys || line->write_reference)) {
    line->command = Command::kPrint;
    line->text = line->list_keys ? KeysText(line->settings) : ReferenceText(line->settings);
    return line;
  }
  RETURN_IF_ERROR(ApplySettings(parser, line.get()));
  return line;
}

}  // namespace baton
