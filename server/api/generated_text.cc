#include "server/api/generated_text.h"

#include <algorithm>

#include "common/check.h"
#include "server/api/requested_tools.h"

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
                             const PreparedPrompt& prompt)
    : stops_(request.stop),
      stop_tokens_(prompt.generate.stop_tokens),
      include_stop_(request.include_stop),
      n_prompt_(static_cast<int64_t>(prompt.generate.prompt.size())),
      min_tokens_(prompt.generate.sampling.min_tokens),
      matcher_(MatcherFor(request.stop)),
      call_is_chosen_(request.tool_choice != ToolChoice::kNamed) {
  if (model.tokenizer == nullptr) return;
  DetokenizerOptions options;
  options.skip_special_tokens = request.skip_special_tokens;
  options.starts_text = request.is_chat() && !request.continue_final_message;
  const AnswerFormat format = AnswerFormatOf(model, request);
  if (format != AnswerFormat{}) {
    splitter_.emplace(format, prompt.inside_reasoning);
    for (const std::string_view marker : AllMarkers(format))
      if (const auto id = model.tokenizer->IdOf(marker)) options.shown_tokens.push_back(*id);
  }
  detokenizer_.emplace(model.tokenizer.get(), options);
}

AnswerPiece GeneratedText::Push(int32_t token) {
  ++n_tokens_;
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
    stop_token_ = token;
    return {};
  }
  token_offset_ = n_characters_;
  if (!detokenizer_) {
    ++n_told_;
    return {};
  }
  const std::string piece = detokenizer_->Push(token);
  n_bytes_ += detokenizer_->last_bytes().size();
  marks_.push_back({n_bytes_, std::nullopt});
  AnswerPiece told = Split(Take(piece));
  CountTold();
  return told;
}

AnswerPiece GeneratedText::Finish() {
  AnswerPiece told;
  if (!stopped()) {
    std::string rest;
    if (detokenizer_) rest = Take(detokenizer_->Finish());
    if (!stopped()) {
      const std::string held = matcher_.Finish();
      n_passed_ += held.size();
      rest += held;
    }
    told = Split(std::move(rest));
  }
  if (splitter_)
    for (const AnswerEvent& event : splitter_->Finish()) told.Add(event);
  CountTold();
  return told;
}

AnswerPiece GeneratedText::Split(std::string text) {
  AnswerPiece piece;
  if (!splitter_) {
    piece.content = std::move(text);
    return piece;
  }
  for (const AnswerEvent& event : splitter_->Push(text)) piece.Add(event);
  return piece;
}

std::string_view GeneratedText::token_bytes() const {
  return detokenizer_ ? detokenizer_->last_bytes() : std::string_view();
}

void GeneratedText::CountTold() {
  const size_t whole = n_bytes_ - (detokenizer_ ? detokenizer_->n_held() : 0);
  const size_t left = splitter_ ? splitter_->settled() : n_passed_;
  for (Mark& mark : marks_)
    if (!mark.text_end && mark.bytes_end <= whole) mark.text_end = n_text_;
  while (!marks_.empty() && marks_.front().text_end && *marks_.front().text_end <= left) {
    n_reasoning_ += splitter_ && splitter_->IsReasoning(*marks_.front().text_end);
    marks_.pop_front();
    ++n_told_;
  }
}

std::string GeneratedText::Take(std::string_view piece) {
  n_text_ += piece.size();
  n_characters_ += Characters(piece);
  if (n_tokens_ <= min_tokens_) {
    n_passed_ += piece.size();
    return std::string(piece);
  }
  StopMatcher::Result found = matcher_.Push(piece);
  if (found.stop >= 0) {
    stop_index_ = found.stop;
    if (include_stop_) found.text += *stop_string();
  }
  n_passed_ += found.text.size();
  return std::move(found.text);
}

const std::string* GeneratedText::stop_string() const {
  return stopped() ? &stops_[static_cast<size_t>(stop_index_)] : nullptr;
}

std::string_view GeneratedText::FinishReason(EndReason reason) const {
  if (stopped() || reason == EndReason::kStopToken) {
    const bool calls = splitter_ && splitter_->n_calls() > 0;
    return calls && call_is_chosen_ ? "tool_calls" : "stop";
  }
  if (reason == EndReason::kLength) return "length";
  return reason == EndReason::kCancelled ? "abort" : "error";
}

}  // namespace baton
