#include "text/chat_template.h"

#include <boost/json.hpp>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/final_message.h"
#include "text/native.h"

namespace baton {

struct NativeTemplate {
  baton_template* handle;
};

namespace {

namespace json = boost::json;

// Conversations of thousands of messages stay far below this limit (chat_template_test), which is
// reached after about a second.
constexpr uint64_t kFuel = 20'000'000;
constexpr size_t kMaxBytes = 64 << 20;

absl::StatusOr<json::object> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, native::ReadFile(path));
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must be a JSON object (", error.message(), ")"));
  return std::move(value.as_object());
}

// Returns every "..._token" of tokenizer_config.json that is a text, or an object with its text as
// "content".
std::string SpecialTokens(const json::object& config) {
  json::object tokens;
  for (const auto& [name, value] : config) {
    const std::string_view key(name.data(), name.size());
    if (!key.ends_with("_token")) continue;
    const json::value* text = &value;
    if (value.is_object()) text = value.as_object().if_contains("content");
    if (text != nullptr && text->is_string()) tokens[name] = *text;
  }
  return json::serialize(tokens);
}

struct Sources {
  std::string standard;
  std::string tool_use;  // empty: none
};

absl::StatusOr<Sources> SourcesFrom(const json::value& value, const std::string& where) {
  if (value.is_string()) return Sources{std::string(value.as_string()), ""};
  Sources sources;
  if (value.is_array()) {
    for (const json::value& entry : value.as_array()) {
      const json::object* object = entry.if_object();
      const json::value* name = object == nullptr ? nullptr : object->if_contains("name");
      const json::value* source = object == nullptr ? nullptr : object->if_contains("template");
      if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string())
        continue;
      if (name->as_string() == "default") sources.standard = std::string(source->as_string());
      if (name->as_string() == "tool_use") sources.tool_use = std::string(source->as_string());
    }
  }
  if (sources.standard.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": chat_template must be a text, or a list of {name, template} with a \"default\""));
  return sources;
}

absl::StatusOr<Sources> FindSources(const std::string& folder, const json::object& config) {
  const std::string jinja = folder + "/chat_template.jinja";
  if (std::filesystem::exists(jinja)) {
    ASSIGN_OR_RETURN(std::string source, native::ReadFile(jinja));
    return Sources{std::move(source), ""};
  }
  const std::string own = folder + "/chat_template.json";
  if (std::filesystem::exists(own)) {
    ASSIGN_OR_RETURN(const json::object object, ReadObject(own));
    if (const json::value* value = object.if_contains("chat_template"))
      return SourcesFrom(*value, own);
  }
  const json::value* value = config.if_contains("chat_template");
  if (value == nullptr || value->is_null())
    return absl::NotFoundError(
        absl::StrCat(folder, ": no chat template (chat_template.jinja, or chat_template in ",
                     "tokenizer_config.json): only completions can be served"));
  return SourcesFrom(*value, folder + "/tokenizer_config.json");
}

absl::StatusOr<NativeTemplate*> Compile(std::string_view source, std::string_view special_tokens,
                                        std::string_view control_tokens) {
  native::Bytes error;
  baton_template* handle = nullptr;
  RETURN_IF_ERROR(native::ToStatus(
      baton_template_new(native::View(source), native::View(special_tokens),
                         native::View(control_tokens), kFuel, kMaxBytes, &handle, error.out()),
      error));
  return new NativeTemplate{handle};
}

PromptText Taken(const baton_rendered_prompt& rendered) {
  PromptText prompt;
  prompt.text = native::Bytes(rendered.text).view();
  prompt.controls.emplace(rendered.controls.size / 2);
  for (size_t i = 0; i < prompt.controls->size(); ++i)
    (*prompt.controls)[i] = {rendered.controls.data[2 * i], rendered.controls.data[2 * i + 1]};
  baton_offsets_free(rendered.controls);
  return prompt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::FromFolder(
    const std::string& folder, std::string_view control_tokens) {
  const std::string config_path = folder + "/tokenizer_config.json";
  json::object config;
  if (std::filesystem::exists(config_path)) {
    ASSIGN_OR_RETURN(config, ReadObject(config_path));
  }
  ASSIGN_OR_RETURN(const Sources sources, FindSources(folder, config));
  const std::string special_tokens = SpecialTokens(config);
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(folder, ": ", status.message()));
  };
  auto chat = FromSource(sources.standard, special_tokens, control_tokens);
  if (!chat.ok()) return named(chat.status());
  if (!sources.tool_use.empty()) {
    const auto tool_use = Compile(sources.tool_use, special_tokens, control_tokens);
    if (!tool_use.ok()) return named(tool_use.status());
    (*chat)->tool_use_ = *tool_use;
  }
  return chat;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::FromSource(
    std::string_view source, std::string_view special_tokens, std::string_view control_tokens) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate);
  ASSIGN_OR_RETURN(chat->default_, Compile(source, special_tokens, control_tokens));
  return chat;
}

ChatTemplate::~ChatTemplate() {
  for (const NativeTemplate* native : {default_, tool_use_}) {
    if (native != nullptr) baton_template_free(native->handle);
    delete native;
  }
}

absl::StatusOr<PromptText> ChatTemplate::Render(const ChatTemplateInput& input) const {
  FinalMessage final_message;
  std::string_view messages = input.messages;
  if (input.continue_final_message) {
    ASSIGN_OR_RETURN(final_message, FinalMessage::MarkIn(input.messages));
    messages = final_message.messages();
  }
  baton_template_input native = {};
  native.messages = native::View(messages);
  native.tools = native::View(input.tools);
  native.documents = native::View(input.documents);
  native.variables = native::View(input.variables);
  native.add_generation_prompt = input.add_generation_prompt;
  native.year = static_cast<int32_t>(input.now.year());
  native.month = input.now.month();
  native.day = input.now.day();
  native.hour = input.now.hour();
  native.minute = input.now.minute();
  native.second = input.now.second();
  native.limit_ns = native::LimitNs(input.limit);
  const NativeTemplate* chosen =
      tool_use_ != nullptr && !input.tools.empty() ? tool_use_ : default_;
  native::Bytes error;
  baton_rendered_prompt rendered = {};
  RETURN_IF_ERROR(native::ToStatus(
      baton_template_render(chosen->handle, &native, &rendered, error.out()), error));
  PromptText prompt = Taken(rendered);
  if (input.continue_final_message) {
    ASSIGN_OR_RETURN(prompt.text, final_message.CutAfter(prompt.text));
    prompt.continued = final_message.LengthIn(prompt.text);
    std::erase_if(*prompt.controls,
                  [&](const PromptText::Place& place) { return place.end > prompt.text.size(); });
  }
  return prompt;
}

}  // namespace baton
