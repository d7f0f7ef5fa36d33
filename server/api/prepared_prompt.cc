#include "server/api/prepared_prompt.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/request_limits.h"
#include "server/api/generated_text.h"
#include "server/api/requested_sampling.h"
#include "server/api/requested_tools.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

using Problem = std::optional<ApiError>;
using Ids = std::vector<int32_t>;

constexpr int64_t kDefaultCompletionTokens = 16;  // as in OpenAI's description

std::string ContextMessage(const ApiRequest& request, int64_t max, int64_t out, int64_t in) {
  return absl::StrCat(
      "This model's maximum context length is ", max, " tokens. However, you requested ", out,
      " output tokens and your prompt contains ", in, " input tokens, for a total of ", in + out,
      " tokens. Please reduce the length of the input prompt or the number of "
      "requested output tokens",
      request.max_tokens ? absl::StrCat(" (", request.max_tokens_path, ").") : ".");
}

ApiError ContextError(const ApiRequest& request, const std::string& param, int64_t max, int64_t out,
                      int64_t in) {
  ApiError error =
      InvalidField(param, ContextMessage(request, max, out, in), "context_length_exceeded");
  error.n_prompt_tokens = in;
  error.n_ctx = max;
  return error;
}

// The first bytes of SHA-256: whoever wants another's salt must know it. Neither: 0. KV of two
// tenants has two salts, whatever salt they send: a tenant's name has no line feed.
uint64_t SaltOf(const std::string& tenant, const std::string& cache_salt) {
  const std::string text =
      tenant.empty() ? cache_salt : absl::StrCat("tenant ", tenant, "\n", cache_salt);
  if (text.empty()) return 0;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  uint64_t salt = 0;
  std::memcpy(&salt, digest.data(), sizeof(salt));
  return std::max<uint64_t>(salt, 1);
}

// Removes all but `n` ids, from the side that the request says.
void Truncate(const ApiRequest& request, size_t n, Ids* ids) {
  if (ids->size() <= n) return;
  if (request.truncate_left) {
    ids->erase(ids->begin(), ids->end() - static_cast<ptrdiff_t>(n));
  } else {
    ids->resize(n);
  }
}

Problem WithoutTokenizer(const ServedModel& model, const std::string& param) {
  return Unsupported(param, absl::StrCat("The model `", model.name,
                                         "` has no tokenizer; send `prompt` as token ids to "
                                         "/v1/completions."));
}

// Makes one prompt after the other.
class PromptMaker {
 public:
  PromptMaker(const ServedModel& model, const ApiRequest& request, int64_t max_context,
              const TextMoment& moment)
      : model_(model),
        request_(request),
        max_context_(max_context),
        is_chat_(request.is_chat()),
        moment_(moment) {}

  // Fields that are the same for all prompts.
  Problem ReadCommon();
  // param: the path of the prompt in the request.
  Problem Make(const std::variant<std::string, Ids>& prompt, const std::string& param,
               PreparedPrompt* out) const;
  Problem MakeChat(PreparedPrompt* out) const;

 private:
  Problem CheckTruncation();
  Problem Tokenize(const PromptText& prompt, const std::string& param, bool add_special,
                   Ids* ids) const;
  Problem TruncateText(const std::string& text, Ids* ids) const;
  // As KV, ids of texts are shared within a salt alone.
  CachedSegments CachedHere() const { return {model_.segments.get(), common_.cache_salt}; }
  // The prompt as the answer repeats it. text: as it was sent; null: as ids, or changed.
  Problem Echo(const std::string* text, const std::string& param, PreparedPrompt* out) const;
  Problem BoundReasoning(const PromptText& prompt, PreparedPrompt* out) const;
  Problem FitContext(const std::string& param, PreparedPrompt* out) const;

  const ServedModel& model_;
  const ApiRequest& request_;
  const int64_t max_context_;
  const bool is_chat_;
  const TextMoment moment_;
  GenerateRequest common_;
  std::optional<size_t> kept_tokens_;  // of a prompt, if it is truncated
};

Problem PromptMaker::ReadCommon() {
  if (auto problem = ReadSampling(model_, request_, &common_.sampling)) return problem;
  if (auto problem = CheckTokenIds(model_, request_.stop_token_ids, "stop_token_ids"))
    return problem;
  Ids stops;
  if (!request_.ignore_eos) stops = model_.eos_tokens;
  stops.insert(stops.end(), request_.stop_token_ids.begin(), request_.stop_token_ids.end());
  absl::flat_hash_set<int32_t> seen;
  for (const int32_t id : stops)
    if (seen.insert(id).second) common_.stop_tokens.push_back(id);
  common_.want_digests = request_.digests;
  int64_t of_prompt = request_.prompt_logprobs.value_or(-1);
  if (request_.echoes_logprobs()) of_prompt = std::max(of_prompt, *request_.top_logprobs);
  common_.prompt_logprobs = static_cast<int32_t>(of_prompt);
  common_.cache_salt = SaltOf(request_.tenant, request_.cache_salt);
  return CheckTruncation();
}

Problem PromptMaker::CheckTruncation() {
  if (!request_.truncate_prompt_tokens) return std::nullopt;
  int64_t kept = *request_.truncate_prompt_tokens;
  if (kept == -1) {
    const int64_t wanted =
        request_.max_tokens.value_or(is_chat_ ? int64_t{1} : kDefaultCompletionTokens);
    kept = std::max<int64_t>(1, max_context_ - std::max<int64_t>(1, wanted));
  }
  if (kept < 1 || kept > max_context_) {
    return InvalidField("truncate_prompt_tokens",
                        absl::StrCat("truncate_prompt_tokens must be -1 or an integer from 1 to ",
                                     max_context_, ", the context; got ", kept, "."));
  }
  kept_tokens_ = static_cast<size_t>(kept);
  return std::nullopt;
}

Problem PromptMaker::Tokenize(const PromptText& prompt, const std::string& param, bool add_special,
                              Ids* ids) const {
  const std::string& text = prompt.text;
  if (text.empty()) return InvalidField(param, absl::StrCat(param, " must not be empty."));
  // Cheaper than tokenizing: so many bytes can not be so few tokens.
  const size_t longest = std::max<size_t>(1, model_.tokenizer->longest_token_bytes());
  const auto min_tokens = static_cast<int64_t>(text.size() / longest);
  if (min_tokens > max_context_ && !kept_tokens_) {
    return ContextError(request_, param, max_context_, request_.max_tokens.value_or(1), min_tokens);
  }
  auto encoded = model_.tokenizer->Encode(prompt, add_special, CachedHere(), moment_.left());
  if (!encoded.ok()) return InvalidText(param, encoded.status());
  *ids = *std::move(encoded);
  if (ids->empty()) return InvalidField(param, absl::StrCat(param, " has no tokens."));
  return std::nullopt;
}

// Cuts the tokens of a plain text and keeps what the tokenizer adds around it (begin of text), as
// transformers does.
Problem PromptMaker::TruncateText(const std::string& text, Ids* ids) const {
  if (!kept_tokens_ || ids->size() <= *kept_tokens_) return std::nullopt;
  auto plain =
      model_.tokenizer->Encode(PromptText{.text = text}, false, CachedHere(), moment_.left());
  if (!plain.ok()) return InvalidText("prompt", plain.status());
  const auto at = std::search(ids->begin(), ids->end(), plain->begin(), plain->end());
  const size_t n_added = ids->size() - std::min(ids->size(), plain->size());
  if (at == ids->end() || n_added >= *kept_tokens_) {
    Truncate(request_, *kept_tokens_, ids);
    return std::nullopt;
  }
  const Ids before(ids->begin(), at);
  const Ids after(at + static_cast<ptrdiff_t>(plain->size()), ids->end());
  Truncate(request_, *kept_tokens_ - n_added, &*plain);
  *ids = before;
  ids->insert(ids->end(), plain->begin(), plain->end());
  ids->insert(ids->end(), after.begin(), after.end());
  return std::nullopt;
}

Problem PromptMaker::Make(const std::variant<std::string, Ids>& prompt, const std::string& param,
                          PreparedPrompt* out) const {
  out->generate = common_;
  Ids& ids = out->generate.prompt;
  const auto* text = std::get_if<std::string>(&prompt);
  if (text == nullptr) {
    ids = std::get<Ids>(prompt);
    if (auto problem = CheckTokenIds(model_, ids, param)) return problem;
    if (kept_tokens_) Truncate(request_, *kept_tokens_, &ids);
  } else if (model_.tokenizer == nullptr) {
    return WithoutTokenizer(model_, param);
  } else {
    const bool add_special = request_.add_special_tokens.value_or(true);
    if (auto problem = Tokenize({.text = *text}, param, add_special, &ids)) return problem;
    if (auto problem = TruncateText(*text, &ids)) return problem;
  }
  if (auto problem = Echo(kept_tokens_ ? nullptr : text, param, out)) return problem;
  return FitContext(param, out);
}

Problem PromptMaker::Echo(const std::string* text, const std::string& param,
                          PreparedPrompt* out) const {
  if (!request_.echo) return std::nullopt;
  const Ids& ids = out->generate.prompt;
  if (model_.tokenizer == nullptr) {
    if (request_.top_logprobs) out->echoed.resize(ids.size());
    return std::nullopt;
  }
  if (!request_.top_logprobs) {
    if (text != nullptr) {
      out->echo = *text;
      return std::nullopt;
    }
    auto decoded = model_.tokenizer->Decode(ids, request_.skip_special_tokens);
    if (!decoded.ok()) return InvalidField(param, std::string(decoded.status().message()));
    out->echo = *std::move(decoded);
    return std::nullopt;
  }
  // The text is the tokens' own, so that offsets are places in it.
  Detokenizer detokenizer(
      model_.tokenizer.get(),
      {.skip_special_tokens = request_.skip_special_tokens, .starts_text = true});
  int64_t offset = 0;
  for (const int32_t id : ids) {
    const std::string characters = detokenizer.Push(id);
    out->echoed.push_back({std::string(detokenizer.last_bytes()), offset});
    offset += Characters(characters);
    out->echo += characters;
  }
  out->echo += detokenizer.Finish();
  return std::nullopt;
}

Problem PromptMaker::MakeChat(PreparedPrompt* out) const {
  out->generate = common_;
  PromptText prompt;
  if (auto problem = RenderMessages(model_, request_, moment_, &prompt)) return problem;
  const bool add_special = request_.add_special_tokens.value_or(false);
  if (auto problem = Tokenize(prompt, "messages", add_special, &out->generate.prompt))
    return problem;
  if (kept_tokens_) Truncate(request_, *kept_tokens_, &out->generate.prompt);
  out->inside_reasoning = EndsInsideReasoning(
      prompt.text, AnswerFormatOf(model_, request_).reasoning, prompt.continued);
  if (auto problem = MakeAnswerGrammar(model_, request_, out->inside_reasoning,
                                       &out->generate.sampling.grammar))
    return problem;
  if (auto problem = BoundReasoning(prompt, out)) return problem;
  return FitContext("messages", out);
}

// Bounds reasoning that is told as content, too. Anthropic's clients send a budget to any model:
// one that does not reason keeps within it.
Problem PromptMaker::BoundReasoning(const PromptText& prompt, PreparedPrompt* out) const {
  if (!request_.reasoning_budget) return std::nullopt;
  const auto refused = [&](const char* why) -> Problem {
    if (request_.endpoint == Endpoint::kMessages) return std::nullopt;
    return Unsupported("thinking_token_budget",
                       absl::StrCat("thinking_token_budget: the model `", model_.name, "` ", why));
  };
  const ReasoningFormat format = model_.answer_format.reasoning;
  const ReasoningMarkers markers = MarkersOf(format);
  if (markers.close.empty()) return refused("has no marker that ends reasoning.");
  if (request_.thinking_is_off) return refused("does not reason here: enable_thinking is false.");
  const bool has_grammar = out->generate.sampling.grammar.kind != GrammarKind::kNone;
  if (has_grammar && AnswerFormatOf(model_, request_).reasoning == ReasoningFormat::kNone)
    return refused(
        "does not reason here: without separate_reasoning the grammar holds the whole answer.");
  // Several tokens spell the same text in more than one way, so that the end would be missed.
  const auto begin = model_.tokenizer->IdOf(markers.open);
  const auto end = model_.tokenizer->IdOf(markers.close);
  if (!begin || !end) return refused("has no single tokens for the markers of reasoning.");
  out->generate.sampling.reasoning = {
      .max_tokens = static_cast<int32_t>(*request_.reasoning_budget),
      .begin = EndsInsideReasoning(prompt.text, format, prompt.continued) ? -1 : *begin,
      .end = *end};
  return std::nullopt;
}

Problem PromptMaker::FitContext(const std::string& param, PreparedPrompt* out) const {
  const auto n_prompt = static_cast<int64_t>(out->generate.prompt.size());
  // The token that is drawn and not told needs no place.
  const int64_t room = max_context_ - n_prompt + (request_.tells_prompt_only() ? 1 : 0);
  const int64_t asked = request_.max_tokens.value_or(
      is_chat_ ? std::max<int64_t>(1, room)
               : std::min(kDefaultCompletionTokens, std::max<int64_t>(1, room)));
  const int64_t wanted = std::max<int64_t>(1, asked);
  if (wanted > room) {
    // A prompt that fits alone: the number asked for is what must change.
    const bool prompt_fits = n_prompt < max_context_;
    return ContextError(request_,
                        prompt_fits && request_.max_tokens ? request_.max_tokens_path : param,
                        max_context_, wanted, n_prompt);
  }
  if (out->generate.sampling.min_tokens > wanted) {
    return InvalidField("min_tokens",
                        absl::StrCat("min_tokens must be an integer from 0 to ", wanted,
                                     ", the tokens that may be generated; got ",
                                     out->generate.sampling.min_tokens, "."));
  }
  if (request_.tells_prompt_only()) {
    // The token that every prompt is computed for is drawn, and not told.
    SamplingParams& sampling = out->generate.sampling;
    sampling = {.temperature = 0, .vocab_end = sampling.vocab_end};
    out->generate.stop_tokens.clear();
    out->generate.want_digests = false;
  }
  out->generate.max_tokens = static_cast<int32_t>(wanted);
  out->generate.sampling.seed = request_.seed ? static_cast<uint64_t>(*request_.seed) : RandomId();
  return std::nullopt;
}

// Bounds what the router and the answer keep.
Problem CheckLogprobsOfPrompts(const ApiRequest& request,
                               const std::vector<PreparedPrompt>& prompts) {
  size_t n = 0;
  for (const PreparedPrompt& prompt : prompts)
    n += prompt.generate.prompt.size() * static_cast<size_t>(prompt.generate.prompt_logprobs + 1) *
         ChoicesPerPrompt(request);
  const FieldLimit& limit = RequestLimits::kPromptLogprobEntries;
  if (CheckLimit(limit, static_cast<double>(n)).ok()) return std::nullopt;
  const char* const param = request.prompt_logprobs ? "prompt_logprobs" : "logprobs";
  return InvalidField(
      param, absl::StrCat(param, " of these prompts would be ", n, " log-probabilities, of ",
                          "tokens, choices and most probable tokens together; at most ",
                          static_cast<int64_t>(limit.max),
                          " are told. Send shorter or fewer prompts, or a smaller number."));
}

}  // namespace

std::optional<ApiError> PreparePrompts(const ServedModel& model, const ApiRequest& request,
                                       int64_t max_context, const TextMoment& moment,
                                       std::vector<PreparedPrompt>* out) {
  PromptMaker maker(model, request, model.MaxContext(max_context), moment);
  if (auto problem = maker.ReadCommon()) return problem;
  const bool is_chat = request.is_chat();
  if (request.prompts.empty()) {
    if (auto problem = maker.MakeChat(&out->emplace_back())) return problem;
    return CheckLogprobsOfPrompts(request, *out);
  }
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    std::string param = is_chat ? "prompt_token_ids" : "prompt";
    if (request.prompts.size() > 1) absl::StrAppend(&param, "[", i, "]");
    if (auto problem = maker.Make(request.prompts[i], param, &out->emplace_back())) return problem;
  }
  return CheckLogprobsOfPrompts(request, *out);
}

std::optional<ApiError> CheckModelName(const ServedModel& model, const std::string& name) {
  if (model.IsCalled(name)) return std::nullopt;
  ApiError error = UnknownModel(name);
  error.param = "model";
  return error;
}

std::optional<ApiError> RenderMessages(const ServedModel& model, const ApiRequest& request,
                                       const TextMoment& moment, PromptText* prompt) {
  if (model.tokenizer == nullptr) return WithoutTokenizer(model, "messages");
  if (model.chat_template == nullptr) {
    return Unsupported("messages", absl::StrCat("The model `", model.name,
                                                "` has no chat template; use /v1/completions."));
  }
  ChatTemplateInput input;
  const bool in_parts = model.template_takes_parts && !request.messages_in_parts.empty();
  input.messages = in_parts ? request.messages_in_parts : request.messages;
  input.tools = request.tools;
  input.documents = request.documents;
  input.variables = request.template_variables;
  input.add_generation_prompt = request.add_generation_prompt && !request.continue_final_message;
  input.continue_final_message = request.continue_final_message;
  input.now = moment.now;
  input.limit = moment.left();
  auto rendered = model.chat_template->Render(input);
  if (!rendered.ok()) return InvalidText("messages", rendered.status());
  *prompt = *std::move(rendered);
  if (request.documents.empty()) return std::nullopt;
  // A template without a place for them would drop them in silence.
  input.documents = {};
  input.limit = moment.left();
  const auto without = model.chat_template->Render(input);
  if (without.ok() && without->text == prompt->text) {
    return Unsupported("documents",
                       absl::StrCat("The chat template of the model `", model.name,
                                    "` has no place for documents; send them in messages."));
  }
  return std::nullopt;
}

size_t ChoicesPerPrompt(const ApiRequest& request) {
  return static_cast<size_t>(std::max(request.n, request.best_of.value_or(0)));
}

}  // namespace baton
