#include "server/api/served_model.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/request_limits.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/model/model_path.h"
#include "engine/model/text_file.h"
#include "server/api/content_parts.h"
#include "server/api/json_document.h"
#include "server/api/model_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kMaxDefaultsBytes = 1 << 20;
// Leaves the client half of the biases that travel with a request.
constexpr auto kMaxIdsWithoutToken = static_cast<size_t>(RequestLimits::kLogitBiases.max) / 2;

// Sampling defaults; a missing file is fine, a broken one is not.
absl::Status ReadGenerationDefaults(const fs::path& folder, ServedModel* model) {
  const fs::path path = folder / "generation_config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxDefaultsBytes));
  const auto document = ParseJson(text);
  const json::object* fields = document.ok() ? document->if_object() : nullptr;
  if (fields == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON object"));
  }
  const auto number = [&](const char* name, double min, double max, double* out) {
    const json::value* value = fields->if_contains(name);
    if (value == nullptr || !value->is_number()) return;
    const double given = value->to_number<double>();
    if (given >= min && given <= max) *out = given;
  };
  double top_k = 0;
  number("temperature", RequestLimits::kTemperature.min, RequestLimits::kTemperature.max,
         &model->temperature);
  number("min_p", RequestLimits::kMinP.min, RequestLimits::kMinP.max, &model->min_p);
  number("repetition_penalty", RequestLimits::kRepetitionPenalty.min,
         RequestLimits::kRepetitionPenalty.max, &model->repetition_penalty);
  number("top_p", RequestLimits::kTopP.min, RequestLimits::kTopP.max, &model->top_p);
  number("top_k", 0, 1e6, &top_k);
  model->top_k = static_cast<int32_t>(top_k);
  return absl::OkStatus();
}

// In the order of their first places.
std::vector<int32_t> WithoutRepeats(const std::vector<int32_t>& ids) {
  absl::flat_hash_set<int32_t> seen;
  std::vector<int32_t> once;
  for (const int32_t id : ids)
    if (seen.insert(id).second) once.push_back(id);
  return once;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const ModelConfig& config) {
  auto model = std::make_unique<ServedModel>();
  ASSIGN_OR_RETURN(const ModelDesc desc, ReadModelDesc(config.path));
  if (ParseModelPath(config.path).form != ModelForm::kRandom) {
    ASSIGN_OR_RETURN(model->tokenizer, LoadTokenizer(config.path));
    auto chat = LoadChatTemplate(config.path, *model->tokenizer);
    if (chat.ok()) {
      model->chat_template = *std::move(chat);
      model->template_takes_parts = TakesParts(*model->chat_template);
      model->answer_format = FindAnswerFormat(*model->chat_template);
    } else if (!absl::IsNotFound(chat.status())) {
      return chat.status();
    }
    RETURN_IF_ERROR(ReadGenerationDefaults(config.path, model.get()));
  }
  model->aliases = ServedNames(config.name.empty() ? desc.name : config.name);
  model->name = model->aliases.front();
  model->aliases.erase(model->aliases.begin());
  model->created = absl::ToUnixSeconds(absl::Now());
  model->vocab = desc.vocab;
  if (model->tokenizer != nullptr) {
    if (const absl::Status found = model->FindIdsWithoutToken(); !found.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(config.path, ": ", std::string(found.message())));
  }
  model->n_parameters = desc.n_parameters();
  model->eos_tokens = WithoutRepeats(desc.eos_tokens);
  if (const absl::Status fits =
          CheckLimit(RequestLimits::kEosTokens, static_cast<double>(model->eos_tokens.size()));
      !fits.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, ": eos_token_id: ", std::string(fits.message())));
  if (model->tokenizer != nullptr)
    model->grammars = std::make_unique<GrammarCompiler>(model->tokenizer.get(), model->eos_tokens);
  model->max_context = std::min<int64_t>(desc.max_positions, RequestLimits::kContextTokens);
  if (config.max_context > 0) {
    if (config.max_context > desc.max_model_context()) {
      return absl::InvalidArgumentError(absl::StrCat("model.max_context: ", config.max_context,
                                                     " is more than the ", desc.max_model_context(),
                                                     " positions of ", config.path, "; lower it"));
    }
    model->max_context = std::min<int64_t>(config.max_context, RequestLimits::kContextTokens);
  }
  return model;
}

// Logits may be wider than the vocabulary, and the vocabulary may have holes.
absl::Status ServedModel::FindIdsWithoutToken() {
  if (tokenizer->vocab_size() < vocab) vocab_end = tokenizer->vocab_size();
  const int32_t end = std::min(tokenizer->vocab_size(), vocab);
  for (int32_t id = 0; id < end; ++id)
    if (!tokenizer->IsToken(id)) ids_without_token.push_back(id);
  if (ids_without_token.size() <= kMaxIdsWithoutToken) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the tokenizer has no token for ", ids_without_token.size(), " of the ids below ", end,
      ", and at most ", kMaxIdsWithoutToken, " can be kept from being drawn"));
}

bool ServedModel::IsCalled(const std::string& model) const {
  return model.empty() || model == name || name == "*" ||
         std::find(aliases.begin(), aliases.end(), model) != aliases.end();
}

absl::Duration TextMoment::left() const { return deadline - MonotonicNow(); }

TextMoment ServedModel::BeginText() const {
  return {.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone()),
          .deadline = MonotonicNow() + text_limit};
}

}  // namespace baton
