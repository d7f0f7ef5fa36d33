#include "text/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/native.h"

namespace baton {

struct NativeTokenizer {
  baton_tokenizer* handle;
};

struct NativeSegmentCache {
  baton_segment_cache* handle;
};

namespace {

std::vector<int32_t> Taken(baton_ids ids) {
  std::vector<int32_t> result;
  if (ids.size > 0) result.assign(ids.data, ids.data + ids.size);
  baton_ids_free(ids);
  return result;
}

}  // namespace

SegmentCache::SegmentCache(size_t max_bytes)
    : native_(new NativeSegmentCache{baton_segment_cache_new(max_bytes)}) {}

SegmentCache::~SegmentCache() {
  baton_segment_cache_free(native_->handle);
  delete native_;
}

SegmentCache::Counts SegmentCache::counts() const {
  const baton_segment_cache_counts counts = baton_segment_cache_statistics(native_->handle);
  return {.bytes = counts.bytes, .hits = counts.hits, .misses = counts.misses};
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFolder(const std::string& folder) {
  return FromFile(folder + "/tokenizer.json");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, native::ReadFile(path));
  auto tokenizer = FromJson(json);
  if (!tokenizer.ok())
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(path, ": ", tokenizer.status().message()));
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  native::Bytes error;
  baton_tokenizer* handle = nullptr;
  RETURN_IF_ERROR(
      native::ToStatus(baton_tokenizer_new(native::View(json), &handle, error.out()), error));
  tokenizer->native_ = new NativeTokenizer{handle};

  baton_vocabulary vocabulary = {};
  RETURN_IF_ERROR(
      native::ToStatus(baton_tokenizer_vocabulary(handle, &vocabulary, error.out()), error));
  const native::Bytes bytes(vocabulary.bytes), flags(vocabulary.flags);
  tokenizer->bytes_ = bytes.view();
  tokenizer->flags_.assign(flags.view().begin(), flags.view().end());
  if (vocabulary.ends.size > 0)
    tokenizer->ends_.assign(vocabulary.ends.data, vocabulary.ends.data + vocabulary.ends.size);
  baton_offsets_free(vocabulary.ends);
  tokenizer->leading_space_ = static_cast<LeadingSpace>(vocabulary.leading_space);
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    tokenizer->longest_ = std::max(tokenizer->longest_, tokenizer->TokenBytes(id).size());
  return tokenizer;
}

Tokenizer::~Tokenizer() {
  if (native_ != nullptr) baton_tokenizer_free(native_->handle);
  delete native_;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeByCrate(std::string_view text,
                                                              bool add_special_tokens) const {
  native::Bytes error;
  baton_ids ids = {nullptr, 0};
  RETURN_IF_ERROR(
      native::ToStatus(baton_tokenizer_encode_by_crate(native_->handle, native::View(text),
                                                       add_special_tokens, &ids, error.out()),
                       error));
  return Taken(ids);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       bool add_special_tokens) const {
  return Encode(text, nullptr, add_special_tokens, {}, absl::InfiniteDuration());
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(const PromptText& prompt,
                                                       bool add_special_tokens,
                                                       CachedSegments cached,
                                                       absl::Duration limit) const {
  return Encode(prompt.text, prompt.controls ? &*prompt.controls : nullptr, add_special_tokens,
                cached, limit);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text, const std::vector<PromptText::Place>* controls, bool add_special_tokens,
    CachedSegments cached, absl::Duration limit) const {
  static_assert(sizeof(PromptText::Place) == 2 * sizeof(uint32_t));
  baton_prompt_view view = {};
  view.text = native::View(text);
  view.is_plain = controls == nullptr;
  view.limit_ns = native::LimitNs(limit);
  view.salt = cached.salt;
  if (controls != nullptr) {
    view.controls = reinterpret_cast<const uint32_t*>(controls->data());
    view.n_controls = controls->size();
  }
  native::Bytes error;
  baton_ids ids = {nullptr, 0};
  RETURN_IF_ERROR(native::ToStatus(
      baton_tokenizer_encode_prompt(
          native_->handle, &view, add_special_tokens,
          cached.cache == nullptr ? nullptr : cached.cache->native_->handle, &ids, error.out()),
      error));
  return Taken(ids);
}

absl::StatusOr<std::string> Tokenizer::SpecialTokens() const {
  native::Bytes error, tokens;
  RETURN_IF_ERROR(native::ToStatus(
      baton_tokenizer_special_tokens(native_->handle, tokens.out(), error.out()), error));
  return std::string(tokens.view());
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool skip_special_tokens) const {
  native::Bytes error, text;
  RETURN_IF_ERROR(
      native::ToStatus(baton_tokenizer_decode(native_->handle, ids.data(), ids.size(),
                                              skip_special_tokens, text.out(), error.out()),
                       error));
  return std::string(text.view());
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!InRange(id)) return {};
  const size_t index = static_cast<size_t>(id);
  const uint32_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::string_view(bytes_).substr(begin, ends_[index] - begin);
}

std::optional<int32_t> Tokenizer::IdOf(std::string_view token) const {
  const int32_t id = baton_tokenizer_id(native_->handle, native::View(token));
  if (id < 0) return std::nullopt;
  return id;
}

}  // namespace baton
