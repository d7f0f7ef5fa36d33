#include "server/api/endpoints/answer_schemas.h"

namespace baton {
namespace {

constexpr NamedSchema kSchemas[] = {
    {"Message",
     R"({"type":"object","required":["role"],"properties":{"role":{"type":"string","enum":[)"
     R"("developer","system","user","assistant","tool","function"]},"content":{"anyOf":[)"
     R"({"type":"string"},{"type":"array","items":{"$ref":"#/components/schemas/TextPart"}},)"
     R"({"type":"null"}]},"name":{"type":"string"},"tool_call_id":{"type":"string"},)"
     R"("tool_calls":{"anyOf":[{"type":"array","items":{"$ref":"#/components/schemas/ToolCall"}},)"
     R"({"type":"null"}]}}})"},
    {"TextPart",
     R"({"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},)"
     R"("text":{"type":"string"}}})"},
    {"Tool",
     R"({"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},)"
     R"("function":{"type":"object","required":["name"],"properties":{"name":{"type":"string",)"
     R"("minLength":1},"description":{"type":["string","null"]},)"
     R"("parameters":{"type":["object","null"]},"strict":{"type":["boolean","null"]}}}}})"},
    {"ToolCall",
     R"({"type":"object","required":["function"],"properties":{"id":{"type":"string"},)"
     R"("type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":{)"
     R"("name":{"type":"string"},"arguments":{"type":["string","object","null"]}}}}})"},
    {"ToolCallPiece",
     R"({"type":"object","required":["index","function"],"properties":{"index":{"type":"integer",)"
     R"("minimum":0},"id":{"type":"string"},"type":{"const":"function"},"function":{)"
     R"("type":"object","required":["arguments"],"properties":{"name":{"type":"string"},)"
     R"("arguments":{"type":"string"}}}}})"},
    {"Error",
     R"({"type":"object","required":["error"],"properties":{"error":{"type":"object","required":[)"
     R"("message","type","param","code"],"properties":{"message":{"type":"string"},)"
     R"("type":{"type":"string","enum":["invalid_request_error","rate_limit_error",)"
     R"("server_error"]},"param":{"type":["string","null"]},"code":{"type":["string","null"]},)"
     R"("n_prompt_tokens":{"type":"integer"},"n_ctx":{"type":"integer"}}}}})"},
    {"Usage",
     R"({"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],)"
     R"("properties":{"prompt_tokens":{"type":"integer","minimum":0},)"
     R"("completion_tokens":{"type":"integer","minimum":0},)"
     R"("total_tokens":{"type":"integer","minimum":0},"prompt_tokens_details":{"type":"object",)"
     R"("properties":{"cached_tokens":{"type":"integer","minimum":0}}},)"
     R"("completion_tokens_details":{"type":"object","properties":{"reasoning_tokens":{)"
     R"("type":"integer","minimum":0}}}}})"},
    {"UsageOrNull", R"({"anyOf":[{"$ref":"#/components/schemas/Usage"},{"type":"null"}]})"},
    {"FinishReason", R"({"enum":["stop","length","tool_calls",null]})"},
    {"StopReason", R"({"type":["string","integer","null"]})"},
    {"TokenIds", R"({"type":"array","items":{"type":"integer","minimum":0}})"},
    {"TokenLogprob",
     R"({"type":"object","required":["token","logprob","bytes"],"properties":{)"
     R"("token":{"type":"string"},"logprob":{"type":"number"},"bytes":{"anyOf":[{"type":"array",)"
     R"("items":{"type":"integer","minimum":0,"maximum":255}},{"type":"null"}]},)"
     R"("top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}})"},
    {"PromptLogprobs",
     R"({"type":"array","items":{"anyOf":[{"type":"null"},{"type":"object","propertyNames":{)"
     R"("pattern":"^[0-9]+$"},"additionalProperties":{"type":"object","required":["logprob",)"
     R"("rank","decoded_token"],"properties":{"logprob":{"type":"number"},"rank":{)"
     R"("type":"integer","minimum":1},"decoded_token":{"type":["string","null"]}}}}]}})"},
    {"ChatLogprobs",
     R"({"anyOf":[{"type":"null"},{"type":"object","required":["content"],"properties":{)"
     R"("content":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}},)"
     R"("refusal":{"type":"null"}}}]})"},
    {"CompletionLogprobs",
     R"({"anyOf":[{"type":"null"},{"type":"object","required":["tokens","token_logprobs",)"
     R"("top_logprobs","text_offset"],"properties":{"tokens":{"type":"array","items":{)"
     R"("type":"string"}},"token_logprobs":{"type":"array","items":{"type":["number","null"]}},)"
     R"("top_logprobs":{"anyOf":[{"type":"null"},{"type":"array","items":{"anyOf":[)"
     R"({"type":"null"},{"type":"object","additionalProperties":{"type":"number"}}]}}]},)"
     R"("text_offset":{"type":"array","items":{"type":"integer","minimum":0}}}}]})"},
    {"Completion",
     R"({"type":"object","required":["id","object","created","model","choices"],"properties":{)"
     R"("id":{"type":"string","pattern":"^cmpl-"},"object":{"const":"text_completion"},)"
     R"("created":{"type":"integer"},"model":{"type":"string"},)"
     R"("system_fingerprint":{"type":["string","null"]},"choices":{"type":"array","items":{)"
     R"("type":"object","required":["index","text","logprobs","finish_reason"],"properties":{)"
     R"("index":{"type":"integer","minimum":0},"text":{"type":"string"},)"
     R"("logprobs":{"$ref":"#/components/schemas/CompletionLogprobs"},)"
     R"("finish_reason":{"$ref":"#/components/schemas/FinishReason"},)"
     R"("stop_reason":{"$ref":"#/components/schemas/StopReason"},)"
     R"("token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("baton_digests":{"type":"array","items":{"type":"string"}},)"
     R"("prompt_token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"}}}},)"
     R"("usage":{"$ref":"#/components/schemas/UsageOrNull"},"timings":{"type":"object"}}})"},
    {"ChatCompletion",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],)"
     R"("properties":{"id":{"type":"string","pattern":"^chatcmpl-"},)"
     R"("object":{"const":"chat.completion"},"created":{"type":"integer"},)"
     R"("model":{"type":"string"},"system_fingerprint":{"type":["string","null"]},)"
     R"("choices":{"type":"array","items":{"type":"object","required":["index","message",)"
     R"("logprobs","finish_reason"],"properties":{"index":{"type":"integer","minimum":0},)"
     R"("message":{"type":"object","required":["role","content"],"properties":{)"
     R"("role":{"const":"assistant"},"content":{"type":["string","null"]},)"
     R"("refusal":{"type":"null"},"reasoning":{"type":"string"},)"
     R"("reasoning_content":{"type":"string"},"tool_calls":{"type":"array","items":{)"
     R"("$ref":"#/components/schemas/ToolCall"}}}},)"
     R"("logprobs":{"$ref":"#/components/schemas/ChatLogprobs"},)"
     R"("finish_reason":{"$ref":"#/components/schemas/FinishReason"},)"
     R"("stop_reason":{"$ref":"#/components/schemas/StopReason"},)"
     R"("token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("baton_digests":{"type":"array","items":{"type":"string"}}}}},)"
     R"("prompt_token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},)"
     R"("usage":{"$ref":"#/components/schemas/Usage"},"timings":{"type":"object"},)"
     R"("metadata":{"type":"object"}}})"},
    {"ChatCompletionChunk",
     R"({"type":"object","required":["id","object","created","model","choices"],"properties":{)"
     R"("id":{"type":"string","pattern":"^chatcmpl-"},"object":{"const":"chat.completion.chunk"},)"
     R"("created":{"type":"integer"},"model":{"type":"string"},)"
     R"("system_fingerprint":{"type":["string","null"]},"choices":{"type":"array","items":{)"
     R"("type":"object","required":["index","delta","finish_reason"],"properties":{)"
     R"("index":{"type":"integer","minimum":0},"delta":{"type":"object","properties":{)"
     R"("role":{"const":"assistant"},"content":{"type":["string","null"]},)"
     R"("reasoning":{"type":"string"},"reasoning_content":{"type":"string"},)"
     R"("tool_calls":{"type":"array","items":{"$ref":"#/components/schemas/ToolCallPiece"}}}},)"
     R"("logprobs":{"$ref":"#/components/schemas/ChatLogprobs"},)"
     R"("finish_reason":{"$ref":"#/components/schemas/FinishReason"},)"
     R"("stop_reason":{"$ref":"#/components/schemas/StopReason"},)"
     R"("token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("baton_digests":{"type":"array","items":{"type":"string"}}}}},)"
     R"("prompt_token_ids":{"$ref":"#/components/schemas/TokenIds"},)"
     R"("prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},)"
     R"("usage":{"$ref":"#/components/schemas/UsageOrNull"},"timings":{"type":"object"}}})"},
    {"AnthropicBlock",
     R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text","thinking",)"
     R"("tool_use"]},"text":{"type":"string"},"thinking":{"type":"string"},)"
     R"("signature":{"type":"string"},"id":{"type":"string"},"name":{"type":"string"},)"
     R"("input":{"type":"object"}}})"},
    {"AnthropicUsage",
     R"({"type":"object","required":["input_tokens","output_tokens"],"properties":{)"
     R"("input_tokens":{"type":"integer","minimum":0},"output_tokens":{"type":"integer",)"
     R"("minimum":0},"cache_read_input_tokens":{"type":"integer","minimum":0},)"
     R"("cache_creation_input_tokens":{"type":"integer","minimum":0}}})"},
    {"AnthropicMessage",
     R"({"type":"object","required":["id","type","role","model","content","stop_reason",)"
     R"("stop_sequence","usage"],"properties":{"id":{"type":"string","pattern":"^msg_"},)"
     R"("type":{"const":"message"},"role":{"const":"assistant"},"model":{"type":"string"},)"
     R"("content":{"type":"array","items":{"$ref":"#/components/schemas/AnthropicBlock"}},)"
     R"("stop_reason":{"enum":["end_turn","max_tokens","stop_sequence","tool_use",null]},)"
     R"("stop_sequence":{"type":["string","null"]},)"
     R"("usage":{"$ref":"#/components/schemas/AnthropicUsage"}}})"},
    {"AnthropicDelta",
     R"({"type":"object","required":["type"],"properties":{"type":{"enum":["text_delta",)"
     R"("thinking_delta","input_json_delta"]},"text":{"type":"string"},)"
     R"("thinking":{"type":"string"},"partial_json":{"type":"string"}}})"},
    {"AnthropicEvent",
     R"({"oneOf":[{"type":"object","required":["type","message"],"properties":{)"
     R"("type":{"const":"message_start"},)"
     R"("message":{"$ref":"#/components/schemas/AnthropicMessage"}}},)"
     R"({"type":"object","required":["type","index","content_block"],"properties":{)"
     R"("type":{"const":"content_block_start"},"index":{"type":"integer","minimum":0},)"
     R"("content_block":{"$ref":"#/components/schemas/AnthropicBlock"}}},)"
     R"({"type":"object","required":["type","index","delta"],"properties":{)"
     R"("type":{"const":"content_block_delta"},"index":{"type":"integer","minimum":0},)"
     R"("delta":{"$ref":"#/components/schemas/AnthropicDelta"}}},)"
     R"({"type":"object","required":["type","index"],"properties":{)"
     R"("type":{"const":"content_block_stop"},"index":{"type":"integer","minimum":0}}},)"
     R"({"type":"object","required":["type","delta","usage"],"properties":{)"
     R"("type":{"const":"message_delta"},"delta":{"type":"object","required":["stop_reason",)"
     R"("stop_sequence"],"properties":{"stop_reason":{"enum":["end_turn","max_tokens",)"
     R"("stop_sequence","tool_use"]},"stop_sequence":{"type":["string","null"]}}},)"
     R"("usage":{"$ref":"#/components/schemas/AnthropicUsage"}}},)"
     R"({"type":"object","required":["type"],"properties":{"type":{"const":"message_stop"}}},)"
     R"({"$ref":"#/components/schemas/AnthropicError"}]})"},
    {"AnthropicError", R"({"type":"object","required":["type","error","request_id"],"properties":{)"
                       R"("type":{"const":"error"},"request_id":{"type":["string","null"]},)"
                       R"("error":{"type":"object","required":["type","message"],"properties":{)"
                       R"("type":{"type":"string"},"message":{"type":"string"}}}}})"},
    {"TokenCount", R"({"type":"object","required":["input_tokens"],"properties":{)"
                   R"("input_tokens":{"type":"integer","minimum":0}}})"},
    {"Model", R"({"type":"object","required":["id","object","created","owned_by"],"properties":{)"
              R"("id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},)"
              R"("owned_by":{"type":"string"},"root":{"type":"string"},"parent":{"type":"null"},)"
              R"("max_model_len":{"type":"integer"},"meta":{"type":"object"}}})"},
    {"ModelList",
     R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},)"
     R"("data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})"},
    {"Tokens",
     R"({"type":"object","required":["tokens"],"properties":{"count":{"type":"integer"},)"
     R"("max_model_len":{"type":"integer"},"tokens":{"type":"array","items":{"anyOf":[)"
     R"({"type":"integer"},{"type":"object","required":["id","piece"],"properties":{)"
     R"("id":{"type":"integer"},"piece":{"anyOf":[{"type":"string"},{"type":"array","items":{)"
     R"("type":"integer"}}]}}}]}},"token_strs":{"anyOf":[{"type":"null"},{"type":"array",)"
     R"("items":{"type":"string"}}]}}})"},
    {"Text", R"({"type":"object","required":["prompt","content"],"properties":{)"
             R"("prompt":{"type":"string"},"content":{"type":"string"}}})"},
    {"Prompt",
     R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})"},
    {"Cluster",
     R"({"type":"object","required":["object","model","ready","workers","requests","kv_pages",)"
     R"("broken_links"],"properties":{"object":{"const":"cluster"},"model":{"type":"string"},)"
     R"("ready":{"type":"boolean"},"draining":{"type":"boolean"},)"
     R"("max_context":{"type":"integer"},"model_fingerprint":{"type":"string"},)"
     R"("numerics_id":{"type":"string"},"workers":{"type":"object"},)"
     R"("requests":{"type":"object"},"kv_pages":{"type":"object"},)"
     R"("broken_links":{"type":"array","items":{"type":"object","required":["from","to"],)"
     R"("properties":{"from":{"type":"string"},"to":{"type":"string"}}}}}})"},
    {"ClusterLive",
     R"({"type":"object","required":["object","cursor","now","workers","requests","second",)"
     R"("ttft","itl","running","finished"],"properties":{"object":{"const":"cluster.live"},)"
     R"("cursor":{"type":"string"},"now":{"type":"number"},"workers":{"type":"array",)"
     R"("items":{"type":"object"}},"requests":{"type":"object"},"second":{"type":"integer"},)"
     R"("ttft":{"type":"array","items":{"type":"array"}},)"
     R"("itl":{"type":"array","items":{"type":"array"}},)"
     R"("running":{"type":"array","items":{"type":"object"}},)"
     R"("finished":{"type":"array","items":{"type":"object"}}}})"},
    {"Load", R"({"type":"object","required":["server_load"],"properties":{"server_load":{)"
             R"("type":"integer","minimum":0}}})"},
    {"Health", R"({"type":"object","required":["status"],"properties":{"status":{"const":"ok"}}})"},
    {"Version",
     R"({"type":"object","required":["version"],"properties":{"version":{"type":"string"}}})"},
};

}  // namespace

std::span<const NamedSchema> NamedSchemas() { return kSchemas; }

}  // namespace baton
