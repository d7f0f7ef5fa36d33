#include "engine/cuda/device/metadata_block.h"

#include <cstring>

#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kNumber = sizeof(int32_t);

class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  void Put(int32_t number) {
    std::memcpy(to_, &number, kNumber);
    to_ += kNumber;
  }
  void Put(std::span<const int32_t> numbers) {
    for (const int32_t number : numbers) Put(number);
  }
  std::byte* at() const { return to_; }

 private:
  std::byte* to_;
};

}  // namespace

int64_t BlockCounts::bytes() const {
  const int64_t numbers =
      int64_t{2} * n_tokens + int64_t{3} * n_pieces + 2 + n_pages + n_logits + n_scored;
  return static_cast<int64_t>(sizeof(BlockCounts)) + numbers * kNumber;
}

BlockCounts CountsOf(const StepBatch& batch, const Padding& padding) {
  return {batch.n_tokens() + padding.n_rows, batch.n_pieces() + padding.n_rows,
          static_cast<int32_t>(batch.pages.size()) + padding.n_rows,
          static_cast<int32_t>(batch.logit_rows.size()) + padding.n_rows,
          static_cast<int32_t>(batch.scored_rows.size())};
}

BlockCounts MaxCounts(int max_tokens, int max_pieces, int max_pages) {
  return {max_tokens, max_pieces, max_pieces * max_pages, max_tokens, max_tokens};
}

void WriteBlock(const StepBatch& batch, const Padding& padding, std::byte* to) {
  const int n = batch.n_tokens();
  BATON_CHECK(padding.n_rows == 0 || (static_cast<int>(batch.logit_rows.size()) == n &&
                                      batch.n_pieces() == n && batch.scored_rows.empty()));
  const BlockCounts counts = CountsOf(batch, padding);
  std::memcpy(to, &counts, sizeof(counts));
  Writer writer(to + sizeof(counts));
  const auto pad = [&](const auto& number) {
    for (int i = 0; i < padding.n_rows; ++i) writer.Put(number(i));
  };
  const auto pages = static_cast<int32_t>(batch.pages.size());
  writer.Put(batch.tokens);
  pad([](int) { return 0; });
  writer.Put(batch.positions);
  pad([](int) { return 0; });
  writer.Put(batch.piece_begin);
  pad([&](int i) { return n + i + 1; });
  writer.Put(batch.page_begin);
  pad([&](int i) { return pages + i + 1; });
  writer.Put(batch.pages);
  pad([&](int) { return padding.page; });
  writer.Put(batch.logit_rows);
  pad([&](int i) { return n + i; });
  writer.Put(batch.scored_rows);
  for (const RopeRange rope : batch.ropes) writer.Put(static_cast<int32_t>(rope));
  pad([](int) { return static_cast<int32_t>(RopeRange::kShort); });
  BATON_CHECK(writer.at() == to + counts.bytes());
}

BlockStep::BlockStep(const BlockCounts& counts, const std::byte* block) {
  const std::byte* at = block + sizeof(counts);
  const auto take = [&](int32_t n, std::vector<int32_t>& numbers) {
    numbers.resize(static_cast<size_t>(n));
    std::memcpy(numbers.data(), at, static_cast<size_t>(n * kNumber));
    at += n * kNumber;
  };
  std::vector<int32_t> ropes;
  take(counts.n_tokens, tokens_);
  take(counts.n_tokens, positions_);
  take(counts.n_pieces + 1, piece_begin_);
  take(counts.n_pieces + 1, page_begin_);
  take(counts.n_pages, pages_);
  take(counts.n_logits, logit_rows_);
  take(counts.n_scored, scored_rows_);
  take(counts.n_pieces, ropes);
  for (const int32_t rope : ropes) ropes_.push_back(static_cast<RopeRange>(rope));
}

StepBatch BlockStep::batch() const {
  return {tokens_, positions_,  piece_begin_, page_begin_,
          pages_,  logit_rows_, ropes_,       scored_rows_};
}

}  // namespace baton
