// Downloads a model of a hub into the hub's cache: asks which files its revision has, fetches those
// that are missing, several at a time, and names the snapshot when all are there. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/progress_bar.h"
#include "common/status.h"
#include "server/pull/blob_download.h"
#include "server/pull/curl_fetches.h"
#include "server/pull/hub_error.h"
#include "server/pull/hub_files.h"
#include "server/pull/hub_id.h"
#include "server/pull/hub_repo.h"

namespace baton {

struct PullOptions {
  HubId model;
  std::string hub;  // https://HOST, without a slash at its end
  std::string token;
  std::filesystem::path cache;
  std::vector<std::string> include;  // patterns; empty: what serving needs
  int parallel = 4;                  // files at a time
  FetchOptions fetch;
};

struct PulledModel {
  std::filesystem::path snapshot;
  std::string commit;
  size_t n_files = 0;
  int64_t bytes = 0;          // of all files
  int64_t fetched_bytes = 0;  // by this run
};

class ModelPull {
 public:
  ModelPull(const CurlLibrary& curl, PullOptions options);
  ~ModelPull();

  // Once. Errors say what to change; what came is kept, and another run goes on with it.
  absl::StatusOr<PulledModel> Run();

 private:
  struct Download;
  absl::StatusOr<HubRevision> AskRevision();
  absl::Status Lock();
  absl::StatusOr<std::vector<HubFile>> ChooseAndFetch(const HubRevision& revision);
  absl::Status CheckRoom(const std::vector<HubFile>& files) const;
  absl::Status Fetch(const std::vector<HubFile>& files, bool is_shown);
  absl::Status Begin(const HubFile& file);
  absl::Status OnEnd(const FetchEnd& end);
  absl::Status Complete(Download* download);
  void StartDue();
  absl::Duration UntilDue() const;
  void ShowProgress();
  std::string FileUrl(const HubFile& file) const;
  HubQuestion Question(const std::string& file) const;

  const PullOptions options_;
  ProgressBar bar_;
  std::optional<HubRepo> repo_;
  std::string commit_;
  std::vector<std::unique_ptr<Download>> downloads_;
  CurlFetches fetches_;  // ends before what it writes to
  int64_t next_id_ = 0;
  int64_t done_bytes_ = 0;     // of whole files
  int64_t fetched_bytes_ = 0;  // that came over the network
};

}  // namespace baton
