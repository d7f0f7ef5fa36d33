// A request to the demo model and its answer, fed by hand instead of by a cluster.
#pragma once

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/check.h"
#include "server/api/endpoints/endpoints.h"

namespace baton {

inline std::unique_ptr<ServedModel> LoadDemo() {
  ModelConfig config;
  config.path = BATON_SOURCE_DIR "/models/demo";
  config.name = "demo";
  auto loaded = ServedModel::Load(config);
  BATON_CHECK(loaded.ok());
  return *std::move(loaded);
}

inline const ServedModel& Demo() {
  static const std::unique_ptr<ServedModel> model = LoadDemo();
  return *model;
}

inline std::vector<int32_t> Ids(const std::string& text) {
  return *Demo().tokenizer->Encode(text, false);
}

struct AskedAnswer {
  ApiRequest request;
  std::vector<PreparedPrompt> prompts;
  std::unique_ptr<Answer> answer;
  std::string head{};  // a relay's
  int32_t reused_tokens = 0;

  // change: what is to be different in the request that the body asks for.
  explicit AskedAnswer(const std::string& body, Endpoint endpoint = Endpoint::kCompletions,
                       const std::function<void(ApiRequest*)>& change = nullptr,
                       const ServedModel& model = Demo()) {
    const GenerationApi& api = endpoint == Endpoint::kChat ? kChatCompletionsApi : kCompletionsApi;
    REQUIRE_FALSE(api.parse(body, {}, &request).has_value());
    if (change) change(&request);
    const auto error = PreparePrompts(model, request, 0, {}, &prompts);
    INFO((error ? error->message : ""));
    REQUIRE_FALSE(error.has_value());
    answer = api.answer(model, request, prompts,
                        {.id = "id1",
                         .created = 1700000000,
                         .system_fingerprint = "fp",
                         .text_time = absl::Milliseconds(1)});
  }

  const GeneratedText& text(size_t choice = 0) const { return answer->text(choice); }
  std::string Token(EmitToken token, size_t choice = 0) {
    token.index = static_cast<int32_t>(text(choice).n_tokens());
    token.digest = 0xabcdef00u + static_cast<uint64_t>(token.index);
    return answer->OnToken(choice, token);
  }
  std::string Token(int32_t id, size_t choice = 0) {
    EmitToken token;
    token.token = id;
    return Token(token, choice);
  }
  std::string EndChoice(EndReason reason, size_t choice = 0) {
    EmitEnd end;
    end.reason = reason;
    end.timeline.prefill = absl::Milliseconds(5);
    end.timeline.total = absl::Milliseconds(20);
    end.timeline.prefill_worker = "prefill0";
    end.timeline.prefill_heads = head;
    end.timeline.reused_tokens = reused_tokens;
    return answer->OnChoiceEnd(choice, end);
  }
  // Ends the one choice, and so the answer.
  std::string End(EndReason reason) {
    std::string events = EndChoice(reason);
    return events + answer->OnEnd();
  }
};

// Returns the payloads of `data:` events; checks the framing of each.
inline std::vector<std::string> Events(const std::string& stream) {
  std::vector<std::string> payloads;
  for (const auto event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::string text(event);
    REQUIRE(text.rfind("data: ", 0) == 0);
    CHECK(text.find('\n') == std::string::npos);
    payloads.push_back(text.substr(6));
  }
  if (!stream.empty()) CHECK(stream.substr(stream.size() - 2) == "\n\n");
  return payloads;
}

// The payloads without the members that are equal in all of them.
inline std::vector<std::string> ShortEvents(const std::string& stream) {
  std::vector<std::string> payloads = Events(stream);
  for (std::string& payload : payloads) {
    if (payload == "[DONE]") continue;
    boost::json::object event = boost::json::parse(payload).as_object();
    for (const char* key : {"id", "object", "created", "model", "system_fingerprint"}) {
      REQUIRE(event.contains(key));
      event.stable_erase(event.find(key));
    }
    payload = boost::json::serialize(event);
  }
  return payloads;
}

}  // namespace baton
