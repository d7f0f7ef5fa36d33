// A model's revision as a hub tells it, and which of its files serving needs. Pure functions, any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "server/pull/file_digest.h"

namespace baton {

struct HubFile {
  std::string path;  // in the repository; leads nowhere else
  int64_t size = 0;  // in bytes
  DigestKind kind = DigestKind::kGitBlob;
  std::string digest;  // in hexadecimal digits; the name of the blob in the cache, too
};

struct HubRevision {
  std::string commit;
  std::vector<HubFile> files;
};

// Reads the answer of /api/models/ID/revision/REVISION?blobs=true. InvalidArgument: it is none, or
// a name, size or digest in it cannot be. Errors begin with `url`.
absl::StatusOr<HubRevision> ParseRevision(std::string_view json, const std::string& url);

// The files that match one of the patterns (* and ?, as the shell's; * takes "/" too). NotFound: a
// pattern that none matches.
absl::StatusOr<std::vector<HubFile>> MatchingFiles(const std::vector<HubFile>& files,
                                                   const std::vector<std::string>& patterns);

// Whether serving reads a file beside the weights: config, tokenizer, chat template, generation
// defaults, index of the weights.
bool IsServingFile(std::string_view path);
inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";

// The files of weights: model.safetensors if it is there, else those that the index names.
// index: the text of kIndexFile; empty: there is none. NotFound: no safetensors, or one that the
// index names is missing; the error says what there is instead. InvalidArgument: the index is none.
absl::StatusOr<std::vector<HubFile>> WeightFiles(const std::vector<HubFile>& files,
                                                 std::string_view index);

}  // namespace baton
