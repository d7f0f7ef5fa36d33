#include "engine/model/rope_fields.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr double kMinTheta = 2;  // at 1 all pairs would turn alike
constexpr double kMaxTheta = 1e12;
constexpr std::string_view kKindsOfLayers[] = {"full_attention", "sliding_attention"};

void ReadLlama3(JsonFields& scaling, RopeDesc& rope) {
  rope.low_freq_factor = scaling.Number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = scaling.Number("high_freq_factor", 1e-6, 1e6);
  rope.original_max_position_embeddings =
      scaling.Int("original_max_position_embeddings", 1, kMaxPositions);
  if (scaling.status().ok() && rope.high_freq_factor <= rope.low_freq_factor) {
    scaling.Refuse("high_freq_factor", "it must be above low_freq_factor");
  }
}

// The context is at least the scaled context of the original positions: published configs are
// served with yarn by adding rope_scaling alone.
void ReadYarn(JsonFields& scaling, RopeDesc& rope, ModelDesc& model) {
  rope.original_max_position_embeddings =
      scaling.IntOr("original_max_position_embeddings", model.max_positions, 1, kMaxPositions);
  rope.beta_fast = scaling.NumberOr("beta_fast", 32, 1e-6, 1e6);
  rope.beta_slow = scaling.NumberOr("beta_slow", 1, 1e-6, 1e6);
  rope.truncate = scaling.BoolOr("truncate", true);
  const double mscale = scaling.NumberOr("mscale", 0, 0, 1e3);
  const double mscale_all_dim = scaling.NumberOr("mscale_all_dim", 0, 0, 1e3);
  if (model.latent.rank > 0 && mscale_all_dim != 0) {
    model.score_scale *= std::pow(YarnScale(rope.factor, mscale_all_dim), 2);
  }
  rope.attention_factor = scaling.NumberOr(
      "attention_factor", YarnAttentionFactor(rope.factor, mscale, mscale_all_dim), 1e-6, 1e6);
  const double scaled = rope.original_max_position_embeddings * rope.factor;
  model.max_positions = static_cast<int>(std::min<double>(
      std::max<double>(scaled, model.max_positions), static_cast<double>(kMaxPositions)));
}

// A published config has original_max_position_embeddings beside rope_scaling; the factor is then
// the ratio of the two contexts.
void ReadLongrope(JsonFields& scaling, double original, RopeDesc& rope, const ModelDesc& model) {
  const size_t pairs = static_cast<size_t>(model.rotary_dim / 2);
  rope.short_factors = scaling.Numbers("short_factor", pairs, 1e-3, 1e6);
  rope.long_factors = scaling.Numbers("long_factor", pairs, 1e-3, 1e6);
  rope.factor = 1;
  if (original == 0) {
    original = scaling.NumberOr("original_max_position_embeddings", 0, 1, kMaxPositions);
  }
  if (original == 0) {
    scaling.Refuse("original_max_position_embeddings", "it must be an integer from 1");
    return;
  }
  rope.original_max_position_embeddings = original;
  rope.factor = std::max(1.0, model.max_positions / original);
  rope.attention_factor = scaling.NumberOr(
      "attention_factor", LongropeAttentionFactor(rope.factor, original), 1e-6, 1e6);
}

RopeDesc::Scaling ReadType(JsonFields& scaling) {
  using Scaling = RopeDesc::Scaling;
  const std::string_view field = scaling.Has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.StringOr(field, "default");
  const std::pair<std::string_view, Scaling> types[] = {
      {"default", Scaling::kNone}, {"llama3", Scaling::kLlama3},   {"linear", Scaling::kLinear},
      {"yarn", Scaling::kYarn},    {"dynamic", Scaling::kDynamic}, {"longrope", Scaling::kLongrope},
      {"su", Scaling::kLongrope}};
  for (const auto& [name, kind] : types) {
    if (type == name) return kind;
  }
  scaling.Refuse(field, "supported: default, llama3, linear, yarn, dynamic, longrope");
  return Scaling::kNone;
}

// Reads one rope_scaling or rope_parameters object. original: longrope's original positions, 0 if
// only the object has them.
void ReadScaling(JsonFields& scaling, double original, RopeDesc& rope, ModelDesc& model) {
  using Scaling = RopeDesc::Scaling;
  rope.theta = scaling.NumberOr("rope_theta", rope.theta, kMinTheta, kMaxTheta);
  rope.scaling = ReadType(scaling);
  if (rope.scaling == Scaling::kNone) return;
  if (rope.scaling == Scaling::kLongrope) return ReadLongrope(scaling, original, rope, model);
  rope.factor = scaling.Number("factor", 1, 1e6);
  if (rope.scaling == Scaling::kLlama3) ReadLlama3(scaling, rope);
  if (rope.scaling == Scaling::kYarn) ReadYarn(scaling, rope, model);
  if (rope.scaling == Scaling::kDynamic) {
    rope.original_max_position_embeddings = model.max_positions;
    rope.served_positions = model.max_positions;
  }
}

// Reads the rotated share of a head, which stands beside the scaling or inside it.
void ReadRotaryDim(JsonFields& fields, const Family& family, ModelDesc& model) {
  const double share = fields.NumberOr("partial_rotary_factor", 1, 0, 1);
  if (share == 1) return;
  model.rotary_dim = static_cast<int>(model.head_dim * share);
  if (!family.reads_partial_rotary) {
    fields.Refuse("partial_rotary_factor", "supported: 1");
  } else if (model.rotary_dim < 2 || model.rotary_dim % 2 != 0) {
    fields.Refuse("partial_rotary_factor",
                  absl::StrFormat("it must leave an even part of head_dim, %d", model.head_dim));
  }
}

absl::Status ReadObject(const boost::json::object& object, const std::string& where,
                        double original, const Family& family, RopeDesc& rope, ModelDesc& model) {
  JsonFields scaling(object, where);
  for (const std::string_view layers : kKindsOfLayers) {
    if (scaling.Has(layers)) scaling.Refuse(layers, "supported: one rope for all layers");
  }
  ReadRotaryDim(scaling, family, model);
  ReadScaling(scaling, original, rope, model);
  return scaling.status();
}

// transformers 5: rope_parameters has an object for each kind of layer.
absl::Status ReadTwoRopes(const boost::json::object& object, const std::string& where,
                          const Family& family, ModelDesc& model) {
  RopeDesc* const ropes[] = {&model.rope, &*model.window_rope};
  for (int i = 0; i < 2; ++i) {
    const boost::json::value* value = object.if_contains(
        boost::json::string_view(kKindsOfLayers[i].data(), kKindsOfLayers[i].size()));
    const std::string inner = absl::StrCat(where, ".", std::string(kKindsOfLayers[i]));
    if (value == nullptr || !value->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(inner, " must be an object with rope_type"));
    }
    RETURN_IF_ERROR(ReadObject(value->get_object(), inner, 0, family, *ropes[i], model));
  }
  return absl::OkStatus();
}

}  // namespace

// transformers 5: rope_parameters {rope_theta, rope_type, ...}. Before: rope_theta beside
// rope_scaling {rope_type or type, ...} or null; Gemma 3 also has rope_local_base_freq.
absl::Status ReadRope(JsonFields& config, const Family& family, const std::string& origin,
                      ModelDesc& model) {
  model.rotary_dim = model.head_dim;
  ReadRotaryDim(config, family, model);
  model.rope.theta = config.NumberOr("rope_theta", family.default_theta, kMinTheta, kMaxTheta);
  if (family.window_rope) {
    model.window_rope.emplace().theta =
        config.NumberOr("rope_local_base_freq", 10000, kMinTheta, kMaxTheta);
  }
  const double original = config.NumberOr("original_max_position_embeddings", 0, 1, kMaxPositions);
  const std::string_view field = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const boost::json::value* value = config.Find(field);
  if (value == nullptr || !config.status().ok()) return absl::OkStatus();
  if (!value->is_object()) {
    config.Refuse(field, "it must be an object with rope_type");
    return absl::OkStatus();
  }
  const boost::json::object& object = value->get_object();
  const std::string where = absl::StrCat(origin, ": ", std::string(field));
  if (family.window_rope && object.contains("full_attention")) {
    return ReadTwoRopes(object, where, family, model);
  }
  return ReadObject(object, where, original, family, model.rope, model);
}

}  // namespace baton
