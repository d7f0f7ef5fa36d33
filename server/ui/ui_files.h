// The files of the page /ui (this folder), as the build compiled them into the binary
// (cmake/embed_files.cmake). Constants, any thread.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct UiFile {
  std::string_view name;   // "index.html"
  std::string_view hash;   // of its contents, hex
  std::string_view plain;  // the contents
  std::string_view gzip;   // the same, compressed
};

std::span<const UiFile> UiFiles();

}  // namespace baton
