// One model's folder in the hub's cache, as huggingface_hub lays it out ("Understand caching"):
// blobs/DIGEST with the bytes, snapshots/COMMIT/PATH as relative links to them, refs/REVISION with
// the commit. What is begun is blobs/DIGEST.incomplete, which the next pull goes on with. Every
// name appears when it is whole. One thread; other processes may use the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/descriptor.h"
#include "common/status.h"
#include "server/pull/hub_files.h"
#include "server/pull/hub_id.h"

namespace baton {

class HubRepo {
 public:
  // Makes the folders. Errors of all functions name the path and what to change.
  static absl::StatusOr<HubRepo> Open(const std::filesystem::path& cache, const std::string& id);

  // Keeps other pulls of the model away until the object goes. False: one runs.
  absl::StatusOr<bool> TryLock();
  absl::Status WaitForLock();
  // The lock of one blob, which huggingface_hub takes too. Unavailable: somebody has it.
  absl::StatusOr<Descriptor> LockBlob(const HubFile& file) const;

  std::filesystem::path BlobPath(const HubFile& file) const { return blobs_ / file.digest; }
  std::filesystem::path PartPath(const HubFile& file) const;
  std::filesystem::path SnapshotPath(const std::string& commit) const;
  // Whether the blob is there; one of another size is removed.
  bool HasBlob(const HubFile& file) const;
  int64_t PartBytes(const HubFile& file) const;  // that an earlier pull has left; 0: none
  int64_t FreeBytes() const;                     // of the file system, for this user

  absl::Status Link(const std::string& commit, const HubFile& file) const;
  absl::Status SetRef(const std::string& revision, const std::string& commit) const;

 private:
  HubRepo() = default;
  std::filesystem::path repo_, blobs_, locks_;
  Descriptor lock_;
};

// "what: why; then what to change", by errno.
absl::Status FileError(const std::filesystem::path& path, const char* what, int error);

}  // namespace baton
