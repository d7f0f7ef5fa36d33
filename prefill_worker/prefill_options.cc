#include "prefill_worker/prefill_options.h"

#include "absl/strings/str_cat.h"

namespace baton {

void DeclarePrefill(const std::string& section, PrefillOptions* options, Settings* settings) {
  settings->Bool(absl::StrCat(section, ".reuse_kv"), &options->reuse_kv,
                 "prompts reuse KV of earlier ones with the same beginning");
  settings->Choice<int32_t>(
      "lab.streaming", &options->lab.segment_keys, {{"ordered", kSliceKeys}, {"off", 0}},
      "KV of the workers before is attended to as it comes, or layer by layer");
  settings->Choice<bool>(
      "lab.forwarding", &options->lab.cut_through, {{"cut_through", true}, {"accumulated", false}},
      "KV is passed on as it comes, or when all of a layer is there (KV-Runahead)");
}

}  // namespace baton
