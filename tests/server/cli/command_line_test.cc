#include "server/cli/command_line.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/cli/metric_reference.h"
#include "server/cli/new_key.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<CommandLine> Parse(const std::vector<std::string>& args) {
  auto line = ParseCommandLine(args);
  INFO((line.ok() ? std::string() : std::string(line.status().message())));
  REQUIRE(line.ok());
  return *std::move(line);
}
std::string Error(const std::vector<std::string>& args) {
  const auto line = ParseCommandLine(args);
  REQUIRE_FALSE(line.ok());
  return std::string(line.status().message());
}

struct Folder {
  Folder() : path(fs::temp_directory_path() / absl::StrCat("baton_cli_", ::getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

TEST_CASE("help fits a terminal of 24 lines of 80 columns") {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{},
                                             {"--help"},
                                             {"-h"},
                                             {"serve", "--help"},
                                             {"bench", "--help"},
                                             {"bench"},
                                             {"bench", "load", "--help"}}) {
    const std::string text = Parse(args)->text;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    CHECK(lines.size() <= 25);  // plus the prompt's own line
    for (const std::string& line : lines) CHECK(line.size() <= 80);
  }
}

TEST_CASE("each command has its help, whatever else it needs") {
  const std::string all = Parse({"--help"})->text, bench = Parse({"bench", "--help"})->text;
  CHECK(all != bench);
  for (const char* command : {"serve", "router", "prefill", "decode", "config", "api", "doctor",
                              "key", "quantize", "tune"}) {
    INFO(command);
    CHECK(Parse({command, "--help"})->text == all);
    CHECK(Parse({command, "-h"})->text == all);
  }
  CHECK(Parse({"bench", "load", "--help"})->text.find("--find-rate") != std::string::npos);
  for (const char* name : {"interference", "step", "kernels", "attention", "transfer", "relay"}) {
    INFO(name);
    CHECK(Parse({"bench", name, "--help"})->text == bench);
  }
}

TEST_CASE("commands and the flags people know") {
  CHECK(Parse({"version"})->text.rfind("baton ", 0) == 0);
  const std::string version = Parse({"--version"})->text;
  CHECK(version.rfind("baton ", 0) == 0);
  CHECK(version == Parse({"version"})->text);
  // The commit, where it is known: twelve hex digits, and a + for files that were changed.
  CHECK(
      std::regex_match(version, std::regex(R"(baton \d+\.\d+\.\d+( \([0-9a-f]{12,40}\+?\))?\n)")));
  const auto line =
      Parse({"serve", "some/model", "--prefill", "3", "--decode=2", "--port", "9", "--colocated",
             "--decode.max_batch=64", "--served-model-name", "x", "--max-model-len", "128"});
  CHECK(line->command == Command::kServe);
  CHECK(line->config.model.path == "some/model");
  CHECK(line->config.model.name == "x");
  CHECK(line->config.model.max_context == 128);
  CHECK(line->config.prefill.worker.engine.max_context == 128);
  CHECK(line->config.decode.worker.engine.max_context == 128);
  CHECK(line->config.prefill.workers == 3);
  CHECK(line->config.decode.workers == 2);
  CHECK(line->config.decode.worker.core.decode.max_batch == 64);
  CHECK(line->config.server.http.port == 9);
  CHECK(line->config.cluster.colocated);
  CHECK(line->settings.Find("server.port")->origin == "--port");
  CHECK(Parse({"serve", "m", "--served-model-name", "a", "--served-model-name", "b"})
            ->config.model.name == "a,b");
  CHECK(Parse({"serve", "m", "--port", "1", "--port", "2"})->config.server.http.port == 2);
  CHECK(Parse({"serve", "--colocated=false", "m"})->config.cluster.colocated == false);
  const auto demo = Parse({"serve", "--demo"});
  CHECK(demo->config.model.name == "demo");
  CHECK(fs::exists(fs::path(demo->config.model.path) / "config.json"));
  CHECK(Parse({"prefill", "m", "--start-descriptor", "3"})->start_descriptor == 3);
  CHECK(Parse({"config", "--keys"})->text.find("decode.max_batch = 64") != std::string::npos);
  CHECK(Parse({"bench", "load", "--requests", "3"})->command == Command::kBench);
  CHECK(Parse({"bench", "step", "--model.path", "random:c.json", "--decode", "1,8", "--json"})
            ->command == Command::kBench);
  CHECK(Parse({"bench", "step", "random:c.json"})->command == Command::kBench);
  CHECK(Error({"bench", "step"}).find("bench step needs a MODEL") != std::string::npos);
}

TEST_CASE("benchmarks and serve have the same flags for the same things") {
  for (const char* command : {"serve", "doctor"}) {
    const auto line = Parse({command, "m", "--isa", "avx2", "--dtype=int8"});
    CHECK(line->config.decode.worker.engine.isa == "avx2");
    CHECK(line->config.prefill.worker.engine.isa == "avx2");
    CHECK(line->config.prefill.worker.engine.dtype == "int8");
    CHECK(Parse({command, "m", "--model.isa=avx2"})->config.decode.worker.engine.isa == "avx2");
  }
  for (const char* bench : {"step", "relay"}) {
    for (const char* flag : {"--isa=avx2", "--model.isa=avx2", "--dtype=int8", "--model.dtype=int8",
                             "--page-tokens=16", "--kv.dtype=int8", "--lab.attention=dense_mask",
                             "--model.weight_cache=/tmp"}) {
      CHECK(Parse({"bench", bench, "m", flag})->command == Command::kBench);
    }
    CHECK(Error({"bench", bench, "m", "--isa=sse"}).find("must be one of auto, avx2") !=
          std::string::npos);
    CHECK(Error({"bench", bench, "m", "--attention", "causal"}) ==
          "flag --attention was renamed to --lab.attention");
    CHECK(Error({"bench", bench, "m", "--cache-dir=/tmp"}) ==
          "flag --cache-dir was renamed to --model.weight_cache");
    CHECK(Error({"bench", bench, "--model", "m"}) == "flag --model was renamed to --model.path");
  }
  CHECK(Error({"bench", "step", "m", "--kv-dtype=int8"}) ==
        "flag --kv-dtype was renamed to --kv.dtype");
  CHECK(Error({"bench", "step", "m", "--int4-group=32"}) ==
        "flag --int4-group was renamed to --model.int4_group");
  const auto tune = Parse({"tune", "m", "--out", "f", "--isa=avx2", "--model.weight_cache=/w"});
  CHECK(tune->tune.options.rig.engine.isa == "avx2");
  CHECK(tune->tune.options.rig.engine.cache_dir == "/w");
  CHECK(Error({"tune", "m", "--out", "f", "--cache-dir=/w"}) ==
        "flag --cache-dir was renamed to --model.weight_cache");
}

TEST_CASE("how KV travels is one of four words, for both kinds of worker") {
  const auto line = Parse({"serve", "m", "--kvtransfer.transport=shm"});
  CHECK(line->config.prefill.worker.transfer.transport == KvTransport::kShm);
  CHECK(line->config.decode.worker.transfer.transport == KvTransport::kShm);
  CHECK(Parse({"serve", "m"})->config.decode.worker.transfer.transport == KvTransport::kTcp);
  CHECK(Error({"serve", "m", "--kvtransfer.transport=udp"}) ==
        "--kvtransfer.transport: \"udp\" must be one of auto, tcp, rdma, shm");
  CHECK(Parse({"bench", "transfer", "--transport", "shm"})->command == Command::kBench);
}

TEST_CASE("slips get a suggestion") {
  CHECK(Error({"serv"}) == "unexpected argument serv; did you mean baton serve?");
  CHECK(Error({"serve", "m", "--prot", "1"}) == "unknown flag --prot; did you mean --port?");
  CHECK(Error({"serve", "m", "--decode.max_bach=4"}) ==
        "unknown flag --decode.max_bach; did you mean --decode.max_batch?");
  CHECK(Error({"serve", "--port", "x"}) ==
        "--port: server.port: \"x\" must be an integer from -1 to 65535");
  CHECK(Error({"serve", "m", "--demo"}).find("not both") != std::string::npos);
  CHECK(Error({"serve", "m", "--page-tokens=48"}).find("16, 32 or 64") != std::string::npos);
  CHECK(Error({"serve", "m", "--decode.cpus=a"}).find("CPU list") != std::string::npos);
}

TEST_CASE("a slip in a benchmark's line names benchmarks and their flags") {
  CHECK(Error({"bench", "kernel"}) ==
        "bench: there is no benchmark kernel; did you mean baton bench kernels?");
  CHECK(Error({"bench", "foo"}) ==
        "bench: there is no benchmark foo; use load, interference, step, kernels, attention, "
        "grammar, relay, "
        "transfer");
  CHECK(Error({"bench", "load", "--reqests=3"}) ==
        "bench load: unknown flag --reqests; did you mean --requests?");
  CHECK(Error({"bench", "load", "--goodput-gap=3"}) ==
        "bench load: unknown flag --goodput-gap; did you mean --goodput-gap-x?");
  CHECK(Error({"bench", "load", "--find-rates"}) ==
        "bench load: unknown flag --find-rates; did you mean --find-rate?");
  CHECK(Error({"bench", "load", "--colocated"}) ==
        "bench load: unknown flag --colocated; see baton bench --help");
  CHECK(Error({"bench", "--jso"}) == "bench: unknown flag --jso; see baton bench --help");
  CHECK(Error({"bench", "load", "extra"}) ==
        "bench load: unexpected argument extra; see baton bench --help");
}

TEST_CASE("the folder of the hub's cache is one flag of all commands that take a model") {
  CHECK(Parse({"serve", "m", "--hf-cache", "/h"})->config.model.hf_cache == "/h");
  CHECK(Parse({"tune", "m", "--out", "f", "--hf-cache=/h"})->tune.model.hf_cache == "/h");
  CHECK(Parse({"quantize", "m", "--to", "int8", "--hf-cache=/h"})->quantize.model.hf_cache == "/h");
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"serve", "m"}, {"tune", "m", "--out", "f"}, {"quantize", "m", "--to", "int8"}}) {
    std::vector<std::string> old = args;
    old.push_back("--hf_cache=/h");
    CHECK(Error(old) == "flag --hf_cache was renamed to --hf-cache");
  }
}

TEST_CASE("the old keys of the laboratory name the new ones") {
  for (const auto& [section, name] :
       std::vector<std::pair<std::string, std::string>>{{"model", "attention"},
                                                        {"router", "partition"},
                                                        {"router", "partition_table"},
                                                        {"router", "relay_min_ranks"},
                                                        {"router", "relay_push"},
                                                        {"prefill", "streaming"},
                                                        {"prefill", "forwarding"},
                                                        {"cluster", "link_bytes_per_second"},
                                                        {"cluster", "link_latency"},
                                                        {"cluster", "link_falls_after"}}) {
    const std::string old_key = absl::StrCat(section, ".", name);
    CHECK(Error({"serve", "m", absl::StrCat("--", old_key, "=1")}) ==
          absl::StrCat("flag --", old_key, " was renamed to --lab.", name));
    CHECK(Error({"serve", "m", absl::StrCat("--", old_key), "1"}) ==
          absl::StrCat("flag --", old_key, " was renamed to --lab.", name));
  }
  Folder folder;
  const std::string file = (folder.path / "baton.yaml").string();
  std::ofstream(file) << "router:\n  partition: even\n";
  CHECK(Error({"serve", "m", "--config", file}) ==
        file + ":2: router.partition was renamed to lab.partition");
}

TEST_CASE("baton key takes a name, and what the key may do") {
  const auto plain = Parse({"key", "app"});
  CHECK(plain->command == Command::kKey);
  CHECK(plain->new_key.entry.name == "app");
  CHECK(plain->new_key.entry.tenant == "app");
  CHECK(plain->new_key.entry.scopes == SetOf(Scope::kInference));
  const auto full = Parse({"key", "app", "--tenant", "team", "--scopes=metrics,admin", "--rate",
                           "0.5", "--tokens-per-minute", "600"});
  const KeyEntry& entry = full->new_key.entry;
  CHECK(entry.tenant == "team");
  CHECK(entry.scopes == (SetOf(Scope::kMetrics) | SetOf(Scope::kAdmin)));
  CHECK(entry.requests_per_second == 0.5);
  CHECK(entry.tokens_per_minute == 600);
  CHECK(Error({"key"}).find("key needs a name") == 0);
  CHECK(Error({"key", "a b"}).find("key needs a name") == 0);
  CHECK(Error({"key", "a", "--scopes", "all"}).find("--scopes takes") == 0);
  CHECK(Error({"key", "a", "--rate", "0"}).find("--rate") != std::string::npos);

  const std::string key = RandomKey();
  CHECK(key.size() == 46);
  CHECK(key.starts_with("bk_"));
  CHECK(key != RandomKey());
  const auto access = Parse({"serve", "m", "--api-key-file", "keys", "--allow-unauthenticated"});
  CHECK(access->config.server.access.api_key_file == "keys");
  CHECK(access->config.server.access.allow_unauthenticated);
}

TEST_CASE("docs/CONFIG.md is what the settings say") {
  std::ifstream file(fs::path(BATON_SOURCE_DIR) / "docs/CONFIG.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  INFO("write it again: baton config --markdown > docs/CONFIG.md");
  CHECK(Parse({"config", "--markdown"})->text == page);
}

TEST_CASE("docs/METRICS.md is what the tables of series say, and these keep Prometheus' rules") {
  std::ifstream file(fs::path(BATON_SOURCE_DIR) / "docs/METRICS.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  INFO("write it anew: baton metrics --markdown > docs/METRICS.md");
  CHECK(Parse({"metrics", "--markdown"})->text == page);
  const std::string list = Parse({"metrics"})->text;
  CHECK(list.find("baton_failovers_total counter model role cause\n") != std::string::npos);

  std::set<std::string> names;
  for (const MetricSection& section : MetricSections()) {
    for (const MetricDeclaration& row : section.rows) {
      const std::string name = row.name;
      INFO(name);
      CHECK(names.insert(name).second);
      const std::string help = row.help;
      CHECK(help.ends_with("."));
      if (name.starts_with("vllm:")) continue;  // vLLM's own words
      const bool counts = row.kind == MetricKind::kCounter || row.kind == MetricKind::kTotal;
      CHECK(counts == name.ends_with("_total"));
      const std::string base = name.substr(0, name.size() - (counts ? 6 : 0));
      for (const char* unit : {"seconds", "bytes", "ratio"})
        CHECK((row.unit == std::string(unit)) == base.ends_with("_" + std::string(unit)));
    }
  }
}

TEST_CASE("docs/API.md is what the tables of routes and fields say") {
  std::ifstream file(fs::path(BATON_SOURCE_DIR) / "docs/API.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  INFO("write it anew: baton api --markdown > docs/API.md");
  CHECK(Parse({"api", "--markdown"})->text == page);
  CHECK(Parse({"api"})->text.starts_with("{\"openapi\":\"3.1.0\""));
}

TEST_CASE("the file is read, flags win, the resolved configuration reads back") {
  Folder folder;
  const std::string file = (folder.path / "baton.yaml").string();
  std::ofstream(file) << "server:\n  port: 7000\ndecode:\n  max_batch: 8\n";
  const auto line = Parse({"config", "--config", file, "--port=7001"});
  CHECK(line->config.server.http.port == 7001);
  CHECK(line->config.decode.worker.core.decode.max_batch == 8);
  const std::string resolved = line->settings.Resolved();
  CHECK(resolved.find(file + ":4") != std::string::npos);
  std::ofstream(file) << resolved;
  const auto again = Parse({"config", "--config", file});
  CHECK(again->config.server.http.port == 7001);
  CHECK(again->config.decode.worker.core.decode.max_batch == 8);
  std::ofstream(file) << "decode:\n  max_bach: 8\n";
  CHECK(Error({"serve", "m", "--config", file}) ==
        file + ":2: unknown key decode.max_bach; did you mean decode.max_batch?");
}

}  // namespace
}  // namespace baton
