// Members of a chat's message that hold the model's reasoning: clients of SGLang, llama.cpp and
// DeepSeek read `reasoning_content`, those of vLLM and OpenRouter `reasoning`. A client that shows
// every member it gets would show both, hence a setting (server.reasoning_names). Plain data.
#pragma once

namespace baton {

enum class ReasoningNames { kBoth, kReasoningContent, kReasoning };

}  // namespace baton
