// The folder of packed weights (model.weight_cache), which the processes of one user share. It is
// ours and 0700, and so are its files (0600): one of somebody else, a link, or one that others may
// open is not used. A file is written as a draft, a temporary that its writer holds locked, and
// gets its name when it is whole and on disk; a draft that nobody holds is a dead process's and is
// removed. The least lately used files go when the bound of bytes asks for it; a process that has
// mapped one keeps its memory.
//
// Used by the thread that loads the model. Errors of all functions say what, where and what to
// change; none of them ends a process, which can do without the folder.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace baton {

struct CacheOptions {
  std::string path{};     // empty: no folder
  int64_t max_bytes = 0;  // of the folder; 0: no bound
  std::string ending{};   // of the names of its files; others are not looked at
  // Processes of this machine that load the same weights; each has its own copy without the folder.
  int n_processes = 1;
  // How long to wait for another process that writes the same file.
  absl::Duration lock_timeout = absl::Minutes(10);
  int (*sync)(int descriptor) = ::fsync;  // tests have one that fails
};

class CacheFolder {
 public:
  // A file that is being written. Removes it unless it was committed. The folder outlives it.
  class Draft {
   public:
    Draft(const CacheFolder* folder, Descriptor file, std::string name);
    ~Draft();
    Draft(Draft&&) = default;
    int get() const { return file_.get(); }
    // Makes room within the bound and on the disk, so that a full disk is an error here and not a
    // signal when the memory of the mapped file is written.
    absl::Status Reserve(int64_t bytes) const;
    // The file gets its name, in place of one that has it.
    absl::Status Commit();

   private:
    const CacheFolder* folder_;
    Descriptor file_;  // locked; closed when committed
    std::string name_;
  };

  // Opens the folder, made if it is missing. PermissionDenied: somebody else's, or open to others.
  static absl::StatusOr<CacheFolder> Open(const CacheOptions& options);

  // The file of that name, used now. NotFound: there is none. PermissionDenied: not ours alone.
  absl::StatusOr<Descriptor> Find(const std::string& name) const;
  // Waits for others that write the file, one line in the log. DeadlineExceeded: for too long.
  absl::StatusOr<Draft> Begin(const std::string& name) const;

  std::string PathOf(const std::string& name) const { return options_.path + "/" + name; }

 private:
  CacheFolder(CacheOptions options, Descriptor folder)
      : options_(std::move(options)), folder_(std::move(folder)) {}
  absl::Status Error(const std::string& name, const char* what) const;
  absl::Status Lock(int descriptor, const std::string& name) const;
  bool HasName(int descriptor, const std::string& name) const;
  void RemoveDeadDrafts() const;
  absl::Status MakeRoom(int64_t bytes, const std::string& name) const;

  CacheOptions options_;
  Descriptor folder_;
};

}  // namespace baton
