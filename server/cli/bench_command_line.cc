#include "server/cli/bench_command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/grammar_bench.h"
#include "bench/kernels/attention_bench.h"
#include "bench/kernels/kernels_bench.h"
#include "bench/kernels/step_bench.h"
#include "bench/load/interference_bench.h"
#include "bench/load/load_bench.h"
#include "bench/relay/relay_bench.h"
#include "bench/relay/relay_measurement.h"
#include "bench/relay/relay_rank.h"
#include "bench/transfer_bench.h"
#include "engine/cpu/machine/isa.h"
#include "server/cli/setting_flags.h"
#include "server/config/model_folder.h"

namespace baton {
namespace {

constexpr int kInt4Group = 128;  // k of one scale

constexpr char kHelp[] =
    R"(baton bench load          requests against a running server; all take --json
  --url http://127.0.0.1:8000  --label NAME  --requests 100  --warmup 4
  --trace FILE --scale-lengths 1 --rate 0 --seconds 0 --max-concurrency 256
  --prompt-tokens 512 --output-tokens 64 --vocab 2048 --seed 1; also --find-rate
  and --sessions, by what requests are good: see baton bench load --help
baton bench interference  streams beside long prompts: --rounds 3 --vocab 2048
  --url URL --streams 4 --stream-output-tokens 400 --long-prompt-tokens 4000
baton bench step MODEL    whole forward passes, without server or network
  --prompt 512,2048 --chunk 512 --seconds 2   several chunks take turns
  --rounds 1 (min runs of a prompt) --slices (each prompt also as one slice)
  --decode 1,8,32 --context 128 --samples 21 --phases (time of each phase)
  --threads 0, and as serve: --isa --dtype --kv.dtype --model.* --lab.attention
baton bench kernels       linear layers on every path, also in a plain order
  --isa avx2,avx512 --weights bf16,int8,int4 --rows 1,8,512 --k 2048 --n 8192
baton bench attention     attention and sampler on every path: --threads 1,2
  --contexts 512,4096 --group 4 (heads per KV head), both: --seconds --samples 7
baton bench grammar [MODEL]  masks; decode steps with them: --rows 8 --steps 60
baton bench relay MODEL        prefill shared by processes of this machine
  --ranks 2 --tokens 4096 --link 94e6 (bytes/s; 0 = not limited) --rounds 3
  --schemes one,kvr-s,streaming --memory (peaks) --noise 8 (links also at 1/8)
baton bench relay --simulate   by simulated workers: --shape a100-llama-7b
baton bench transfer      KV handoffs over UCX beside plain TCP: --seconds 2
  --macs (instead: with MACs beside without, and at 10 Gbit/s)
  --transport tcp (instead: shm or rdma beside tcp, in turns) --host 127.0.0.1
)";

constexpr char kLoadHelp[] =
    R"(baton bench load          requests against a running server
  --url http://127.0.0.1:8000  --label NAME  --json  --warmup 4 (requests)
  --max-concurrency 256  --vocab 2048  --seed 1 (of all tokens and times)
  --detailed (each request)  --plot FILE (SVG of TTFT and ITL)

The requests, --requests 100: of a trace (Mooncake's JSON lines), or synthetic
  --trace FILE --scale-lengths 1 --scale-time 1 --max-context 4096
  --spread 0 (max random delay of arrivals, in s)
  --prompt-tokens 512 --output-tokens 64
  --rate 0 (mean requests/s; 0 = as the trace has them, else all at once)
  --seconds 0 (the run ends then; 0 = with its last answer)
Good ones: time to first token, and 99th percentile of a request's own gaps
  --goodput-ttft-ms 1000 --goodput-gap-ms 100, or times what an idle server
  takes: --goodput-ttft-x 5 --goodput-gap-x 3, which is measured before, or
  --idle-file FILE (read if it is there, else measured and written)
  --find-rate (highest rate with 90 % good, by probes of --seconds 30)
Conversations of --sessions N users at once: a turn's prompt is all before it
  --conversations N --turns 6 --new-tokens 64 --think 1 (s); the first prompt
  and the answers by the flags above, or a --trace of conversations; with --rate
  (turns/s) turns are due by themselves, user after user, without thinking
  --worker-metrics http://HOST:PORT,... (of all workers, as they log them)
)";

int Fail(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<std::vector<Isa>> ParseIsas(const std::vector<std::string>& names) {
  std::vector<Isa> isas;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const Isa isa, ParseIsa(name));
    isas.push_back(isa);
  }
  return isas;
}

// Formats of the weights of linear layers, by name.
absl::StatusOr<std::vector<WeightFormat>> ParseFormats(const std::vector<std::string>& names) {
  std::vector<WeightFormat> formats;
  for (const std::string& name : names) {
    if (name == "bf16") {
      formats.push_back({});
    } else if (name == "int8") {
      formats.push_back({.type = WeightType::kInt8});
    } else if (name == "int4") {
      formats.push_back({.type = WeightType::kInt4, .group = kInt4Group});
    } else {
      return absl::InvalidArgumentError("--weights is \"" + name + "\"; use bf16, int8 or int4");
    }
  }
  return formats;
}

// Options of several benches.

void AddServer(CLI::App* app, std::string* url, std::string* label, int* vocab) {
  app->add_option("--url", *url);
  app->add_option("--label", *label);
  app->add_option("--vocab", *vocab);
}

// Declares the threads: one number, or a list for a bench that takes several.
template <class Threads>
void AddThreads(CLI::App* app, Threads* threads, int* spin_us) {
  app->add_option("--threads", *threads)->delimiter(',');
  app->add_option("--spin-us", *spin_us);
}

void AddSeconds(CLI::App* app, double* seconds) { app->add_option("--seconds", *seconds); }

}  // namespace

struct BenchCommandLine::State {
  CLI::App* bench = nullptr;
  CLI::App *load = nullptr, *interference = nullptr, *step = nullptr, *kernels = nullptr,
           *attention = nullptr, *grammar = nullptr, *relay = nullptr, *relay_rank = nullptr,
           *transfer = nullptr;
  LoadBenchOptions load_options;
  InterferenceBenchOptions interference_options;
  StepBenchOptions step_options;
  KernelsBenchOptions kernels_options;
  AttentionBenchOptions attention_options;
  GrammarBenchOptions grammar_options;
  RelaySimulationOptions relay_simulation;
  RelayMeasurementOptions relay_measurement;
  bool simulate_relay = false, relay_json = false;
  std::vector<double> relay_tokens, relay_links;
  std::vector<int> relay_ranks;
  TransferBenchOptions transfer_options;
  ModelConfig model;
  Settings step_settings, relay_settings;  // of their engines
  SettingFlags step_flags{&step_settings}, relay_flags{&relay_settings};
  std::vector<std::string> isas, weights = {"bf16"};

  int RunLoad() {
    Workload& workload = load_options.workload;
    workload.trace.n_requests = workload.synthetic.n_requests;
    workload.trace.vocab = workload.synthetic.vocab;
    return RunLoadBench(load_options);
  }
  int RunStep() {
    const absl::Status resolved = ResolveModel(&model);
    if (!resolved.ok()) return Fail(resolved);
    step_options.engine.model = model.path;
    return Fail(RunStepBench(step_options));
  }
  int RunGrammar() {
    if (!model.path.empty()) {
      const absl::Status resolved = ResolveModel(&model);
      if (!resolved.ok()) return Fail(resolved);
      grammar_options.engine.model = model.path;
    }
    return Fail(RunGrammarBench(grammar_options));
  }
  int RunRelay() { return Fail(simulate_relay ? SimulateRelay() : MeasureRelay()); }
  absl::Status SimulateRelay() {
    relay_simulation.json = relay_json;
    if (!relay_links.empty()) relay_simulation.links = relay_links;
    if (!relay_ranks.empty()) relay_simulation.ranks = relay_ranks;
    if (!relay_tokens.empty()) relay_simulation.tokens = relay_tokens;
    return RunRelaySimulation(relay_simulation);
  }
  absl::Status MeasureRelay() {
    if (model.path.empty() || relay_ranks.size() > 1 || relay_tokens.size() > 1) {
      return absl::InvalidArgumentError(
          "bench relay needs --simulate, or a MODEL and one of --ranks and --tokens");
    }
    RETURN_IF_ERROR(ResolveModel(&model));
    relay_measurement.rig.engine.model = model.path;
    if (relay_measurement.rig.engine.cache_dir.empty()) {
      relay_measurement.rig.engine.cache_dir = HomeFolder() + "/.cache/baton";
    }
    relay_measurement.json = relay_json;
    if (!relay_links.empty()) relay_measurement.links = relay_links;
    if (!relay_ranks.empty()) relay_measurement.rig.ranks = relay_ranks[0];
    if (!relay_tokens.empty()) relay_measurement.tokens = static_cast<int>(relay_tokens[0]);
    return RunRelayMeasurement(relay_measurement);
  }
  int RunKernels() {
    RequestAmxPermission();
    auto parsed = ParseIsas(isas);
    if (!parsed.ok()) return Fail(parsed.status());
    kernels_options.isas = *std::move(parsed);
    auto formats = ParseFormats(weights);
    if (!formats.ok()) return Fail(formats.status());
    kernels_options.formats = *std::move(formats);
    return RunKernelsBench(kernels_options);
  }
  int RunAttention() {
    RequestAmxPermission();
    auto parsed = ParseIsas(isas);
    if (!parsed.ok()) return Fail(parsed.status());
    attention_options.isas = *std::move(parsed);
    return Fail(RunAttentionBench(attention_options));
  }
};

BenchCommandLine::BenchCommandLine() : state_(std::make_shared<State>()) {}
BenchCommandLine::~BenchCommandLine() = default;

std::string BenchCommandLine::Help() const { return state_->load->parsed() ? kLoadHelp : kHelp; }

absl::Status BenchCommandLine::UnknownArgument(const std::string& word) const {
  const bool is_flag = word.starts_with('-');
  std::vector<std::string> known;
  std::string command = "bench";
  for (CLI::App* app : state_->bench->get_subcommands({})) {
    if (app->get_group().empty()) continue;  // for processes of the bench itself
    if (!is_flag) known.push_back(app->get_name());
    if (!app->parsed()) continue;
    command = absl::StrCat("bench ", app->get_name());
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames())
        if (is_flag) known.push_back(absl::StrCat("--", name));
  }
  if (is_flag) {
    const std::string nearest = NearestWord(word, known);
    return absl::InvalidArgumentError(
        absl::StrCat(command, ": unknown flag ", word,
                     nearest.empty() ? "; see baton bench --help"
                                     : absl::StrCat("; did you mean ", nearest, "?")));
  }
  if (command != "bench") {
    return absl::InvalidArgumentError(
        absl::StrCat(command, ": unexpected argument ", word, "; see baton bench --help"));
  }
  const std::string nearest = NearestWord(word, known);
  if (!nearest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("bench: there is no benchmark ", word,
                                                   "; did you mean baton bench ", nearest, "?"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("bench: there is no benchmark ", word, "; use ", absl::StrJoin(known, ", ")));
}

void BenchCommandLine::Declare(CLI::App* bench) {
  State& state = *state_;
  state.bench = bench;
  const auto add = [&](const char* name, bool* json) {
    CLI::App* app = bench->add_subcommand(name, "");
    app->add_flag("--json", *json);
    return app;
  };
  {
    LoadBenchOptions& options = state.load_options;
    CLI::App* app = state.load = add("load", &options.json);
    AddServer(app, &options.url, &options.label, &options.workload.synthetic.vocab);
    app->add_option("--trace", options.workload.trace.path);
    app->add_option("--scale-lengths", options.workload.trace.length_scale);
    app->add_option("--scale-time", options.workload.trace.time_scale);
    app->add_option("--spread", options.workload.trace.spread_s);
    app->add_flag("--detailed", options.detailed);
    app->add_option("--plot", options.plot_file);
    app->add_option("--max-context", options.workload.trace.max_context);
    app->add_option("--requests", options.workload.synthetic.n_requests);
    app->add_option("--prompt-tokens", options.workload.synthetic.prompt_tokens);
    app->add_option("--output-tokens", options.workload.synthetic.output_tokens);
    app->add_option("--seed", options.workload.synthetic.seed);
    app->add_option("--rate,--request-rate", options.workload.rate);
    app->add_option("--seconds", options.workload.seconds);
    app->add_option("--max-concurrency", options.max_concurrency);
    app->add_option("--goodput-ttft-ms", options.limits.ttft_ms);
    app->add_option("--goodput-gap-ms", options.limits.gap_ms);
    app->add_option("--goodput-ttft-x", options.limits.ttft_x);
    app->add_option("--goodput-gap-x", options.limits.gap_x);
    app->add_option("--idle-file", options.idle_file);
    app->add_flag("--find-rate", options.find_rate);
    app->add_option("--sessions", options.conversations.n_users);
    app->add_option("--conversations", options.conversations.n_conversations);
    app->add_option("--turns", options.conversations.n_turns);
    app->add_option("--new-tokens", options.conversations.new_tokens);
    app->add_option("--think", options.conversations.think_s);
    app->add_option("--worker-metrics", options.worker_metrics)->delimiter(',');
    app->add_option("--warmup", options.n_warmup);
  }
  {
    InterferenceBenchOptions& options = state.interference_options;
    CLI::App* app = state.interference = add("interference", &options.json);
    AddServer(app, &options.url, &options.label, &options.vocab);
    app->add_option("--streams", options.n_streams);
    app->add_option("--stream-prompt-tokens", options.stream_prompt_tokens);
    app->add_option("--stream-output-tokens", options.stream_output_tokens);
    app->add_option("--long-prompt-tokens", options.long_prompt_tokens);
    app->add_option("--rounds", options.n_rounds);
  }
  {
    StepBenchOptions& options = state.step_options;
    CLI::App* app = state.step = add("step", &options.json);
    options.engine.spin_us = 50;  // as workers on CPUs of their own
    AddThreads(app, &options.engine.threads, &options.engine.spin_us);
    AddSeconds(app, &options.seconds);
    app->add_option("MODEL,--model.path", state.model.path);
    app->add_option("--prompt", options.prompts)->delimiter(',');
    app->add_option("--decode", options.decode)->delimiter(',');
    app->add_option("--context", options.context);
    DeclareEngine(&options.engine, &state.step_settings);
    DeclareEngineLab(&options.lab, &state.step_settings);
    state.step_flags.AddTo(app,
                           {"model.dtype", "model.isa", "model.int4_group", "model.page_tokens",
                            "model.weight_cache", "kv.dtype", "lab.attention"});
    app->add_option("--chunk", options.chunks)->delimiter(',');
    app->add_flag("--slices", options.slices);
    app->add_flag("--phases", options.phases);
    app->add_option("--samples", options.samples);
    app->add_option("--rounds", options.rounds);
  }
  {
    KernelsBenchOptions& options = state.kernels_options;
    CLI::App* app = state.kernels = add("kernels", &options.json);
    app->add_option("--isa", state.isas)->delimiter(',');
    AddThreads(app, &options.threads, &options.spin_us);
    AddSeconds(app, &options.plan.seconds);
    app->add_option("--samples", options.plan.min_samples);
    app->add_option("--rows", options.rows)->delimiter(',');
    app->add_option("--weights", state.weights)->delimiter(',');
    app->add_option("--k", options.k);
    app->add_option("--n", options.n);
  }
  {
    AttentionBenchOptions& options = state.attention_options;
    CLI::App* app = state.attention = add("attention", &options.json);
    app->add_option("--isa", state.isas)->delimiter(',');
    AddThreads(app, &options.threads, &options.spin_us);
    AddSeconds(app, &options.plan.seconds);
    app->add_option("--samples", options.plan.min_samples);
    app->add_option("--contexts", options.contexts)->delimiter(',');
    app->add_option("--group", options.group);
  }
  {
    GrammarBenchOptions& options = state.grammar_options;
    CLI::App* app = state.grammar = add("grammar", &options.json);
    app->add_option("--tokenizer", options.tokenizer);
    app->add_option("--vocab", options.vocab);
    app->add_option("--rounds", options.rounds);
    app->add_option("--max-tokens", options.max_tokens);
    app->add_option("--seed", options.seed);
    options.engine.spin_us = 50;  // as workers on CPUs of their own
    AddThreads(app, &options.engine.threads, &options.engine.spin_us);
    app->add_option("MODEL,--model.path", state.model.path);
    app->add_option("--dtype,--model.dtype", options.engine.dtype);
    app->add_option("--rows", options.rows);
    app->add_option("--context", options.context);
    app->add_option("--steps", options.steps);
  }
  {
    RelayMeasurementOptions& options = state.relay_measurement;
    CLI::App* app = state.relay = add("relay", &state.relay_json);
    app->add_option("MODEL,--model.path", state.model.path);
    app->add_flag("--simulate", state.simulate_relay);
    app->add_option("--shape", state.relay_simulation.shapes)->delimiter(',');
    app->add_flag("--claims,!--no-claims", state.relay_simulation.claims);
    app->add_option("--link,--link-bytes-per-second", state.relay_links)->delimiter(',');
    app->add_option("--ranks", state.relay_ranks)->delimiter(',');
    app->add_option("--tokens", state.relay_tokens)->delimiter(',');
    app->add_option("--schemes", options.schemes)->delimiter(',');
    app->add_option("--rounds", options.rounds);
    app->add_flag("--memory", options.memory);
    app->add_option("--threads-per-rank", options.rig.threads_per_rank);
    app->add_option("--noise", options.noise.factor);
    app->add_option("--noise-workers", options.noise.workers);
    app->add_option("--noise-period", options.noise.period);
    app->add_option("--noise-seed", options.noise.seed);
    app->add_option("--link-latency-us", options.rig.pace.latency_us);
    DeclareEngine(&options.rig.engine, &state.relay_settings);
    DeclareEngineLab(&options.rig.lab, &state.relay_settings);
    state.relay_flags.AddTo(app, {"model.dtype", "model.isa", "model.page_tokens",
                                  "model.weight_cache", "kv.dtype", "lab.attention"});
    app->add_option("--part-tokens", options.rig.engine.limits.max_step_tokens);
    state.relay_rank = bench->add_subcommand("relay-rank", "")->group("");
  }
  {
    TransferBenchOptions& options = state.transfer_options;
    CLI::App* app = state.transfer = add("transfer", &options.json);
    app->add_flag("--macs", options.macs);
    app->add_option("--host", options.host);
    app->add_option("--transport", options.transport)
        ->transform(CLI::CheckedTransformer(std::map<std::string, KvTransport>(
            std::begin(kTransportNames), std::end(kTransportNames))));
    AddSeconds(app, &options.seconds);
  }
}

absl::Status BenchCommandLine::Apply() {
  RETURN_IF_ERROR(state_->step_flags.Apply());
  RETURN_IF_ERROR(state_->relay_flags.Apply());
  if (!state_->step->parsed() || !state_->model.path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("bench step needs a MODEL; see baton bench --help");
}

std::function<int()> BenchCommandLine::Chosen() const {
  const std::shared_ptr<State> state = state_;
  if (state->load->parsed()) return [state] { return state->RunLoad(); };
  if (state->interference->parsed()) {
    return [state] { return RunInterferenceBench(state->interference_options); };
  }
  if (state->step->parsed()) return [state] { return state->RunStep(); };
  if (state->kernels->parsed()) return [state] { return state->RunKernels(); };
  if (state->attention->parsed()) return [state] { return state->RunAttention(); };
  if (state->grammar->parsed()) return [state] { return state->RunGrammar(); };
  if (state->relay->parsed()) {
    return [state] { return state->RunRelay(); };
  }
  if (state->relay_rank->parsed()) return [] { return RunRelayRank(); };
  if (state->transfer->parsed()) {
    return [state] { return Fail(RunTransferBench(state->transfer_options)); };
  }
  return nullptr;
}

}  // namespace baton
