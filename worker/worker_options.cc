#include "worker/worker_options.h"

#include "absl/strings/str_cat.h"

namespace baton {

void DeclareWorker(const std::string& section, WorkerOptions* options, Settings* settings) {
  DeclareEngine(&options->engine, settings);
  settings->Int(absl::StrCat(section, ".step_tokens"), &options->engine.limits.max_step_tokens, 16,
                65536, "tokens of one engine step");
  DeclareDecode(section, &options->core.decode, settings);
  DeclarePrefill(section, &options->core.prefill, settings);
}

}  // namespace baton
