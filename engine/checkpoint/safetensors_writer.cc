#include "engine/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", std::strerror(errno)));
}

// The header behind its length, padded with spaces so that tensors begin at a multiple of 8.
std::string HeaderOf(const std::vector<SafetensorsWriter::Tensor>& tensors) {
  boost::json::object header;
  int64_t offset = 0;
  for (const SafetensorsWriter::Tensor& tensor : tensors) {
    boost::json::array shape(tensor.shape.begin(), tensor.shape.end());
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", std::move(shape)},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = boost::json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<Tensor>& tensors) {
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  const std::string header = HeaderOf(tensors);
  writer->path_ = path;
  writer->bytes_ = static_cast<int64_t>(header.size());
  for (const Tensor& tensor : tensors) {
    writer->places_.push_back(writer->bytes_);
    writer->bytes_ += tensor.bytes;
  }
  const std::string temporary = path + ".tmp";
  writer->file_ = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                         S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  if (writer->file_ < 0) return SystemError(temporary, "create");
  // Reserves the blocks: a full disk must be an error here, not a SIGBUS later.
  if (const int error = ::posix_fallocate(writer->file_, 0, writer->bytes_); error != 0) {
    errno = error;
    return SystemError(temporary, "reserve space");
  }
  void* memory = ::mmap(nullptr, static_cast<size_t>(writer->bytes_), PROT_READ | PROT_WRITE,
                        MAP_SHARED, writer->file_, 0);
  if (memory == MAP_FAILED) return SystemError(temporary, "map");
  writer->memory_ = static_cast<std::byte*>(memory);
  std::memcpy(memory, header.data(), header.size());
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(bytes_));
  if (file_ < 0) return;
  ::close(file_);
  ::unlink((path_ + ".tmp").c_str());  // already gone if Finish renamed it
}

absl::Status SafetensorsWriter::Finish() {
  const std::string temporary = path_ + ".tmp";
  if (::msync(memory_, static_cast<size_t>(bytes_), MS_SYNC) != 0 || ::fsync(file_) != 0) {
    return SystemError(temporary, "sync");
  }
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return SystemError(temporary, "rename");
  return absl::OkStatus();
}

}  // namespace baton
