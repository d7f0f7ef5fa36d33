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

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

GeneratedText::GeneratedText(const ServedModel& model, const ApiRequest& request,
                             const GenerateRequest& generate)
    : stops_(request.stop),
      stop_tokens_(generate.stop_tokens),
      include_stop_(request.include_stop),
      n_prompt_(static_cast<int64_t>(generate.prompt.size())),
      min_tokens_(generate.sampling.min_tokens),
      matcher_(MatcherFor(request.stop)) {
  if (model.tokenizer == nullptr) return;
  DetokenizerOptions options;
  options.skip_special_tokens = request.skip_special_tokens;
  options.starts_text = request.endpoint == Endpoint::kChat && !request.continue_final_message;
  detokenizer_.emplace(model.tokenizer.get(), options);
}

std::string GeneratedText::Push(int32_t token) {
  ++n_tokens_;
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
    stop_token_ = token;
    return "";
  }
  token_offset_ = n_characters_;
  if (!detokenizer_) {
    ++n_told_;
    return "";
  }
  const std::string piece = detokenizer_->Push(token);
  n_bytes_ += detokenizer_->last_bytes().size();
  marks_.push_back({n_bytes_, std::nullopt});
  std::string text = Take(piece);
  CountTold();
  return text;
}

std::string GeneratedText::Finish() {
  if (stopped()) return "";
  std::string rest;
  if (detokenizer_) rest = Take(detokenizer_->Finish());
  if (!stopped()) {
    const std::string held = matcher_.Finish();
    n_left_ += held.size();
    rest += held;
  }
  CountTold();
  return rest;
}

std::string_view GeneratedText::token_bytes() const {
  return detokenizer_ ? detokenizer_->last_bytes() : std::string_view();
}

void GeneratedText::CountTold() {
  const size_t whole = n_bytes_ - (detokenizer_ ? detokenizer_->n_held() : 0);
  for (Mark& mark : marks_)
    if (!mark.text_end && mark.bytes_end <= whole) mark.text_end = n_text_;
  while (!marks_.empty() && marks_.front().text_end && *marks_.front().text_end <= n_left_) {
    marks_.pop_front();
    ++n_told_;
  }
}

std::string GeneratedText::Take(std::string_view piece) {
  n_text_ += piece.size();
  n_characters_ += Characters(piece);
  if (n_tokens_ <= min_tokens_) {
    n_left_ += piece.size();
    return std::string(piece);
  }
  StopMatcher::Result found = matcher_.Push(piece);
  if (found.stop >= 0) {
    stop_index_ = found.stop;
    if (include_stop_) found.text += *stop_string();
  }
  n_left_ += found.text.size();
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
