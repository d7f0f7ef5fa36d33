// One file on its way into the cache: what an earlier pull has left is read and gone on with, and
// the file gets its name when its size and digest are right. One thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/descriptor.h"
#include "common/status.h"
#include "server/pull/curl_fetches.h"
#include "server/pull/file_digest.h"
#include "server/pull/hub_files.h"
#include "server/pull/hub_repo.h"

namespace baton {

class BlobDownload : public FetchSink {
 public:
  // repo: outlives it. Reads what is there already. Unavailable: another program downloads it.
  static absl::StatusOr<std::unique_ptr<BlobDownload>> Open(const HubRepo* repo, HubFile file);

  absl::Status Begin(int64_t from) override;
  absl::Status Take(std::string_view bytes) override;
  const HubFile& file() const { return file_; }
  int64_t have() const { return have_; }  // bytes from the file's beginning
  // Whether some of the bytes are of an answer before the last one.
  bool is_resumed() const { return is_resumed_; }
  absl::Status Restart();  // forgets all bytes
  // All bytes are there: the file gets its name. DataLoss: they are not those that the hub names,
  // and are forgotten.
  absl::Status Finish();

 private:
  BlobDownload(const HubRepo* repo, HubFile file)
      : repo_(*repo), file_(std::move(file)), digest_(file_.kind, file_.size) {}
  absl::Status ReadPart();

  const HubRepo& repo_;
  const HubFile file_;
  FileDigest digest_;
  Descriptor lock_, part_;
  int64_t have_ = 0;
  bool is_resumed_ = false;
};

}  // namespace baton
