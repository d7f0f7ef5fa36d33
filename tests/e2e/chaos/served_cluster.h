// `baton serve` with two prefill and two decode workers; names the processes by its log.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "tests/e2e/chaos/cluster.h"
#include "tests/e2e/served_baton.h"

namespace baton {

class ServedCluster : public Cluster {
 public:
  // args: model and settings.
  static absl::StatusOr<std::unique_ptr<ServedCluster>> Start(std::vector<std::string> args);

  HttpUrl url() const override { return served_->url(); }
  std::vector<Member> Members() override;
  std::string Log() const override { return served_->log(); }
  absl::Status Stop() override;

 private:
  explicit ServedCluster(std::unique_ptr<ServedBaton> served) : served_(std::move(served)) {}
  void ReadLog();
  void OnLine(const std::string& line);

  std::unique_ptr<ServedBaton> served_;
  std::mutex mutex_;  // guards the members below
  size_t n_read_ = 0;
  std::string partial_;
  std::map<std::string, Member> members_;
};

}  // namespace baton
