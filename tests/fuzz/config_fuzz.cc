// Files and flags of whoever runs Baton: settings, API keys, cluster key, costs of baton tune. What
// is wrong is an error that names the place, and what is taken means the same when written and read
// again.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/partition_table.h"
#include "server/access/access_options.h"
#include "server/access/key_file.h"
#include "server/api/api_front_options.h"
#include "server/api/model_config.h"
#include "server/http/http_server_options.h"
#include "server/process/launch_spec.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/thread_time.h"

namespace baton {
namespace {

enum Form { kYaml, kFlags, kKeys, kStart, kCosts, kReports, kForms };
constexpr absl::Duration kMaxTime = absl::Seconds(1);
constexpr char kOrigin[] = "file.yaml";

// Settings of every kind, in the sections of rooms that tests/fuzz builds.
struct Declared {
  Declared() {
    DeclareModel(&model, &settings);
    DeclareHttpServer(&http, &settings);
    DeclareAccess(&access, &settings);
    DeclareApiFront(&api, &settings);
    settings.Number("lab.number", &number, -1, 1e6, "a number");
    settings.Choice("log.level", &level, {"debug", "info", "warn", "error"}, "a word");
    settings.Renamed("model.old_name", "model.name");
  }
  ModelConfig model;
  HttpServerOptions http;
  AccessOptions access;
  ApiFrontOptions api;
  double number = 0.5;
  std::string level = "info";
  Settings settings;
};

void CheckRefusal(const absl::Status& status, std::string_view place) {
  BATON_CHECK(absl::IsInvalidArgument(status));
  BATON_CHECK(absl::StrContains(status.message(), absl::string_view(place.data(), place.size())));
}

// The values, without the comments that tell where they come from.
std::string ValuesOf(const Settings& settings) {
  std::string values;
  for (const Settings::Setting& setting : settings.all())
    absl::StrAppend(&values, setting.key, "=", setting.get(), "\n");
  return values;
}

// For one input of eight: it takes longer than all else.
void CheckWrittenAgain(FuzzInput& input, const Settings& settings) {
  if (input.random()() % 8 != 0) return;
  Declared other;
  BATON_CHECK(other.settings.ReadText(settings.Resolved(), "again").ok());
  BATON_CHECK(ValuesOf(other.settings) == ValuesOf(settings));
}

void TryYaml(FuzzInput& input) {
  Declared declared;
  const absl::Status status = declared.settings.ReadText(std::string(input.Rest()), kOrigin);
  if (!status.ok()) CheckRefusal(status, kOrigin);
  CheckWrittenAgain(input, declared.settings);
}

// key \0 value \0 key \0 value ...
void TryFlags(FuzzInput& input) {
  Declared declared;
  for (int n = 0; n < 8; ++n) {
    const std::string_view key = input.Upto('\0');
    const absl::Status status = declared.settings.SetFlag(key, input.Upto('\0'), "--the-flag");
    if (!status.ok()) CheckRefusal(status, "--the-flag");
  }
  CheckWrittenAgain(input, declared.settings);
}

void TryKeys(std::string_view text) {
  const auto entries = ParseKeyFile(text, kOrigin);
  if (!entries.ok()) return CheckRefusal(entries.status(), kOrigin);
  BATON_CHECK(!entries->empty() && entries->size() <= kMaxKeys);
  std::string written;
  for (const KeyEntry& entry : *entries) {
    BATON_CHECK(IsKeyName(entry.name) && IsKeyName(entry.tenant) && entry.scopes != 0);
    absl::StrAppend(&written, KeyLine(entry), "\n");
  }
  const auto again = ParseKeyFile(written, kOrigin);
  BATON_CHECK(again.ok() && again->size() == entries->size());
  std::string twice;
  for (const KeyEntry& entry : *again) absl::StrAppend(&twice, KeyLine(entry), "\n");
  BATON_CHECK(twice == written);
}

void TryStart(std::string_view text) {
  const auto spec = LaunchSpec::Parse(text);
  if (!spec.ok()) return CheckRefusal(spec.status(), "");
  BATON_CHECK(spec->Text() == text);
}

void TryCosts(const std::string& text) {
  const auto table = ParsePartitionTable(text, kOrigin);
  if (!table.ok()) return CheckRefusal(table.status(), kOrigin);
  const std::string written = PartitionTableText(*table);
  const auto again = ParsePartitionTable(written, kOrigin);
  BATON_CHECK(again.ok() && PartitionTableText(*again) == written);
}

void TryReport(std::string_view line) {
  const auto report = ParseReportLine(line);
  if (!report) return;
  std::string written = ReportLine(*report);
  written.pop_back();  // the line feed
  BATON_CHECK(ParseReportLine(written).has_value());
}

}  // namespace

void TryInput(std::string_view bytes) {
  const absl::Duration begin = ThreadTime();
  FuzzInput input(bytes);
  switch (input.Below(kForms)) {
    case kYaml:
      TryYaml(input);
      break;
    case kFlags:
      TryFlags(input);
      break;
    case kKeys:
      TryKeys(input.Rest());
      break;
    case kStart:
      TryStart(input.Rest());
      break;
    case kCosts:
      TryCosts(std::string(input.Rest()));
      break;
    default:
      TryReport(input.Rest());
  }
  BATON_CHECK(ThreadTime() - begin < kMaxTime);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](Form form, const std::string& rest) {
    seeds.inputs.push_back(static_cast<char>(form) + rest);
  };
  const Declared declared;
  add(kYaml, declared.settings.Resolved());
  add(kYaml,
      "server: {port: 8000, host: 0.0.0.0, header_timeout: 10s, max_body: 64MiB}\nmodel:\n"
      "  old_name: demo # a comment\nlab: {number: 1e-3}\nlog: {level: warn}\n");
  add(kYaml, "a: &x [1, 2]\nb: *x\n? c\n: |\n  text\n--- !!map {}\n");
  const std::string digest(64, 'a');
  add(kKeys, absl::StrCat("# keys\napp ", digest, " team inference 0.5 60000\nops ",
                          std::string(64, 'b'), " ops metrics,admin - 6000\n"));
  add(kStart, absl::StrCat(digest, "\nserver: {port: 1}\n"));
  add(kCosts,
      "model: m\nmodel_fingerprint: 'ab'\nnumerics_id: cpu-x86\ncost: {threads: 2, layers: "
      "16, token: 1.2e-05, pair: 3.4e-10, extra_tokens: 250, kv_bytes: 2048}\nranks:\n  2:\n"
      "    - {tokens: 2048, ratios: [0.55, 0.45]}\n    - {tokens: 4096, ratios: [0.5, 0.5]}\n");
  for (const char* line :
       {"progress 0.5", "control 1", "http 2", "metrics 3", "kv 1 2 3 4", "ready"})
    add(kReports, line);
  for (const Settings::Setting& setting : declared.settings.all()) {
    add(kFlags, absl::StrCat(setting.key, std::string(1, '\0'), setting.get()));
    seeds.words.push_back(setting.key);
    seeds.words.push_back(setting.key.substr(setting.key.find('.') + 1) + ": ");
  }
  for (const char* word : {"server:\n  ",
                           "1h",
                           "200ms",
                           "8GiB",
                           "true",
                           "~",
                           "!!binary ",
                           "&a ",
                           "*a",
                           "<<: ",
                           "[",
                           "{",
                           "|\n ",
                           "'",
                           "\\x00",
                           "9223372036854775807",
                           ".inf",
                           ".nan",
                           "inference,admin",
                           "1e400",
                           "-1"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
