#include "server/grpc/rpc_request.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "completion.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "server/api/json_document.h"
#include "server/api/json_writer.h"

namespace baton {
namespace {

using Problem = std::optional<ApiError>;

// The stream of a call has a form of its own, which these fields of HTTP would change.
constexpr std::string_view kUntold[] = {
    "stream",  "stream_options", "stream_interval",           "echo",
    "timings", "store",          "return_tokens_as_token_ids"};

// The body of an HTTP request, member by member. The first problem counts.
class BodyWriter {
 public:
  template <typename T>
  void Field(std::string_view name, const T& value) {
    json_.Field(name, value);
  }
  void Number(const char* name, double value) {
    if (std::isfinite(value)) {
      // As a client of HTTP would write it, so that errors show it alike.
      const bool is_integer = std::abs(value) < 1e9 && value == std::trunc(value);
      is_integer ? json_.Field(name, static_cast<int64_t>(value)) : json_.Field(name, value);
    } else {
      Fail(name, absl::StrCat(name, " must be a finite number; got ", value, "."));
    }
  }
  void Text(std::string_view name, const std::string& text) {
    if (!text.empty()) json_.Field(name, text);
  }
  void Flag(std::string_view name, bool value) {
    if (value) json_.Field(name, true);
  }
  template <typename List>
  void Items(std::string_view name, const List& list) {
    json_.Array(name, [&] {
      for (const auto& item : list) json_.Value(item);
    });
  }
  template <typename Fill>
  void Object(std::string_view name, const Fill& fill) {
    json_.Object(name, fill);
  }
  // path: of the object that the members of `text` join; empty: the body.
  void More(const std::string& path, const std::string& text) {
    if (text.empty()) return;
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", "more_fields_json");
    const auto document = ParseJson(text, name);
    if (!document.ok()) {
      Fail(name, std::string(document.status().message()));
    } else if (!document->is_object()) {
      Fail(name, absl::StrCat(name, " must be a JSON object."));
    } else {
      for (const auto& [key, value] : document->get_object()) {
        const std::string field(key.data(), key.size());
        if (path.empty() && std::count(std::begin(kUntold), std::end(kUntold), field) > 0)
          Fail(field, absl::StrCat(field, " belongs to the HTTP API; leave it out."));
        json_.JsonField(field, boost::json::serialize(value));
      }
    }
  }
  void Messages(const v1::Chat& chat) {
    json_.Array("messages", [&] {
      for (int i = 0; i < chat.messages_size(); ++i) {
        const v1::ChatMessage& message = chat.messages(i);
        json_.Object([&] {
          json_.Field("role", message.role());
          if (message.has_content()) json_.Field("content", message.content());
          More(absl::StrCat("messages[", i, "]"), message.more_fields_json());
        });
      }
    });
  }
  // Calls `fill` for the members; returns the whole body.
  template <typename Fill>
  Problem Write(const Fill& fill, std::string* json) {
    json_.Object(fill);
    *json = std::move(text_);
    return problem_;
  }

 private:
  void Fail(std::string path, std::string message) {
    if (!problem_) problem_ = InvalidField(std::move(path), std::move(message));
  }

  std::string text_;
  JsonWriter json_{&text_};
  Problem problem_;
};

template <typename Message>
Problem Read(std::string_view body, Message* message) {
  const google::protobuf::LogSilencer quiet;  // the error is the client's, who gets it
  if (message->ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
  return InvalidField("", absl::StrCat("The request is no ", message->GetTypeName(),
                                       ": it is cut, or a string in it is no UTF-8."));
}

void WriteInput(const v1::GenerateRequest& rpc, BodyWriter* body) {
  if (rpc.has_prompt()) body->Field("prompt", rpc.prompt());
  if (rpc.has_prompt_token_ids()) body->Items("prompt", rpc.prompt_token_ids().ids());
  if (rpc.has_chat()) body->Messages(rpc.chat());
}

void WriteSampling(const v1::GenerateRequest& rpc, BodyWriter* body) {
  if (rpc.has_max_tokens()) body->Field("max_tokens", rpc.max_tokens());
  if (rpc.has_min_tokens()) body->Field("min_tokens", rpc.min_tokens());
  if (rpc.has_n()) body->Field("n", rpc.n());
  if (rpc.has_temperature()) body->Number("temperature", rpc.temperature());
  if (rpc.has_top_p()) body->Number("top_p", rpc.top_p());
  if (rpc.has_top_k()) body->Field("top_k", rpc.top_k());
  if (rpc.has_min_p()) body->Number("min_p", rpc.min_p());
  if (rpc.has_seed()) body->Field("seed", rpc.seed());
  if (rpc.has_presence_penalty()) body->Number("presence_penalty", rpc.presence_penalty());
  if (rpc.has_frequency_penalty()) body->Number("frequency_penalty", rpc.frequency_penalty());
  if (rpc.has_repetition_penalty()) body->Number("repetition_penalty", rpc.repetition_penalty());
}

void WriteForm(const v1::StructuredOutputs& form, BodyWriter* body) {
  body->Object("structured_outputs", [&] {
    if (form.has_json()) body->Field("json", form.json());
    if (form.has_regex()) body->Field("regex", form.regex());
    if (form.has_choice()) body->Items("choice", form.choice().texts());
    if (form.has_grammar()) body->Field("grammar", form.grammar());
    if (form.has_json_object()) body->Field("json_object", form.json_object());
  });
}

// The two endpoints spell log-probabilities differently.
void WriteLogprobs(const v1::GenerateRequest& rpc, BodyWriter* body) {
  if (!rpc.has_logprobs()) return;
  if (!rpc.has_chat()) {
    body->Field("logprobs", rpc.logprobs());
    return;
  }
  body->Field("logprobs", true);
  body->Field("top_logprobs", rpc.logprobs());
}

void WriteGenerate(const v1::GenerateRequest& rpc, BodyWriter* body) {
  body->Text("model", rpc.model());
  WriteInput(rpc, body);
  WriteSampling(rpc, body);
  if (rpc.has_structured_outputs()) WriteForm(rpc.structured_outputs(), body);
  if (rpc.stop_size() > 0) body->Items("stop", rpc.stop());
  if (rpc.stop_token_ids_size() > 0) body->Items("stop_token_ids", rpc.stop_token_ids());
  body->Flag("include_stop_str_in_output", rpc.include_stop_str_in_output());
  body->Flag("ignore_eos", rpc.ignore_eos());
  body->Flag("return_token_ids", rpc.return_token_ids());
  WriteLogprobs(rpc, body);
  if (rpc.has_prompt_logprobs()) body->Field("prompt_logprobs", rpc.prompt_logprobs());
  if (rpc.has_skip_special_tokens()) body->Field("skip_special_tokens", rpc.skip_special_tokens());
  body->Flag("baton_digest", rpc.baton_digest());
  body->Text("cache_salt", rpc.cache_salt());
  body->More("", rpc.more_fields_json());
  body->Field("stream", true);
}

}  // namespace

std::optional<ApiError> ParseGenerate(std::string_view body, const RequestSettings& settings,
                                      ApiRequest* request) {
  v1::GenerateRequest rpc;
  if (auto problem = Read(body, &rpc)) return problem;
  std::string json;
  BodyWriter writer;
  if (auto problem = writer.Write([&] { WriteGenerate(rpc, &writer); }, &json)) return problem;
  return ParseApiRequest(rpc.has_chat() ? Endpoint::kChat : Endpoint::kCompletions, json, request,
                         settings);
}

std::optional<ApiError> TokenizeJson(std::string_view body, std::string* json) {
  v1::TokenizeRequest rpc;
  if (auto problem = Read(body, &rpc)) return problem;
  BodyWriter writer;
  const auto fill = [&] {
    writer.Text("model", rpc.model());
    if (rpc.has_prompt()) writer.Field("prompt", rpc.prompt());
    if (rpc.has_chat()) writer.Messages(rpc.chat());
    if (rpc.has_add_special_tokens()) writer.Field("add_special_tokens", rpc.add_special_tokens());
    writer.More("", rpc.more_fields_json());
  };
  return writer.Write(fill, json);
}

std::optional<ApiError> DetokenizeJson(std::string_view body, std::string* json) {
  v1::DetokenizeRequest rpc;
  if (auto problem = Read(body, &rpc)) return problem;
  BodyWriter writer;
  const auto fill = [&] {
    writer.Text("model", rpc.model());
    writer.Items("tokens", rpc.tokens());
  };
  return writer.Write(fill, json);
}

}  // namespace baton
