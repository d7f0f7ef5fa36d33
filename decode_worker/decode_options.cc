#include "decode_worker/decode_options.h"

#include "absl/strings/str_cat.h"

namespace baton {

void DeclareDecode(const std::string& section, DecodeOptions* options, Settings* settings) {
  settings->Int(absl::StrCat(section, ".max_batch"), &options->max_batch, 1, 4096,
                "sequences decoded at once");
}

}  // namespace baton
