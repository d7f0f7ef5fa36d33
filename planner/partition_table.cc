#include "planner/partition_table.h"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxRanks = 64;
constexpr double kSumSlack = 1e-3;  // ratios are written with few digits

// Throws YAML::Exception at the field's line.
[[noreturn]] void Refuse(const YAML::Node& node, const std::string& what) {
  throw YAML::Exception(node.Mark(), what);
}

template <typename Value>
Value Field(const YAML::Node& map, const char* field) {
  const YAML::Node node = map[field];
  if (!node) Refuse(map, absl::StrCat(field, " is missing"));
  try {
    return node.as<Value>();
  } catch (const YAML::Exception&) {
    Refuse(node, absl::StrCat(field, " has the wrong type"));
  }
}

PartitionEntry ReadEntry(const YAML::Node& node, int ranks, double after) {
  if (!node.IsMap()) Refuse(node, "an entry is {tokens: ..., ratios: [...]}");
  PartitionEntry entry{.tokens = Field<double>(node, "tokens"),
                       .ratios = Field<std::vector<double>>(node, "ratios")};
  if (!(entry.tokens > after && std::isfinite(entry.tokens)))
    Refuse(node, absl::StrFormat("tokens is %g, must be more than %g, of the entry before it",
                                 entry.tokens, after));
  if (entry.ratios.size() != static_cast<size_t>(ranks))
    Refuse(node, absl::StrFormat("%d ratios of %d ranks", entry.ratios.size(), ranks));
  double sum = 0;
  for (const double ratio : entry.ratios) {
    if (!(ratio > 0)) Refuse(node, absl::StrFormat("a ratio is %g, must be more than 0", ratio));
    sum += ratio;
  }
  if (!(std::abs(sum - 1) <= kSumSlack))
    Refuse(node, absl::StrFormat("the ratios add up to %g, must be 1", sum));
  for (double& ratio : entry.ratios) ratio /= sum;
  return entry;
}

// Reads a finite number that is not negative.
double Amount(const YAML::Node& map, const char* field) {
  const double value = Field<double>(map, field);
  if (!(value >= 0 && std::isfinite(value)))
    Refuse(map[field], absl::StrFormat("%s is %g, must be 0 or more", field, value));
  return value;
}

// Reads an integer of 1 or more.
int Count(const YAML::Node& map, const char* field) {
  const int value = Field<int>(map, field);
  if (value < 1) Refuse(map[field], absl::StrCat(field, " must be 1 or more"));
  return value;
}

PrefillCost ReadCost(const YAML::Node& node) {
  PrefillCost cost;
  cost.n_layers = Count(node, "layers");
  cost.token = Amount(node, "token");
  if (!(cost.token > 0)) Refuse(node["token"], "token must be more than 0");
  cost.pair = Amount(node, "pair");
  cost.extra_tokens = Amount(node, "extra_tokens");
  cost.min_linear = Amount(node, "least_linear");
  cost.head = Amount(node, "head");
  cost.kv_bytes = Amount(node, "kv_bytes");
  const auto kernel = Field<std::string>(node, "attention");
  if (kernel != "causal" && kernel != "dense_mask")
    Refuse(node["attention"], "attention must be causal or dense_mask");
  cost.kernel = kernel == "causal" ? PairKernel::kCausal : PairKernel::kDenseMask;
  return cost;
}

void WriteCost(const PrefillCost& cost, int threads, YAML::Emitter& out) {
  const auto field = [&](const char* name, const auto& value) {
    out << YAML::Key << name << YAML::Value << value;
  };
  out << YAML::Key << "cost" << YAML::Value << YAML::Flow << YAML::BeginMap;
  field("threads", threads);
  field("layers", cost.n_layers);
  field("token", cost.token);
  field("pair", cost.pair);
  field("extra_tokens", cost.extra_tokens);
  field("least_linear", cost.min_linear);
  field("head", cost.head);
  field("kv_bytes", cost.kv_bytes);
  field("attention", cost.kernel == PairKernel::kCausal ? "causal" : "dense_mask");
  out << YAML::EndMap;
}

PartitionTable ReadTable(const YAML::Node& file) {
  if (!file.IsMap()) Refuse(file, "a partition table has model_fingerprint, numerics_id, ranks");
  PartitionTable table;
  table.model = Field<std::string>(file, "model");
  const auto fingerprint = Field<std::string>(file, "model_fingerprint");
  if (!absl::SimpleHexAtoi(fingerprint, &table.model_fingerprint))
    Refuse(file["model_fingerprint"], "model_fingerprint must be hex digits");
  table.numerics_id = Field<std::string>(file, "numerics_id");
  if (const YAML::Node cost = file["cost"]) {
    if (!cost.IsMap()) Refuse(cost, "cost is {threads: ..., layers: ..., token: ..., ...}");
    table.cost = ReadCost(cost);
    table.cost_threads = Count(cost, "threads");
  }
  const YAML::Node of_ranks = file["ranks"];
  if (!of_ranks || !of_ranks.IsMap()) Refuse(file, "ranks is missing, or has no numbers of ranks");
  for (const auto& group : of_ranks) {
    const int ranks = group.first.as<int>(0);
    if (ranks < 2 || ranks > kMaxRanks || !group.second.IsSequence() || group.second.size() == 0)
      Refuse(group.first, absl::StrFormat("ranks must be from 2 to %d, with entries", kMaxRanks));
    std::vector<PartitionEntry>& entries = table.of_ranks[ranks];
    for (const YAML::Node& entry : group.second)
      entries.push_back(ReadEntry(entry, ranks, entries.empty() ? 0 : entries.back().tokens));
  }
  return table;
}

}  // namespace

std::vector<double> PartitionTable::Slices(double tokens, int ranks) const {
  const auto entries = of_ranks.find(ranks);
  if (entries == of_ranks.end()) return {};
  std::vector<double> slices = InterpolateRatios(entries->second, tokens);
  for (double& slice : slices) slice *= tokens;
  return slices;
}

absl::StatusOr<PrefillCost> CostFor(const CostUser& user, const PartitionTable& table,
                                    const std::string& origin) {
  const auto refuse = [&](const std::string& why, const std::string& change) {
    return absl::FailedPreconditionError(absl::StrCat(origin, ": its costs ", why, ": ", change,
                                                      ", or leave prefill.cost_file empty"));
  };
  if (!table.cost.has_value()) return refuse("are missing", "write it with baton tune");
  if (table.model_fingerprint != user.model_fingerprint || table.numerics_id != user.numerics_id ||
      table.cost->n_layers != user.n_layers)
    return refuse(absl::StrFormat(
                      "are of model %s (%016x, %s, %d layers), this worker has %016x, %s, %d "
                      "layers",
                      table.model, table.model_fingerprint, table.numerics_id, table.cost->n_layers,
                      user.model_fingerprint, user.numerics_id, user.n_layers),
                  "tune it with this model and its dtype (baton tune)");
  if (table.cost_threads != user.threads)
    return refuse(absl::StrFormat("are of a worker with %d threads, this one has %d",
                                  table.cost_threads, user.threads),
                  absl::StrFormat("tune it for so many (baton tune --threads-per-rank %d), or "
                                  "change prefill.threads",
                                  user.threads));
  return *table.cost;
}

absl::StatusOr<PartitionTable> ParsePartitionTable(const std::string& yaml,
                                                   const std::string& origin) {
  if (yaml.size() > kMaxBytes)
    return absl::InvalidArgumentError(absl::StrCat(origin, ": longer than 1 MiB"));
  try {  // yaml-cpp reports by exceptions; none leaves this function
    return ReadTable(YAML::Load(yaml));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ":", error.mark.line + 1, ": ", error.msg));
  }
}

std::string PartitionTableText(const PartitionTable& table) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "model" << YAML::Value << table.model;
  out << YAML::Key << "model_fingerprint" << YAML::Value << YAML::DoubleQuoted
      << absl::StrFormat("%016x", table.model_fingerprint);
  out << YAML::Key << "numerics_id" << YAML::Value << table.numerics_id;
  if (table.cost.has_value()) WriteCost(*table.cost, table.cost_threads, out);
  out << YAML::Key << "ranks" << YAML::Value << YAML::BeginMap;
  for (const auto& [ranks, entries] : table.of_ranks) {
    out << YAML::Key << ranks << YAML::Value << YAML::BeginSeq;
    for (const PartitionEntry& entry : entries)
      out << YAML::Flow << YAML::BeginMap << YAML::Key << "tokens" << YAML::Value << entry.tokens
          << YAML::Key << "ratios" << YAML::Value << YAML::Flow << entry.ratios << YAML::EndMap;
    out << YAML::EndSeq;
  }
  out << YAML::EndMap << YAML::EndMap;
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace baton
