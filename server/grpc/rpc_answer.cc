#include "server/grpc/rpc_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "completion.pb.h"
#include "server/grpc/frames.h"

namespace baton {
namespace {

// Prompt tokens of one message: with 20 more beside each, some 100 KiB.
constexpr int kPromptTokensOfMessage = 256;

}  // namespace

// A call has one prompt.
RpcAnswer::RpcAnswer(const ServedModel& model, const ApiRequest& request,
                     const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about)
    : Answer(model, request, prompts),
      model_(model),
      about_(about),
      token_ids_(request.return_token_ids),
      digests_(request.digests),
      logprobs_(request.top_logprobs.has_value()),
      include_reasoning_(request.include_reasoning),
      prompt_only_(request.tells_prompt_only()),
      prompt_top_(static_cast<size_t>(request.prompt_logprobs.value_or(0))),
      form_({model.tokenizer.get(), false, request.logprob_token_ids.size()}),
      choices_(n_choices()) {
  if (request.prompt_logprobs) prompt_ids_ = prompts.front().generate.prompt;
}

std::string RpcAnswer::OnToken(size_t i, const EmitToken& token) {
  std::string frames = written_prompt_ ? *std::exchange(written_prompt_, std::nullopt)
                                       : PromptFrames(token.prompt_logprobs);
  if (!frames.empty()) has_begun_ = true;
  prompt_bytes_ += frames.size();
  GeneratedText& text = texts_[i];
  if (text.ended() || prompt_only_) return frames;
  v1::GenerateResponse response;
  v1::ChoiceDelta* const delta = response.add_choices();
  AnswerPiece piece = text.Push(token.token);
  if (text.stop_token()) {
    choices_[i].stop_token = token;
    return frames;
  }
  Keep(token, delta);
  if (logprobs_) choices_[i].logprobs.Add(token, text.token_bytes(), text.token_offset());
  TellPiece(i, std::move(piece), delta);
  Tell(&response, &frames);
  return frames;
}

std::string RpcAnswer::OnChoiceEnd(size_t i, const EmitEnd& end) {
  Choice& choice = choices_[i];
  choice.reused_tokens = end.timeline.reused_tokens;
  v1::GenerateResponse response;
  v1::ChoiceDelta* const delta = response.add_choices();
  TellPiece(i, texts_[i].Finish(), delta);
  if (choice.stop_token) Keep(*choice.stop_token, delta);
  TellEnd(i, end.reason, delta);
  std::string frames;
  Tell(&response, &frames);
  return frames;
}

// Counts the first choice's cached tokens: the others may find the KV that it computed.
std::string RpcAnswer::OnEnd() {
  v1::GenerateResponse response;
  v1::Usage* const usage = response.mutable_usage();
  usage->set_prompt_tokens(n_prompt());
  usage->set_completion_tokens(n_tokens());
  usage->set_cached_tokens(choices_.front().reused_tokens);
  usage->set_reasoning_tokens(n_reasoning());
  std::string frames;
  Tell(&response, &frames);
  return frames;
}

void RpcAnswer::Tell(v1::GenerateResponse* response, std::string* frames) {
  Add(!std::exchange(has_begun_, true), response, frames);
}

void RpcAnswer::Add(bool is_first, v1::GenerateResponse* response, std::string* frames) const {
  if (is_first) {
    response->set_id(about_.id);
    response->set_model(model_.name);
    response->set_system_fingerprint(about_.system_fingerprint);
  }
  AppendFrame(response->SerializeAsString(), frames);
}

std::string RpcAnswer::PromptFrames(const std::vector<PromptLogprob>& told) const {
  std::string frames;
  v1::GenerateResponse response;
  const auto tell = [&] {
    Add(!has_begun_ && frames.empty(), &response, &frames);
    response.Clear();
  };
  for (size_t at = 0; at < told.size() && at + 1 < prompt_ids_.size(); ++at) {
    v1::PromptToken* const token = response.add_prompt_tokens();
    token->set_token_id(prompt_ids_[at + 1]);
    token->set_logprob(Told(told[at].logprob));
    token->set_rank(told[at].rank);
    for (size_t place = 0; place < std::min(prompt_top_, told[at].top.size()); ++place)
      TellToken(told[at].top[place], "", token->add_top());
    if (response.prompt_tokens_size() == kPromptTokensOfMessage) tell();
  }
  if (response.prompt_tokens_size() > 0) tell();
  return frames;
}

// Every list but that of a token whose frames are written already.
size_t RpcAnswer::PromptBytes(size_t, const EmitToken& token) const {
  constexpr size_t kEntryBytes = 16;
  return written_prompt_ ? 0 : token.prompt_logprobs.size() * (1 + prompt_top_) * kEntryBytes;
}

std::vector<std::string> RpcAnswer::WritePrompt(size_t, const EmitToken& token) const {
  return {PromptFrames(token.prompt_logprobs)};
}

void RpcAnswer::TakePrompt(size_t, std::vector<std::string> written) {
  written_prompt_ = std::move(written.front());
}

void RpcAnswer::Keep(const EmitToken& token, v1::ChoiceDelta* delta) const {
  if (token_ids_) delta->add_token_ids(token.token);
  if (digests_) delta->add_baton_digests(token.digest);
}

void RpcAnswer::TellPiece(size_t i, AnswerPiece piece, v1::ChoiceDelta* delta) {
  delta->set_index(static_cast<int32_t>(i));
  delta->set_text(std::move(piece.content));
  if (include_reasoning_) delta->set_reasoning(std::move(piece.reasoning));
  for (CallPiece& call : piece.calls) {
    v1::ToolCallDelta* const told = delta->add_tool_calls();
    told->set_index(call.index);
    if (!call.name.empty()) told->set_id(CallId(absl::StrCat(about_.id, ".", i), call.index));
    told->set_name(std::move(call.name));
    told->set_arguments(std::move(call.arguments));
  }
  for (const ReportedToken& token : choices_[i].logprobs.TakeUpTo(texts_[i].n_told())) {
    v1::TokenLogprob* const told = delta->add_logprobs();
    TellToken({token.token, token.logprob}, token.bytes, told);
    for (const TokenLogprob& other : Listed(form_, token))
      TellToken(other, model_.tokenizer == nullptr ? "" : model_.tokenizer->TokenBytes(other.token),
                told->add_top());
  }
}

// The token that ended the choice is told if the client asked for it, as HTTP's stop_reason.
void RpcAnswer::TellEnd(size_t i, EndReason reason, v1::ChoiceDelta* delta) const {
  const GeneratedText& text = texts_[i];
  delta->set_finish_reason(std::string(text.FinishReason(reason)));
  if (text.stopped()) {
    delta->set_stop_text(*text.stop_string());
  } else if (reason == EndReason::kStopToken && text.stop_token() &&
             std::count(model_.eos_tokens.begin(), model_.eos_tokens.end(), *text.stop_token()) ==
                 0) {
    delta->set_stop_token_id(*text.stop_token());
  }
}

void RpcAnswer::TellToken(const TokenLogprob& token, std::string_view bytes,
                          v1::TokenLogprob* told) const {
  told->set_token_id(token.token);
  told->set_logprob(Told(token.logprob));
  told->set_token(std::string(bytes));
}

}  // namespace baton
