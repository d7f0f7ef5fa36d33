#include "prefill_worker/prefill_options.h"

#include "absl/strings/str_cat.h"

namespace baton {

void DeclarePrefill(const std::string& section, PrefillOptions* options, Settings* settings) {
  settings->Bool(absl::StrCat(section, ".reuse_kv"), &options->reuse_kv,
                 "prompts reuse KV of earlier ones with the same beginning");
}

}  // namespace baton
