#include "engine/model/quantization_desc.h"

#include <boost/json.hpp>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/model/json_fields.h"

namespace baton {
namespace {

constexpr int64_t kMaxGroup = 1 << 18;
constexpr size_t kMaxGroups = 64;  // config_groups

// Reads a group size; -1 means one group for all inputs.
int64_t ReadGroupSize(JsonFields& fields, int fallback) {
  const int group = fields.IntOr("group_size", fallback, -1, kMaxGroup);
  if (group == 0) fields.Refuse("group_size", "it must be -1 or above 0");
  return group > 0 ? group : 0;
}

void CheckBits(JsonFields& fields, std::string_view field, int bits, std::span<const int> known) {
  std::string names;
  for (const int candidate : known) {
    if (bits == candidate) return;
    absl::StrAppend(&names, names.empty() ? "" : ", ", candidate);
  }
  fields.Refuse(field, absl::StrCat("supported: ", names));
}

// Returns the value in lower case if it is one of `known`.
std::string OneOf(JsonFields& fields, std::string_view field, std::string_view fallback,
                  std::span<const std::string_view> known) {
  const std::string value = absl::AsciiStrToLower(fields.StringOr(field, fallback));
  std::string names;
  for (const std::string_view candidate : known) {
    if (value == candidate) return value;
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(candidate));
  }
  fields.Refuse(field, absl::StrCat("supported: ", names));
  return std::string(known[0]);
}

// The first version of the format stores zero points minus one.
QuantScheme ReadGptq(JsonFields& fields) {
  constexpr int kBits[] = {2, 4, 8};
  constexpr std::string_view kFormats[] = {"gptq", "gptq_v2"};
  QuantScheme scheme;
  scheme.layout = CodeLayout::kGptq;
  scheme.bits = fields.Int("bits", 1, 32);
  CheckBits(fields, "bits", scheme.bits, kBits);
  scheme.group = ReadGroupSize(fields, 128);
  scheme.has_zeros = true;
  const std::string_view format = fields.Has("checkpoint_format") ? "checkpoint_format" : "format";
  scheme.zeros_less_one = OneOf(fields, format, "gptq", kFormats) == "gptq";
  scheme.needs_group_index = fields.BoolOr("desc_act", false);
  // Rules for single modules: rules that exclude modules ("-:pattern") are visible in the tensors;
  // other rules would change bits or groups.
  const boost::json::value* dynamic = fields.Find("dynamic");
  if (dynamic != nullptr && dynamic->is_object()) {
    for (const boost::json::key_value_pair& rule : dynamic->get_object()) {
      if (!rule.key().starts_with("-:")) fields.Refuse("dynamic", "supported: rules with \"-:\"");
    }
  }
  return scheme;
}

QuantScheme ReadAwq(JsonFields& fields) {
  constexpr int kBits[] = {4};
  constexpr std::string_view kVersions[] = {"gemm"};
  QuantScheme scheme;
  scheme.layout = CodeLayout::kAwq;
  scheme.bits = fields.Int("bits", 1, 32);
  CheckBits(fields, "bits", scheme.bits, kBits);
  scheme.group = ReadGroupSize(fields, 128);
  scheme.has_zeros = true;
  OneOf(fields, "version", "gemm", kVersions);
  if (!fields.BoolOr("zero_point", true)) fields.Refuse("zero_point", "supported: true");
  return scheme;
}

// [rows, columns] of the blocks that share a scale.
void ReadBlock(JsonFields& fields, std::string_view field, QuantScheme& scheme) {
  const std::vector<int32_t> block = fields.IntsOr(field, 1, kMaxGroup);
  if (block.size() != 2) {
    fields.Refuse(field, "it must be [rows, columns]");
    return;
  }
  scheme.block_rows = block[0];
  scheme.group = block[1];
}

QuantScheme ReadFp8(JsonFields& fields) {
  constexpr std::string_view kNumbers[] = {"e4m3", "float8_e4m3fn"};
  QuantScheme scheme;
  scheme.layout = CodeLayout::kFp8;
  scheme.bits = 8;
  scheme.block_rows = 0;
  OneOf(fields, "fmt", "e4m3", kNumbers);
  if (fields.Has("weight_block_size")) ReadBlock(fields, "weight_block_size", scheme);
  return scheme;
}

// ---- compressed-tensors ----

void ReadStrategy(JsonFields& weights, QuantScheme& scheme) {
  constexpr std::string_view kStrategies[] = {"tensor", "channel", "group", "block"};
  // The default strategy follows from the group size.
  const int64_t group = weights.Has("group_size") ? ReadGroupSize(weights, -1) : 0;
  const std::string_view fallback = group > 0                   ? "group"
                                    : weights.Has("group_size") ? "channel"
                                                                : "tensor";
  const std::string strategy = OneOf(weights, "strategy", fallback, kStrategies);
  if (strategy == "tensor") {
    scheme.block_rows = 0;
  } else if (strategy == "group") {
    if (!weights.Has("group_size")) weights.Refuse("group_size", "strategy group needs it");
    scheme.group = group;
  } else if (strategy == "block") {
    ReadBlock(weights, "block_structure", scheme);
  }
}

// Activation order "group" (called dynamic by newer versions) stores the group of each input; with
// "weight" (static) groups are consecutive columns.
void ReadActivationOrder(JsonFields& weights, QuantScheme& scheme) {
  constexpr std::string_view kOrders[] = {"weight", "static", "group", "dynamic"};
  const boost::json::value* order = weights.Find("actorder");
  if (order == nullptr) return;
  if (order->is_bool()) {
    scheme.needs_group_index = order->get_bool();
  } else {
    const std::string name = OneOf(weights, "actorder", "weight", kOrders);
    scheme.needs_group_index = name == "group" || name == "dynamic";
  }
}

QuantScheme ReadWeights(JsonFields& weights, std::string format) {
  constexpr int kIntBits[] = {4, 8}, kFloatBits[] = {8};
  constexpr std::string_view kTypes[] = {"int", "float"};
  QuantScheme scheme;
  const bool is_int = OneOf(weights, "type", "int", kTypes) == "int";
  if (format == "naive-quantized") format = is_int ? "int-quantized" : "float-quantized";
  if (is_int != (format != "float-quantized")) {
    weights.Refuse("type", absl::StrCat("format ", format, " stores the other type"));
  }
  scheme.bits = weights.IntOr("num_bits", 8, 1, 32);
  if (is_int) {
    CheckBits(weights, "num_bits", scheme.bits, kIntBits);
    scheme.layout = format == "pack-quantized" ? CodeLayout::kPacked : CodeLayout::kInt8;
    scheme.has_zeros = !weights.BoolOr("symmetric", true);
  } else {
    CheckBits(weights, "num_bits", scheme.bits, kFloatBits);
    scheme.layout = CodeLayout::kFp8;
    if (!weights.BoolOr("symmetric", true)) weights.Refuse("symmetric", "type float needs true");
  }
  ReadStrategy(weights, scheme);
  ReadActivationOrder(weights, scheme);
  if (scheme.layout == CodeLayout::kPacked && scheme.has_zeros && scheme.block_rows != 1) {
    weights.Refuse("strategy", "packed zero points need channel or group");
  }
  return scheme;
}

// One of config_groups: {targets, weights, input_activations, output_activations, format}.
absl::Status ReadGroup(const boost::json::value& value, const std::string& where,
                       const std::string& config_format, QuantizationDesc& desc) {
  constexpr std::string_view kFormats[] = {"pack-quantized", "int-quantized", "float-quantized",
                                           "naive-quantized"};
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": supported: an object with \"weights\""));
  }
  JsonFields group(value.get_object(), where);
  const boost::json::value* weights = group.Find("weights");
  if (weights == nullptr) return absl::OkStatus();  // activations only
  const std::string format = OneOf(group, "format", config_format, kFormats);
  if (!weights->is_object()) group.Refuse("weights", "it must be an object");
  RETURN_IF_ERROR(group.status());
  JsonFields fields(weights->get_object(), absl::StrCat(where, ": weights"));
  desc.schemes.push_back(ReadWeights(fields, format));
  return fields.status();
}

// Refuses weights that are also sparse or rotated.
void RefuseTransforms(JsonFields& fields) {
  for (const std::string_view field : {"sparsity_config", "transform_config"}) {
    const boost::json::value* value = fields.Find(field);
    if (value == nullptr || !value->is_object() || value->get_object().empty()) continue;
    const boost::json::value* format = value->get_object().if_contains("format");
    if (format == nullptr || *format != "dense") fields.Refuse(field, "supported: none");
  }
}

absl::Status ReadCompressedTensors(JsonFields& fields, const std::string& where,
                                   QuantizationDesc& desc) {
  RefuseTransforms(fields);
  const boost::json::value* groups = fields.Find("config_groups");
  const bool is_object = groups != nullptr && groups->is_object() &&
                         !groups->get_object().empty() && groups->get_object().size() <= kMaxGroups;
  if (!is_object) fields.Refuse("config_groups", "it must be an object of 1 to 64 groups");
  const std::string format = fields.StringOr("format", "");
  RETURN_IF_ERROR(fields.status());
  for (const boost::json::key_value_pair& group : groups->get_object()) {
    const std::string name(group.key().data(), group.key().size());
    RETURN_IF_ERROR(
        ReadGroup(group.value(), absl::StrCat(where, ": config_groups: ", name), format, desc));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizationDesc> ReadQuantization(const boost::json::object& config,
                                                  const std::string& origin) {
  JsonFields whole(config, origin);
  const std::string field =
      whole.Has("quantization_config") ? "quantization_config" : "compression_config";
  const boost::json::value* value = whole.Find(field);
  QuantizationDesc desc;
  if (value == nullptr) return desc;
  if (!value->is_object()) {
    whole.Refuse(field, "it must be an object with quant_method");
    return whole.status();
  }
  constexpr std::string_view kMethods[] = {"gptq", "awq", "compressed-tensors", "fp8"};
  const std::string where = absl::StrCat(origin, ": ", field);
  JsonFields fields(value->get_object(), where);
  const std::string method = OneOf(fields, "quant_method", "", kMethods);
  RETURN_IF_ERROR(fields.status());
  if (method == "gptq") desc.schemes.push_back(ReadGptq(fields));
  if (method == "awq") desc.schemes.push_back(ReadAwq(fields));
  if (method == "fp8") desc.schemes.push_back(ReadFp8(fields));
  if (method == "compressed-tensors") RETURN_IF_ERROR(ReadCompressedTensors(fields, where, desc));
  RETURN_IF_ERROR(fields.status());
  return desc;
}

}  // namespace baton
