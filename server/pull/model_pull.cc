#include "server/pull/model_pull.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"

namespace baton {
namespace {

constexpr size_t kMaxListBytes = size_t{64} << 20;
constexpr absl::Duration kBarEvery = absl::Milliseconds(200);

std::string PercentEncoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~') {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", byte);
    }
  }
  return out;
}

class TextSink : public FetchSink {
 public:
  absl::Status Begin(int64_t) override {
    text.clear();
    return absl::OkStatus();
  }
  absl::Status Take(std::string_view bytes) override {
    text += bytes;
    if (text.size() <= kMaxListBytes) return absl::OkStatus();
    return absl::InvalidArgumentError("the hub's list of files is longer than 64 MiB; see --hub");
  }
  std::string text;
};

int64_t BytesOfAll(const std::vector<HubFile>& files) {
  int64_t sum = 0;
  for (const HubFile& file : files) sum += file.size;
  return sum;
}

}  // namespace

// A file that is being fetched, or waits for its next try.
struct ModelPull::Download {
  std::unique_ptr<BlobDownload> blob;
  int64_t id = 0;
  FetchRetry retry;
  int64_t had = 0;  // bytes when the last try began
  bool is_running = false;
  bool may_restart = true;  // once: bytes that an earlier pull left may be wrong
  absl::Time due;           // of the next try
};

ModelPull::ModelPull(const CurlLibrary& curl, PullOptions options)
    : options_(std::move(options)),
      bar_("pulling", ProgressUnit::kBytes, 0),
      fetches_(curl, options_.fetch) {}

ModelPull::~ModelPull() = default;

HubQuestion ModelPull::Question(const std::string& file) const {
  return {.hub = options_.hub,
          .model = options_.model,
          .file = file,
          .has_token = !options_.token.empty()};
}

absl::StatusOr<HubRevision> ModelPull::AskRevision() {
  const std::string url =
      absl::StrCat(options_.hub, "/api/models/", options_.model.id, "/revision/",
                   PercentEncoded(options_.model.revision), "?blobs=true");
  FetchRetry retry;
  while (true) {
    TextSink sink;
    fetches_.Start(next_id_++, {.url = url, .token = options_.token}, &sink);
    std::vector<FetchEnd> ended;
    while (ended.empty()) ended = fetches_.Wait(kBarEvery);
    if (ended[0].ok()) return ParseRevision(sink.text, url);
    const std::optional<absl::Duration> wait = retry.WaitAfter(ended[0], false);
    if (!wait) return HubError(ended[0], Question(""));
    bar_.Note(absl::StrCat(options_.model.Text(), ": ", FailureText(ended[0]), "; next try in ",
                           absl::FormatDuration(*wait)));
    const absl::Time due = MonotonicNow() + *wait;
    while (MonotonicNow() < due) fetches_.Wait(due - MonotonicNow());
  }
}

absl::Status ModelPull::Lock() {
  ASSIGN_OR_RETURN(const bool is_locked, repo_->TryLock());
  if (is_locked) return absl::OkStatus();
  bar_.Note(absl::StrCat("another pull of ", options_.model.id, " runs; waiting for its end"));
  return repo_->WaitForLock();
}

std::string ModelPull::FileUrl(const HubFile& file) const {
  const std::vector<std::string> parts = absl::StrSplit(file.path, '/');
  return absl::StrCat(options_.hub, "/", options_.model.id, "/resolve/", commit_, "/",
                      absl::StrJoin(parts, "/", [](std::string* out, const std::string& part) {
                        absl::StrAppend(out, PercentEncoded(part));
                      }));
}

absl::Status ModelPull::CheckRoom(const std::vector<HubFile>& files) const {
  int64_t needed = 0;
  for (const HubFile& file : files)
    if (!repo_->HasBlob(file)) needed += std::max<int64_t>(0, file.size - repo_->PartBytes(file));
  const int64_t there = repo_->FreeBytes();
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: %.1f MiB are to come and %.1f MiB are free in %s; make room, or give a "
                      "folder of another "
                      "disk with --hf-cache",
                      options_.model.Text(), static_cast<double>(needed) / 1048576.0,
                      static_cast<double>(there) / 1048576.0, options_.cache.string()));
}

absl::Status ModelPull::Begin(const HubFile& file) {
  auto download = std::make_unique<Download>();
  ASSIGN_OR_RETURN(download->blob, BlobDownload::Open(&*repo_, file));
  download->id = next_id_++;
  download->due = MonotonicNow();
  if (download->blob->have() == file.size && file.size > 0) {
    RETURN_IF_ERROR(Complete(download.get()));
    if (!download->blob) return absl::OkStatus();
  }
  downloads_.push_back(std::move(download));
  return absl::OkStatus();
}

// All bytes are there. Wrong ones are fetched anew where an earlier answer may have brought them.
absl::Status ModelPull::Complete(Download* download) {
  const bool was_resumed = download->blob->is_resumed();
  const absl::Status finished = download->blob->Finish();
  if (finished.ok()) {
    done_bytes_ += download->blob->file().size;
    download->blob.reset();
    return finished;
  }
  if (!absl::IsDataLoss(finished) || !was_resumed || !download->may_restart) return finished;
  bar_.Note(absl::StrCat(download->blob->file().path,
                         ": what an earlier try left is damaged; fetched anew"));
  download->may_restart = false;
  download->due = MonotonicNow();
  return absl::OkStatus();
}

absl::Status ModelPull::OnEnd(const FetchEnd& end) {
  const auto found = std::find_if(downloads_.begin(), downloads_.end(),
                                  [&](const auto& each) { return each->id == end.id; });
  Download* download = found->get();
  BlobDownload* blob = download->blob.get();
  download->is_running = false;
  const bool has_new = blob->have() > download->had;
  if (has_new) fetched_bytes_ += blob->have() - download->had;
  if (end.ok() && blob->have() == blob->file().size) {
    RETURN_IF_ERROR(Complete(download));
    if (!download->blob) downloads_.erase(found);
    return absl::OkStatus();
  }
  FetchEnd seen = end;
  if (end.ok()) {  // an answer without a length, cut
    seen.failure = "the answer ended early";
    seen.may_pass = true;
  }
  if (end.http_status == 416 && end.failure.empty() && download->may_restart) {
    download->may_restart = false;
    RETURN_IF_ERROR(blob->Restart());
    download->due = MonotonicNow();
    return absl::OkStatus();
  }
  const std::optional<absl::Duration> wait = download->retry.WaitAfter(seen, has_new);
  if (!wait) return HubError(seen, Question(blob->file().path));
  bar_.Note(absl::StrCat(blob->file().path, ": ", FailureText(seen), "; goes on in ",
                         absl::FormatDuration(*wait)));
  download->due = MonotonicNow() + *wait;
  return absl::OkStatus();
}

void ModelPull::StartDue() {
  for (const auto& download : downloads_) {
    if (download->is_running || download->due > MonotonicNow()) continue;
    download->is_running = true;
    download->had = download->blob->have();
    fetches_.Start(
        download->id,
        {.url = FileUrl(download->blob->file()), .token = options_.token, .from = download->had},
        download->blob.get());
  }
}

absl::Duration ModelPull::UntilDue() const {
  absl::Duration wait = kBarEvery;
  for (const auto& download : downloads_)
    if (!download->is_running) wait = std::min(wait, download->due - MonotonicNow());
  return std::max(wait, absl::ZeroDuration());
}

void ModelPull::ShowProgress() {
  int64_t bytes = done_bytes_;
  for (const auto& download : downloads_) bytes += download->blob->have();
  bar_.Show(static_cast<double>(bytes));
}

absl::Status ModelPull::Fetch(const std::vector<HubFile>& files, bool is_shown) {
  absl::flat_hash_set<std::string> digests;  // files of equal content are one blob
  auto next = files.begin();
  while (next != files.end() || !downloads_.empty()) {
    while (next != files.end() && downloads_.size() < static_cast<size_t>(options_.parallel)) {
      const HubFile& file = *next++;
      if (!digests.insert(file.digest).second || repo_->HasBlob(file)) {
        done_bytes_ += file.size;
      } else {
        RETURN_IF_ERROR(Begin(file));
      }
    }
    StartDue();
    if (is_shown) ShowProgress();
    if (downloads_.empty()) continue;
    for (const FetchEnd& end : fetches_.Wait(UntilDue())) RETURN_IF_ERROR(OnEnd(end));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HubFile>> ModelPull::ChooseAndFetch(const HubRevision& revision) {
  std::vector<HubFile> files;
  if (!options_.include.empty()) {
    ASSIGN_OR_RETURN(files, MatchingFiles(revision.files, options_.include));
    bar_.SetTotal(static_cast<double>(BytesOfAll(files)));
    RETURN_IF_ERROR(CheckRoom(files));
    RETURN_IF_ERROR(Fetch(files, true));
    return files;
  }
  // Small files first: one of them says which files the weights are.
  std::string index;
  for (const HubFile& file : revision.files)
    if (IsServingFile(file.path)) files.push_back(file);
  RETURN_IF_ERROR(CheckRoom(files));
  RETURN_IF_ERROR(Fetch(files, false));
  for (const HubFile& file : files) {
    if (file.path != kIndexFile) continue;
    std::ostringstream text;
    text << std::ifstream(repo_->BlobPath(file), std::ios::binary).rdbuf();
    index = text.str();
  }
  ASSIGN_OR_RETURN(const std::vector<HubFile> weights, WeightFiles(revision.files, index));
  bar_.SetTotal(static_cast<double>(BytesOfAll(files) + BytesOfAll(weights)));
  RETURN_IF_ERROR(CheckRoom(weights));
  RETURN_IF_ERROR(Fetch(weights, true));
  files.insert(files.end(), weights.begin(), weights.end());
  return files;
}

absl::StatusOr<PulledModel> ModelPull::Run() {
  ASSIGN_OR_RETURN(const HubRevision revision, AskRevision());
  commit_ = revision.commit;
  ASSIGN_OR_RETURN(repo_, HubRepo::Open(options_.cache, options_.model.id));
  RETURN_IF_ERROR(Lock());
  ASSIGN_OR_RETURN(const std::vector<HubFile> files, ChooseAndFetch(revision));
  for (const HubFile& file : files) RETURN_IF_ERROR(repo_->Link(commit_, file));
  RETURN_IF_ERROR(repo_->SetRef(options_.model.revision, commit_));
  bar_.Finish();
  return PulledModel{.snapshot = repo_->SnapshotPath(commit_),
                     .commit = commit_,
                     .n_files = files.size(),
                     .bytes = BytesOfAll(files),
                     .fetched_bytes = fetched_bytes_};
}

}  // namespace baton
