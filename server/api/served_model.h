// The model as the front sees it: names, limits, tokenizer, chat template, defaults.
// Immutable after load: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "server/api/model_config.h"
#include "text/chat_template.h"
#include "text/grammar_compiler.h"
#include "text/segment_cache.h"
#include "text/tokenizer.h"
#include "text/tools/answer_format.h"

namespace baton {

// When the text work of a request began, and when it must have ended.
struct TextMoment {
  absl::CivilSecond now{};                       // the time of day that templates see, local
  absl::Time deadline = absl::InfiniteFuture();  // of MonotonicNow
  absl::Duration left() const;
};

struct ServedModel {
  std::string name;                  // in answers
  std::vector<std::string> aliases;  // requests may name these too
  int64_t created = 0;               // seconds since 1970: when this server loaded it
  int32_t vocab = 0;                 // width of the logits
  // Ids that the tokenizer has no token for: from vocab_end on (0: none), and these below it.
  int32_t vocab_end = 0;
  std::vector<int32_t> ids_without_token;
  int64_t max_context = 0;
  int64_t n_parameters = 0;
  std::vector<int32_t> eos_tokens;
  // From generation_config.json, for requests that do not say.
  double temperature = 1.0, top_p = 1.0, min_p = 0, repetition_penalty = 1.0;
  int32_t top_k = 0;
  std::unique_ptr<Tokenizer> tokenizer;         // null: token-id prompts only (random: models)
  std::unique_ptr<GrammarCompiler> grammars;    // null: no tokenizer
  std::unique_ptr<ChatTemplate> chat_template;  // null: no chat
  std::unique_ptr<SegmentCache> segments;       // null: every prompt is tokenized as a whole
  absl::Duration text_limit = absl::InfiniteDuration();  // for the text work of a request
  AnswerFormat answer_format;  // in which the model calls tools and reasons
  // The form of calls: an answer that must call has one even if the template shows none.
  ToolFormat CallFormat(bool must_call) const {
    const bool is_shown = answer_format.tools != ToolFormat::kNone;
    return is_shown || !must_call ? answer_format.tools : ToolFormat::kHermes;
  }
  bool template_takes_parts = false;  // iterates over content that is a list of text parts

  // `config.path` as resolved by ResolveModel. Errors name the file.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Load(const ModelConfig& config);
  TextMoment BeginText() const;
  bool IsCalled(const std::string& model) const;
  // Tokens of prompt and output that both the model and the cluster (0: unknown) can hold.
  int64_t MaxContext(int64_t of_cluster) const {
    return of_cluster > 0 ? std::min(of_cluster, max_context) : max_context;
  }
  // Sets vocab_end and ids_without_token by the tokenizer and vocab. InvalidArgument: more ids
  // below vocab_end than travel with a request beside the client's biases.
  absl::Status FindIdsWithoutToken();
};

}  // namespace baton
