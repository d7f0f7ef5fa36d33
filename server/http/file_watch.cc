#include "server/http/file_watch.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"

namespace baton {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

// Certificate and key are two files: the second one is there by then.
constexpr absl::Duration kSettle = absl::Milliseconds(250);
constexpr uint32_t kEvents =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB;

std::string FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// Differs when one of the files is another one.
std::string LooksOf(const std::vector<std::string>& paths) {
  std::string looks;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) info = {};
    absl::StrAppend(&looks, info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                    info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                    info.st_ctim.tv_nsec, "\n");
  }
  return looks;
}

}  // namespace

struct FileWatch::State : std::enable_shared_from_this<FileWatch::State> {
  State(EventLoop* loop, std::vector<std::string> p, std::function<void()> change)
      : paths(std::move(p)),
        on_change(std::move(change)),
        inotify(loop->context(), ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
        timer(loop),
        looks(LooksOf(paths)) {}

  void WatchFolders();
  void Wait();
  void Drain();
  void Look();

  const std::vector<std::string> paths;
  const std::function<void()> on_change;
  asio::posix::stream_descriptor inotify;
  EventLoop::Timer timer;
  bool timer_set = false;
  std::string looks;
};

// A folder that is watched already stays so.
void FileWatch::State::WatchFolders() {
  for (const std::string& path : paths) {
    std::error_code ignored;
    for (const std::string& folder :
         {FolderOf(path), FolderOf(fs::weakly_canonical(path, ignored))}) {
      if (::inotify_add_watch(inotify.native_handle(), folder.c_str(), kEvents) < 0)
        LogWarn("changes of %s are not noticed; SIGHUP reads it again", path);
    }
  }
}

void FileWatch::State::Wait() {
  inotify.async_wait(asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& ec) {
                       if (ec) return;  // closed
                       self->Drain();
                       self->Wait();
                     });
}

void FileWatch::State::Drain() {
  std::array<char, 16 << 10> events;
  while (::read(inotify.native_handle(), events.data(), events.size()) > 0) {
  }
  if (std::exchange(timer_set, true)) return;
  timer.Set(MonotonicNow() + kSettle, [this] { Look(); });
}

void FileWatch::State::Look() {
  timer_set = false;
  WatchFolders();  // links may lead elsewhere now
  if (std::exchange(looks, LooksOf(paths)) != looks) on_change();
}

FileWatch::FileWatch(EventLoop* loop, std::vector<std::string> paths,
                     std::function<void()> on_change)
    : state_(std::make_shared<State>(loop, std::move(paths), std::move(on_change))) {
  if (state_->inotify.native_handle() < 0) {
    LogWarn("files cannot be watched (inotify); SIGHUP reads them again");
    return;
  }
  state_->WatchFolders();
  state_->Wait();
}

void FileWatch::Seen() { state_->looks = LooksOf(state_->paths); }

FileWatch::~FileWatch() {
  state_->timer.Cancel();
  boost::system::error_code ignored;
  state_->inotify.close(ignored);
}

}  // namespace baton
