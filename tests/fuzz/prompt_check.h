// Checks of prompts that chat templates render, whatever the template and the conversation are.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/check.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"

namespace baton {

// The special tokens of the templates in tests/data, as Tokenizer::SpecialTokens has them.
inline constexpr const char* kSpecials[] = {"<|im_start|>",
                                            "<|im_end|>",
                                            "<s>",
                                            "</s>",
                                            "[INST]",
                                            "[/INST]",
                                            "<|eot_id|>",
                                            "<|start_header_id|>",
                                            "<|end_header_id|>",
                                            "<|begin_of_text|>",
                                            "<start_of_turn>",
                                            "<end_of_turn>",
                                            "<bos>",
                                            "<|user|>",
                                            "<|assistant|>",
                                            "<|end|>",
                                            "<|system|>",
                                            "[TOOL_CALLS]"};
inline constexpr char kSpecialTokens[] =
    R"(["<|im_start|>","<|im_end|>","<s>","</s>","[INST]","[/INST]","<|eot_id|>",)"
    R"("<|start_header_id|>","<|end_header_id|>","<|begin_of_text|>","<start_of_turn>",)"
    R"("<end_of_turn>","<bos>","<|user|>","<|assistant|>","<|end|>","<|system|>","[TOOL_CALLS]"])";
inline constexpr char kTemplateNames[] = R"({"bos_token":"<s>","eos_token":"</s>"})";

// Controls are special tokens of the text, in order.
inline void CheckPrompt(const PromptText& prompt) {
  BATON_CHECK(ValidUtf8(prompt.text) == prompt.text);
  BATON_CHECK(prompt.controls.has_value());
  uint32_t end = 0;
  for (const PromptText::Place& place : *prompt.controls) {
    BATON_CHECK(place.begin >= end && place.end > place.begin && place.end <= prompt.text.size());
    end = place.end;
    const auto token = std::string_view(prompt.text).substr(place.begin, place.end - place.begin);
    BATON_CHECK(std::find(std::begin(kSpecials), std::end(kSpecials), token) !=
                std::end(kSpecials));
  }
}

// The errors that Render has for what a template or a conversation is.
inline bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace baton
