// Rows of what other servers know and this one has not: refused if they shape the output, else
// without effect. null and values that change nothing pass.
#include "server/api/fields/field.h"

namespace baton {
namespace {

Field Refused(const char* name, const char* why, std::vector<std::string_view> neutral = {}) {
  return {name, kAtOpenAi, RefusedRule{why, std::move(neutral)}, "", ""};
}
Field NoEffect(const char* name, const char* why, EndpointSet endpoints = kAtOpenAi) {
  return {name, endpoints, NoEffectRule{}, "", why};
}

constexpr char kSampler[] = "this way to sample is not built";
constexpr char kBeams[] = "beam search is not built";
constexpr char kExtension[] = "requests bring no code, adapters or arguments of their own";
constexpr char kHandoff[] = "the router alone hands KV from worker to worker";
constexpr char kOfMirostat[] = "Acts only with another value of mirostat, which is refused";

}  // namespace

std::span<const Field> OtherFields() {
  static const std::vector<Field> kRows = {
      Refused("priority", "requests are not ordered by priority", {"0"}),
      Refused("extra_key", "send cache_salt"),
      Refused("kv_transfer_params", kHandoff, {"{}"}),
      Refused("disaggregated_params", kHandoff, {"{}"}),
      Refused("bootstrap_host", kHandoff),
      Refused("bootstrap_port", kHandoff),
      Refused("bootstrap_room", kHandoff),
      Refused("use_beam_search", kBeams, {"false"}),
      Refused("beam_width", kBeams, {"1"}),
      Refused("length_penalty", kBeams, {"1"}),
      Refused("early_stopping", kBeams, {"false"}),
      Refused("logits_processors", kExtension, {"[]"}),
      Refused("custom_logit_processor", kExtension, {"\"\""}),
      Refused("custom_params", kExtension, {"{}"}),
      Refused("vllm_xargs", kExtension, {"{}"}),
      Refused("lora_path", kExtension, {"\"\"", "[]"}),
      Refused("lora", kExtension, {"[]"}),
      Refused("session_params", kExtension, {"{}"}),
      Refused("stop_regex", "stop texts are plain", {"\"\"", "[]"}),
      Refused("no_stop_trim", "send include_stop_str_in_output", {"false"}),
      Refused("repetition_detection", "repetitions do not end an answer", {"{}"}),
      Refused("t_max_predict_ms", "answers are not bounded in time", {"0"}),
      Refused("prompt_ignore_length", "penalties count the whole text", {"0"}),
      Refused("repeat_last_n", "penalties count the whole text", {"-1"}),
      Refused("min_keep", kSampler, {"0"}),
      Refused("samplers", kSampler, {"[]"}),
      Refused("typical_p", kSampler, {"1"}),
      Refused("top_n_sigma", kSampler, {"-1"}),
      Refused("top_a", kSampler, {"0"}),
      Refused("top_p_min", kSampler, {"0"}),
      Refused("tfs", kSampler, {"1"}),
      Refused("smoothing_factor", kSampler, {"0"}),
      Refused("no_repeat_ngram_size", kSampler, {"0"}),
      Refused("dynatemp_range", kSampler, {"0"}),
      Refused("dry_multiplier", kSampler, {"0"}),
      Refused("xtc_probability", kSampler, {"0"}),
      Refused("adaptive_target", kSampler, {"-1"}),
      Refused("mirostat", kSampler, {"0"}),
      Refused("mirostat_mode", kSampler, {"0"}),
      Refused("epsilon_cutoff", kSampler, {"0"}),
      Refused("eta_cutoff", kSampler, {"0"}),
      Refused("penalty_alpha", kSampler, {"0"}),
      Refused("guidance_scale", kSampler, {"1"}),
      Refused("do_sample", "send temperature 0 for the most probable tokens", {"true"}),
      Refused("watermark", "answers have no watermark", {"false"}),
      Refused("num_beams", kBeams, {"1"}),
      Refused("num_return_sequences", "send n", {"1"}),
      Refused("n_cmpl", "send n", {"1"}),
      Refused("min_new_tokens", "send min_tokens", {"0"}),
      Refused("min_length", "send min_tokens", {"0"}),
      Refused("max_length", "send max_tokens"),
      Refused("random_seed", "send seed"),
      Refused("stop_words", "send stop", {"[]", "\"\""}),
      Refused("prompt_truncate_len", "send truncate_prompt_tokens"),
      Refused("thinking_budget", "send thinking_token_budget to /v1/chat/completions"),
      Refused("prompt_token_ids", "send token ids as prompt to /v1/completions", {"[]"}),
      Refused("return_prompt_token_ids", "send return_token_ids", {"false"}),
      Refused("return_full_text", "send echo to /v1/completions", {"false"}),
      Refused("decoder_input_details", "send prompt_logprobs", {"false"}),
      Refused("return_meta_info", "usage and timings are told", {"false"}),
      Refused("return_cached_tokens_details", "cached tokens are told in usage", {"false"}),
      Refused("detokenize", "answers are text; token ids come with return_token_ids", {"true"}),
      Refused("generation_config", "send its fields beside the prompt", {"\"\"", "{}"}),
      Refused("nvext", "send its fields beside the prompt", {"{}"}),
      Refused("sampling_params", "send its fields beside the prompt", {"{}"}),
      Refused("system_prompt", "send it as a message of the system", {"\"\""}),
      Refused("guideline", "templates are the operator's", {"\"\""}),
      Refused("task", "templates are the operator's; send chat_template_kwargs"),
      Refused("safe_prompt", "templates are the operator's; send a message of the system",
              {"false"}),
      Refused("lora_request", kExtension, {"{}"}),
      Refused("adapter_id", kExtension, {"\"\""}),
      Refused("adapter_name", kExtension, {"\"\""}),
      NoEffect("adaptive_decay", "Acts only with adaptive_target, which is refused"),
      NoEffect("ngram_corpus_id", "Makes servers faster that guess tokens, not different"),
      NoEffect("custom_labels", "Metrics have the key's name"),
      NoEffect("n_cache_reuse", "Prompts are reused by their tokens"),
      NoEffect("sse_ping_interval", "The operator's setting server.sse_keepalive says"),
      NoEffect("mirostat_tau", kOfMirostat),
      NoEffect("mirostat_eta", kOfMirostat),
      NoEffect("dynatemp_exponent", "Acts only with dynatemp_range, which is refused"),
      NoEffect("dry_base", "Acts only with dry_multiplier, which is refused"),
      NoEffect("dry_allowed_length", "Acts only with dry_multiplier, which is refused"),
      NoEffect("dry_penalty_last_n", "Acts only with dry_multiplier, which is refused"),
      NoEffect("dry_sequence_breakers", "Acts only with dry_multiplier, which is refused"),
      NoEffect("xtc_threshold", "Acts only with xtc_probability, which is refused"),
      NoEffect("user", "Names the client's own user", kAtGeneration),
      NoEffect("safety_identifier", "Names the client's own user", kAtGeneration),
      NoEffect("metadata", "The client's own notes", kAtCompletions),
      NoEffect("store", "Answers of this endpoint are not stored", kAtCompletions),
      NoEffect("service_tier", "All requests are served alike"),
      NoEffect("moderation", "Answers are not moderated"),
      NoEffect("prompt_cache_key", "Prompts are reused by their tokens", kAtGeneration),
      NoEffect("prompt_cache_retention", "Prompts are reused as long as there is room"),
      NoEffect("cache_prompt", "Prompts are reused by their tokens"),
      NoEffect("skip_reading_prefix_cache", "Prompts are reused by their tokens"),
      NoEffect("verbosity", "A control of OpenAI's own models; no served model has it"),
      NoEffect("prediction", "Makes OpenAI's own models faster, not different"),
      NoEffect("web_search_options", "A control of OpenAI's own search models"),
      NoEffect("request_id", "Send the header X-Request-Id, which the answer has too"),
      NoEffect("rid", "Send the header X-Request-Id, which the answer has too"),
      NoEffect("session_id", "The router chooses workers"),
      NoEffect("data_parallel_rank", "The router chooses workers"),
      NoEffect("id_slot", "The router chooses workers"),
      NoEffect("n_keep", "The context is not shifted"),
      NoEffect("n_discard", "The context is not shifted"),
  };
  return kRows;
}

}  // namespace baton
