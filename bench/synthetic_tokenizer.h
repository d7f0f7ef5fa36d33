// A tokenizer.json of any size, for measurements that need a large vocabulary and no model: bytes,
// then words of random syllables with and without a space in front, capitals, numbers of up to
// three digits, runs of spaces and pieces of JSON, in about the shares of a byte-level BPE
// vocabulary. It decodes and makes masks; it has no merges, so it cannot encode well.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

// vocab: 2,048 or more. The last id is the special token "<|end|>". A function of its arguments.
std::string SyntheticTokenizerJson(int vocab, uint64_t seed);

}  // namespace baton
