#include "server/api/generated_text.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

StopMatcher MatcherFor(const std::vector<std::string>& stops) {
  auto matcher = StopMatcher::Create(stops);
  BATON_CHECK(matcher.ok());  // ParseApiRequest refused what Create would
  return *std::move(matcher);
}

}  // namespace

GeneratedText::GeneratedText(const ServedModel& model, const ApiRequest& request,
                             const GenerateRequest& generate)
    : stops_(request.stop),
      stop_tokens_(generate.stop_tokens),
      include_stop_(request.include_stop),
      n_prompt_(static_cast<int64_t>(generate.prompt.size())),
      matcher_(MatcherFor(request.stop)) {
  if (model.tokenizer == nullptr) return;
  DetokenizerOptions options;
  options.skip_special_tokens = request.skip_special_tokens;
  options.starts_text = request.endpoint == Endpoint::kChat;
  detokenizer_.emplace(model.tokenizer.get(), options);
}

std::string GeneratedText::Push(int32_t token) {
  ++n_tokens_;
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
    stop_token_ = token;
    return "";
  }
  return detokenizer_ ? Take(detokenizer_->Push(token)) : "";
}

std::string GeneratedText::Finish() {
  if (stopped()) return "";
  std::string rest;
  if (detokenizer_) rest = Take(detokenizer_->Finish());
  if (!stopped()) rest += matcher_.Finish();
  return rest;
}

std::string GeneratedText::Take(std::string_view piece) {
  StopMatcher::Result found = matcher_.Push(piece);
  if (found.stop >= 0) {
    stop_index_ = found.stop;
    if (include_stop_) found.text += *stop_string();
  }
  return std::move(found.text);
}

const std::string* GeneratedText::stop_string() const {
  return stopped() ? &stops_[static_cast<size_t>(stop_index_)] : nullptr;
}

std::string_view GeneratedText::FinishReason(EndReason reason) const {
  if (stopped() || reason == EndReason::kStopToken) return "stop";
  if (reason == EndReason::kLength) return "length";
  return reason == EndReason::kCancelled ? "abort" : "error";
}

}  // namespace baton
