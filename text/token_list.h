// A tokenizer given as a list of tokens with their types and merges or scores, as GGUF files have
// it, and the tokenizer.json that says the same. Pure; any thread.
//
//   gpt2   byte-level BPE: tokens in the byte alphabet of GPT-2, merges "left right" by rank, and
//          the name (`pre`) of the way texts are split into words first
//   llama  SentencePiece BPE: tokens with U+2581 for a space, scores; the best score merges first.
//          Its merges are all pairs of tokens that make up a token, by score
// Sources: github.com/ggml-org/llama.cpp src/llama-vocab.cpp (types, names, splits, defaults);
// github.com/huggingface/transformers src/transformers/convert_slow_tokenizer.py (merges by score).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// The texts belong to the caller.
struct TokenList {
  enum Type : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };
  std::string_view model;                      // "gpt2", "llama"
  std::string_view pre;                        // gpt2
  std::vector<std::string_view> tokens;        // index: id
  std::vector<int64_t> types;                  // (tokens), or empty: all normal
  std::vector<std::string_view> merges;        // gpt2
  std::vector<double> scores;                  // (tokens), llama
  std::optional<int64_t> begin, end, unknown;  // ids
  std::optional<bool> adds_begin, adds_end;    // to a plain text; absent: the model's default
  std::optional<bool> adds_space;              // llama, before a text; absent: yes
};

// Returns the text for Tokenizer::FromJson. InvalidArgument says what is wrong or not supported,
// and which values are supported.
absl::StatusOr<std::string> TokenizerJson(const TokenList& list);

}  // namespace baton
