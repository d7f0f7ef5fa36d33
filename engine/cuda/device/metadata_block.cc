#include "engine/cuda/device/metadata_block.h"

#include <cstring>

#include "common/check.h"
#include "engine/kv/kv_pool.h"

namespace baton {
namespace {

constexpr int64_t kNumber = sizeof(int32_t);

int32_t PlanesOf(const KvLayout& layout) { return layout.planes_apart() ? layout.n_layers() : 0; }

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

// A page that its holder has trimmed keeps the frames that others need of it, and no page has none.
void WriteFrames(std::span<const int32_t> entries, int n_padding, const KvPages& pages,
                 Writer* writer) {
  const int n_planes = pages.layout->n_layers();
  for (const int32_t entry : entries) {
    const int32_t page = PageOf(entry);
    for (int plane = 0; plane < n_planes; ++plane)
      writer->Put(page == kNoPage ? -1 : pages.frames[int64_t{page} * n_planes + plane]);
  }
  for (int i = 0; i < n_padding; ++i)
    for (int plane = 0; plane < n_planes; ++plane) writer->Put(pages.n_pages * n_planes + plane);
}

}  // namespace

int64_t BlockCounts::bytes() const {
  const int64_t numbers = int64_t{2} * n_tokens + int64_t{3} * n_pieces + 2 + n_logits + n_scored +
                          int64_t{n_pages} * (1 + n_planes);
  return static_cast<int64_t>(sizeof(BlockCounts)) + numbers * kNumber;
}

BlockCounts CountsOf(const StepBatch& batch, int n_padding, const KvLayout& layout) {
  return {batch.n_tokens() + n_padding,
          batch.n_pieces() + n_padding,
          static_cast<int32_t>(batch.pages.size()) + n_padding,
          static_cast<int32_t>(batch.logit_rows.size()) + n_padding,
          static_cast<int32_t>(batch.scored_rows.size()),
          PlanesOf(layout)};
}

BlockCounts MaxCounts(int max_tokens, int max_pieces, int max_pages, const KvLayout& layout) {
  return {max_tokens, max_pieces, max_pieces * max_pages, max_tokens, max_tokens, PlanesOf(layout)};
}

void WriteBlock(const StepBatch& batch, int n_padding, const KvPages& pages, std::byte* to) {
  const int n = batch.n_tokens();
  BATON_CHECK(n_padding == 0 || (static_cast<int>(batch.logit_rows.size()) == n &&
                                 batch.n_pieces() == n && batch.scored_rows.empty()));
  const BlockCounts counts = CountsOf(batch, n_padding, *pages.layout);
  std::memcpy(to, &counts, sizeof(counts));
  Writer writer(to + sizeof(counts));
  const auto pad = [&](const auto& number) {
    for (int i = 0; i < n_padding; ++i) writer.Put(number(i));
  };
  const auto n_entries = static_cast<int32_t>(batch.pages.size());
  writer.Put(batch.tokens);
  pad([](int) { return 0; });
  writer.Put(batch.positions);
  pad([](int) { return 0; });
  writer.Put(batch.piece_begin);
  pad([&](int i) { return n + i + 1; });
  writer.Put(batch.page_begin);
  pad([&](int i) { return n_entries + i + 1; });
  writer.Put(batch.pages);
  pad([&](int) { return pages.n_ids; });
  if (counts.n_planes > 0) WriteFrames(batch.pages, n_padding, pages, &writer);
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
    if (n == 0) return;  // an empty vector's data may be null, which memcpy must not get
    std::memcpy(numbers.data(), at, static_cast<size_t>(n * kNumber));
    at += n * kNumber;
  };
  std::vector<int32_t> ropes;
  take(counts.n_tokens, tokens_);
  take(counts.n_tokens, positions_);
  take(counts.n_pieces + 1, piece_begin_);
  take(counts.n_pieces + 1, page_begin_);
  take(counts.n_pages, pages_);
  take(counts.n_pages * counts.n_planes, frames_);
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
