#include "server/api/served_model.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/request_limits.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/model/model_path.h"
#include "engine/model/text_file.h"
#include "server/api/json_document.h"
#include "server/api/model_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kMaxDefaultsBytes = 1 << 20;
constexpr int64_t kDefaultCompletionTokens = 16;  // as in OpenAI's description

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
  number("top_p", RequestLimits::kTopP.min, RequestLimits::kTopP.max, &model->top_p);
  number("top_k", 0, 1e6, &top_k);
  model->top_k = static_cast<int32_t>(top_k);
  return absl::OkStatus();
}

std::string ContextMessage(int64_t max, int64_t out, int64_t in) {
  return absl::StrCat(
      "This model's maximum context length is ", max, " tokens. However, you requested ", out,
      " output tokens and your prompt contains ", in, " input tokens, for a total of ", in + out,
      " tokens. Please reduce the length of the input prompt or the number of "
      "requested output tokens.");
}

ApiError ContextError(const std::string& param, int64_t max, int64_t out, int64_t in) {
  ApiError error = InvalidField(param, ContextMessage(max, out, in), "context_length_exceeded");
  error.n_prompt_tokens = in;
  error.n_ctx = max;
  return error;
}

// The text of the prompt, templates rendered.
std::optional<ApiError> PromptText(const ServedModel& model, const ApiRequest& request,
                                   absl::CivilSecond now, std::string* text) {
  if (request.endpoint == Endpoint::kCompletions) {
    *text = *request.prompt_text;
    return std::nullopt;
  }
  if (model.chat_template == nullptr) {
    return Unsupported("messages", absl::StrCat("The model `", model.name,
                                                "` has no chat template; use /v1/completions."));
  }
  ChatTemplateInput input;
  input.messages = request.messages;
  input.tools = request.tools;
  input.variables = request.template_variables;
  input.add_generation_prompt = request.add_generation_prompt;
  input.now = now;
  auto rendered = model.chat_template->Render(input);
  if (!rendered.ok()) return InvalidField("messages", std::string(rendered.status().message()));
  *text = *std::move(rendered);
  return std::nullopt;
}

std::optional<ApiError> Tokenize(const ServedModel& model, const ApiRequest& request,
                                 const std::string& param, int64_t max_context,
                                 absl::CivilSecond now, std::vector<int32_t>* tokens) {
  if (model.tokenizer == nullptr) {
    return Unsupported(param, absl::StrCat("The model `", model.name,
                                           "` has no tokenizer; send `prompt` as token ids to "
                                           "/v1/completions."));
  }
  std::string text;
  if (auto problem = PromptText(model, request, now, &text)) return problem;
  if (text.empty()) return InvalidField(param, absl::StrCat(param, " must not be empty."));
  // Cheaper than tokenizing: so many bytes can not be so few tokens.
  const size_t longest = std::max<size_t>(1, model.tokenizer->longest_token_bytes());
  const auto min_tokens = static_cast<int64_t>(text.size() / longest);
  if (min_tokens > max_context) {
    return ContextError(param, max_context, request.max_tokens.value_or(1), min_tokens);
  }
  const bool add_special =
      request.add_special_tokens.value_or(request.endpoint == Endpoint::kCompletions);
  auto encoded = model.tokenizer->Encode(text, add_special);
  if (!encoded.ok()) return InvalidField(param, std::string(encoded.status().message()));
  *tokens = *std::move(encoded);
  if (tokens->empty()) return InvalidField(param, absl::StrCat(param, " has no tokens."));
  return std::nullopt;
}

std::optional<ApiError> CheckIds(const ServedModel& model, const std::vector<int32_t>& ids,
                                 const std::string& param) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.vocab) continue;
    const std::string path = absl::StrCat(param, "[", i, "]");
    return InvalidField(path, absl::StrCat(path, " must be a token id from 0 to ", model.vocab - 1,
                                           "; got ", ids[i], "."));
  }
  return std::nullopt;
}

// In the order of their first places.
std::vector<int32_t> WithoutRepeats(const std::vector<int32_t>& ids) {
  absl::flat_hash_set<int32_t> seen;
  std::vector<int32_t> once;
  for (const int32_t id : ids)
    if (seen.insert(id).second) once.push_back(id);
  return once;
}

SamplingParams Sampling(const ServedModel& model, const ApiRequest& request) {
  SamplingParams sampling;
  sampling.temperature = static_cast<float>(request.temperature.value_or(model.temperature));
  // Smaller values mean the same as the smallest one, and a float must not round to the forbidden
  // 0.
  sampling.top_p = std::max(static_cast<float>(request.top_p.value_or(model.top_p)),
                            static_cast<float>(RequestLimits::kTopP.min));
  sampling.top_k = static_cast<int32_t>(request.top_k.value_or(model.top_k));
  sampling.seed = request.seed ? static_cast<uint64_t>(*request.seed) : RandomId();
  return sampling;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const ModelConfig& config) {
  auto model = std::make_unique<ServedModel>();
  ASSIGN_OR_RETURN(const ModelDesc desc, ReadModelDesc(config.path));
  if (ParseModelPath(config.path).form != ModelForm::kRandom) {
    ASSIGN_OR_RETURN(model->tokenizer, LoadTokenizer(config.path));
    auto chat = LoadChatTemplate(config.path);
    if (chat.ok()) {
      model->chat_template = *std::move(chat);
    } else if (!absl::IsNotFound(chat.status())) {
      return chat.status();
    }
    RETURN_IF_ERROR(ReadGenerationDefaults(config.path, model.get()));
  }
  model->name = config.name.empty() ? desc.name : config.name;
  model->created = absl::ToUnixSeconds(absl::Now());
  model->vocab = desc.vocab;
  model->n_parameters = desc.n_parameters();
  model->eos_tokens = WithoutRepeats(desc.eos_tokens);
  if (const absl::Status fits =
          CheckLimit(RequestLimits::kEosTokens, static_cast<double>(model->eos_tokens.size()));
      !fits.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, ": eos_token_id: ", std::string(fits.message())));
  model->max_context = std::min<int64_t>(desc.max_positions, RequestLimits::kContextTokens);
  if (config.max_context > 0) {
    if (config.max_context > desc.max_model_context()) {
      return absl::InvalidArgumentError(absl::StrCat("model.max_context: ", config.max_context,
                                                     " is more than the ", desc.max_model_context(),
                                                     " positions of ", config.path, "; lower it"));
    }
    model->max_context = std::min<int64_t>(config.max_context, RequestLimits::kContextTokens);
  }
  model->system_fingerprint =
      absl::StrFormat("baton-%dx%d-%d", desc.n_layers, desc.hidden, desc.vocab);
  return model;
}

bool ServedModel::IsCalled(const std::string& model) const {
  return model.empty() || model == name || name == "*";
}

std::optional<ApiError> BuildGenerateRequest(const ServedModel& model, const ApiRequest& request,
                                             int64_t max_context, absl::CivilSecond now,
                                             GenerateRequest* out) {
  const bool is_chat = request.endpoint == Endpoint::kChat;
  const std::string param = is_chat ? "messages" : "prompt";
  if (max_context <= 0 || max_context > model.max_context) max_context = model.max_context;
  if (request.prompt_tokens) {
    if (auto problem = CheckIds(model, *request.prompt_tokens, param)) return problem;
    out->prompt = *request.prompt_tokens;
  } else if (auto problem = Tokenize(model, request, param, max_context, now, &out->prompt)) {
    return problem;
  }
  const auto n_prompt = static_cast<int64_t>(out->prompt.size());
  const int64_t room = max_context - n_prompt;
  const int64_t wanted = request.max_tokens.value_or(
      is_chat ? std::max<int64_t>(1, room)
              : std::min(kDefaultCompletionTokens, std::max<int64_t>(1, room)));
  if (wanted > room) {
    // A prompt that fits alone: the number asked for is what must change.
    const bool prompt_fits = n_prompt < max_context;
    return ContextError(prompt_fits && request.max_tokens ? "max_tokens" : param, max_context,
                        wanted, n_prompt);
  }
  out->max_tokens = static_cast<int32_t>(wanted);
  out->sampling = Sampling(model, request);
  if (auto problem = CheckIds(model, request.stop_token_ids, "stop_token_ids")) return problem;
  std::vector<int32_t> stops;
  if (!request.ignore_eos) stops = model.eos_tokens;
  stops.insert(stops.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  out->stop_tokens = WithoutRepeats(stops);
  out->want_digests = request.digests;
  return std::nullopt;
}

}  // namespace baton
