// JSON Schemas of /v1/responses and of lists of what is stored.
#include "server/api/endpoints/answer_schemas.h"

namespace baton {
namespace {

constexpr NamedSchema kSchemas[] = {
    {"ResponseText",
     R"({"type":"object","required":["type","annotations","logprobs","text"],)"
     R"("properties":{"type":{"const":"output_text"},"annotations":{"type":"array"},)"
     R"("logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}},)"
     R"("text":{"type":"string"}}})"},
    {"ResponseReasoningText",
     R"({"type":"object","required":["type","text"],)"
     R"("properties":{"type":{"const":"reasoning_text"},"text":{"type":"string"}}})"},
    {"ResponsePart", R"({"oneOf":[{"$ref":"#/components/schemas/ResponseText"},)"
                     R"({"$ref":"#/components/schemas/ResponseReasoningText"}]})"},
    {"ResponseItem",
     R"({"oneOf":[{"type":"object","required":["id","type","status","role","content"],)"
     R"("properties":{"id":{"type":"string"},"type":{"const":"message"},)"
     R"("status":{"enum":["in_progress","completed","incomplete"]},"role":{"const":"assistant"},)"
     R"("content":{"type":"array","items":{"$ref":"#/components/schemas/ResponseText"}}}},)"
     R"({"type":"object","required":["id","type","status","summary","content"],)"
     R"("properties":{"id":{"type":"string"},"type":{"const":"reasoning"},)"
     R"("status":{"enum":["in_progress","completed","incomplete"]},"summary":{"type":"array",)"
     R"("maxItems":0},"content":{"type":"array",)"
     R"("items":{"$ref":"#/components/schemas/ResponseReasoningText"}}}},{"type":"object",)"
     R"("required":["id","type","status","call_id","name","arguments"],)"
     R"("properties":{"id":{"type":"string"},"type":{"const":"function_call"},)"
     R"("status":{"enum":["in_progress","completed","incomplete"]},"call_id":{"type":"string"},)"
     R"("name":{"type":"string"},"arguments":{"type":"string"}}},{"type":"object",)"
     R"("required":["id","type","call_id","name","input"],"properties":{"id":{"type":"string"},)"
     R"("type":{"const":"custom_tool_call"},"call_id":{"type":"string"},"name":{"type":"string"},)"
     R"("input":{"type":"string"}}}]})"},
    {"ResponseUsage",
     R"({"type":"object","required":["input_tokens","input_tokens_details","output_tokens",)"
     R"("output_tokens_details","total_tokens"],"properties":{"input_tokens":{"type":"integer",)"
     R"("minimum":0},"input_tokens_details":{"type":"object","required":["cached_tokens",)"
     R"("cache_write_tokens"],"properties":{"cached_tokens":{"type":"integer","minimum":0},)"
     R"("cache_write_tokens":{"type":"integer","minimum":0}}},"output_tokens":{"type":"integer",)"
     R"("minimum":0},"output_tokens_details":{"type":"object","required":["reasoning_tokens"],)"
     R"("properties":{"reasoning_tokens":{"type":"integer","minimum":0}}},)"
     R"("total_tokens":{"type":"integer","minimum":0}}})"},
    {"Response",
     R"({"type":"object","required":["id","object","created_at","status","background","error",)"
     R"("incomplete_details","instructions","max_output_tokens","max_tool_calls","metadata",)"
     R"("model","parallel_tool_calls","previous_response_id","prompt_cache_key","reasoning",)"
     R"("safety_identifier","service_tier","store","temperature","text","tool_choice","tools",)"
     R"("top_logprobs","top_p","truncation","user","output","usage"],)"
     R"("properties":{"id":{"type":"string","pattern":"^resp_"},"object":{"const":"response"},)"
     R"("created_at":{"type":"integer","minimum":0},"status":{"enum":["in_progress","completed",)"
     R"("incomplete","cancelled","failed"]},"background":{"const":false},)"
     R"("error":{"anyOf":[{"type":"object","required":["code","message"],)"
     R"("properties":{"code":{"enum":["server_error","rate_limit_exceeded"]},)"
     R"("message":{"type":"string"}}},{"type":"null"}]},)"
     R"("incomplete_details":{"anyOf":[{"type":"object","required":["reason"],)"
     R"("properties":{"reason":{"const":"max_output_tokens"}}},{"type":"null"}]},)"
     R"("instructions":{"type":["string","null"]},"max_output_tokens":{"type":["integer",)"
     R"("null"]},"max_tool_calls":{"type":"null"},"metadata":{"type":"object"},)"
     R"("model":{"type":"string"},"parallel_tool_calls":{"type":"boolean"},)"
     R"("previous_response_id":{"type":["string","null"]},"prompt_cache_key":{"type":["string",)"
     R"("null"]},"reasoning":{"type":"object","required":["effort","summary"],)"
     R"("properties":{"effort":{"type":["string","null"]},"summary":{"type":"null"}}},)"
     R"("safety_identifier":{"type":["string","null"]},"service_tier":{"const":"default"},)"
     R"("store":{"type":"boolean"},"temperature":{"type":"number"},"text":{"type":"object",)"
     R"("required":["format"],"properties":{"format":{"type":"object"},)"
     R"("verbosity":{"type":["string","null"]}}},"tool_choice":{"type":["string","object"]},)"
     R"("tools":{"type":"array","items":{"type":"object"}},"top_logprobs":{"type":"integer",)"
     R"("minimum":0},"top_p":{"type":"number"},"truncation":{"enum":["auto","disabled"]},)"
     R"("user":{"type":["string","null"]},"output":{"type":"array",)"
     R"("items":{"$ref":"#/components/schemas/ResponseItem"}},)"
     R"("usage":{"anyOf":[{"$ref":"#/components/schemas/ResponseUsage"},{"type":"null"}]}}})"},
    {"ResponseLogprob",
     R"({"type":"object","required":["token","logprob","top_logprobs"],)"
     R"("properties":{"token":{"type":"string"},"logprob":{"type":"number"},)"
     R"("top_logprobs":{"type":"array","items":{"type":"object","required":["token","logprob"],)"
     R"("properties":{"token":{"type":"string"},"logprob":{"type":"number"}}}}}})"},
    {"ResponseEvent",
     R"({"oneOf":[{"type":"object","required":["type","sequence_number","response"],)"
     R"("properties":{"type":{"enum":["response.created","response.in_progress",)"
     R"("response.completed","response.incomplete","response.failed"]},)"
     R"("sequence_number":{"type":"integer","minimum":0},)"
     R"("response":{"$ref":"#/components/schemas/Response"}}},{"type":"object",)"
     R"("required":["type","sequence_number","output_index","item"],)"
     R"("properties":{"type":{"enum":["response.output_item.added","response.output_item.done"]},)"
     R"("sequence_number":{"type":"integer","minimum":0},"output_index":{"type":"integer",)"
     R"("minimum":0},"item":{"$ref":"#/components/schemas/ResponseItem"}}},{"type":"object",)"
     R"("required":["type","sequence_number","item_id","output_index","content_index","part"],)"
     R"("properties":{"type":{"enum":["response.content_part.added",)"
     R"("response.content_part.done"]},"sequence_number":{"type":"integer","minimum":0},)"
     R"("item_id":{"type":"string"},"output_index":{"type":"integer","minimum":0},)"
     R"("content_index":{"type":"integer","minimum":0},)"
     R"("part":{"$ref":"#/components/schemas/ResponsePart"}}},{"type":"object",)"
     R"("required":["type","sequence_number","item_id","output_index","content_index","delta",)"
     R"("logprobs"],"properties":{"type":{"const":"response.output_text.delta"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"content_index":{"type":"integer",)"
     R"("minimum":0},"delta":{"type":"string"},"logprobs":{"type":"array",)"
     R"("items":{"$ref":"#/components/schemas/ResponseLogprob"}}}},{"type":"object",)"
     R"("required":["type","sequence_number","item_id","output_index","content_index","text",)"
     R"("logprobs"],"properties":{"type":{"const":"response.output_text.done"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"content_index":{"type":"integer",)"
     R"("minimum":0},"text":{"type":"string"},"logprobs":{"type":"array",)"
     R"("items":{"$ref":"#/components/schemas/ResponseLogprob"}}}},{"type":"object",)"
     R"("required":["type","sequence_number","item_id","output_index","content_index","delta"],)"
     R"("properties":{"type":{"const":"response.reasoning_text.delta"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"content_index":{"type":"integer",)"
     R"("minimum":0},"delta":{"type":"string"}}},{"type":"object","required":["type",)"
     R"("sequence_number","item_id","output_index","content_index","text"],)"
     R"("properties":{"type":{"const":"response.reasoning_text.done"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"content_index":{"type":"integer",)"
     R"("minimum":0},"text":{"type":"string"}}},{"type":"object","required":["type",)"
     R"("sequence_number","item_id","output_index","delta"],)"
     R"("properties":{"type":{"enum":["response.function_call_arguments.delta",)"
     R"("response.custom_tool_call_input.delta"]},"sequence_number":{"type":"integer",)"
     R"("minimum":0},"item_id":{"type":"string"},"output_index":{"type":"integer","minimum":0},)"
     R"("delta":{"type":"string"}}},{"type":"object","required":["type","sequence_number",)"
     R"("item_id","output_index","name","arguments"],)"
     R"("properties":{"type":{"const":"response.function_call_arguments.done"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"name":{"type":"string"},)"
     R"("arguments":{"type":"string"}}},{"type":"object","required":["type","sequence_number",)"
     R"("item_id","output_index","input"],)"
     R"("properties":{"type":{"const":"response.custom_tool_call_input.done"},)"
     R"("sequence_number":{"type":"integer","minimum":0},"item_id":{"type":"string"},)"
     R"("output_index":{"type":"integer","minimum":0},"input":{"type":"string"}}}]})"},
    {"InputItemList",
     R"({"type":"object","required":["object","data","first_id","last_id","has_more"],)"
     R"("properties":{"object":{"const":"list"},"data":{"type":"array","items":{"type":"object",)"
     R"("required":["id","type"]}},"first_id":{"type":["string","null"]},)"
     R"("last_id":{"type":["string","null"]},"has_more":{"type":"boolean"}}})"},
    {"ChatCompletionList",
     R"({"type":"object","required":["object","data","first_id","last_id","has_more"],)"
     R"("properties":{"object":{"const":"list"},"data":{"type":"array",)"
     R"("items":{"$ref":"#/components/schemas/ChatCompletion"}},"first_id":{"type":["string",)"
     R"("null"]},"last_id":{"type":["string","null"]},"has_more":{"type":"boolean"}}})"},
    {"StoredMessageList",
     R"({"type":"object","required":["object","data","first_id","last_id","has_more"],)"
     R"("properties":{"object":{"const":"list"},"data":{"type":"array","items":{"type":"object",)"
     R"("required":["id","role"]}},"first_id":{"type":["string","null"]},)"
     R"("last_id":{"type":["string","null"]},"has_more":{"type":"boolean"}}})"},
    {"Deleted", R"({"type":"object","required":["id","object","deleted"],)"
                R"("properties":{"id":{"type":"string"},"object":{"enum":["response",)"
                R"("chat.completion.deleted"]},"deleted":{"const":true}}})"},
};

}  // namespace

std::span<const NamedSchema> StoredSchemas() { return kSchemas; }

}  // namespace baton
