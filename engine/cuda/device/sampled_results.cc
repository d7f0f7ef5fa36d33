#include "engine/cuda/device/sampled_results.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/check.h"
#include "engine/cuda/sample_row.h"

namespace baton {
namespace {

// A row's fixed part; the list of log-probabilities follows it.
struct Record {
  uint64_t digest = 0;
  int32_t number = 0;  // the token, or the rank
  float logprob = 0;
  int32_t n_logprobs = 0;
  int32_t unused = 0;
};

// A GPU's sampler writes the same.
static_assert(sizeof(Record) == sizeof(SampleRowResult));
static_assert(offsetof(Record, number) == offsetof(SampleRowResult, token));
static_assert(offsetof(Record, n_logprobs) == offsetof(SampleRowResult, n_logprobs));

int64_t RecordBytes(int64_t n_logprobs) {
  return static_cast<int64_t>(sizeof(Record)) +
         n_logprobs * static_cast<int64_t>(sizeof(TokenLogprob));
}

int64_t BytesOf(const RowSampling& row) {
  if (row.sampling == nullptr) return 0;
  const SamplingParams& params = row.sampling->params();
  return RecordBytes(std::max(params.top_logprobs, 0) +
                     static_cast<int64_t>(params.logprob_tokens.size()));
}

void Write(Record record, std::span<const TokenLogprob> logprobs, int64_t room, std::byte* to) {
  record.n_logprobs = static_cast<int32_t>(logprobs.size());
  BATON_CHECK(RecordBytes(record.n_logprobs) <= room);
  std::memcpy(to, &record, sizeof(record));
  if (!logprobs.empty()) std::memcpy(to + sizeof(record), logprobs.data(), logprobs.size_bytes());
}

Record Read(const std::byte* from, int64_t room, std::vector<TokenLogprob>& logprobs) {
  Record record;
  std::memcpy(&record, from, sizeof(record));
  BATON_CHECK(record.n_logprobs >= 0 && RecordBytes(record.n_logprobs) <= room);
  logprobs.resize(static_cast<size_t>(record.n_logprobs));
  if (!logprobs.empty()) {
    std::memcpy(logprobs.data(), from + sizeof(record), logprobs.size() * sizeof(TokenLogprob));
  }
  return record;
}

}  // namespace

int64_t SampledBytes(std::span<const RowSampling> rows) {
  int64_t bytes = 0;
  for (const RowSampling& row : rows) bytes += BytesOf(row);
  return bytes;
}

void WriteSampled(std::span<const RowSampling> rows, std::span<const SampledToken> sampled,
                  std::byte* to) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t bytes = BytesOf(rows[i]);
    const SampledToken& token = sampled[i];
    if (bytes > 0) Write({token.digest, token.token, token.logprob}, token.logprobs, bytes, to);
    to += bytes;
  }
}

std::vector<SampledToken> ReadSampled(std::span<const RowSampling> rows, const std::byte* from) {
  std::vector<SampledToken> sampled(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t bytes = BytesOf(rows[i]);
    if (bytes > 0) {
      const Record record = Read(from, bytes, sampled[i].logprobs);
      sampled[i].token = record.number;
      sampled[i].logprob = record.logprob;
      sampled[i].digest = record.digest;
    }
    from += bytes;
  }
  return sampled;
}

int64_t ScoredBytes(int n, int top) { return n * RecordBytes(std::max(top, 0)); }

void WriteScored(std::span<const PromptLogprob> scored, int top, std::byte* to) {
  const int64_t bytes = ScoredBytes(1, top);
  for (const PromptLogprob& row : scored) {
    Write({0, row.rank, row.logprob}, row.top, bytes, to);
    to += bytes;
  }
}

void ReadScored(std::span<PromptLogprob> scored, int top, const std::byte* from) {
  const int64_t bytes = ScoredBytes(1, top);
  for (PromptLogprob& row : scored) {
    const Record record = Read(from, bytes, row.top);
    row.rank = record.number;
    row.logprob = record.logprob;
    from += bytes;
  }
}

}  // namespace baton
