#include "worker/worker_options.h"

#include "absl/strings/str_cat.h"

namespace baton {

void DeclareWorker(const std::string& section, WorkerOptions* options, Settings* settings) {
  DeclareEngine(&options->engine, settings);
  settings->Int(absl::StrCat(section, ".step_tokens"), &options->engine.limits.max_step_tokens, 16,
                65536, "tokens of one engine step");
  settings->Int(absl::StrCat(section, ".max_batch"), &options->core.decode.max_batch, 1, 4096,
                "sequences decoded at once");
  settings->Bool(absl::StrCat(section, ".reuse_kv"), &options->core.reuse_kv,
                 "prompts reuse KV of earlier prompts and answers with the same beginning");
}

}  // namespace baton
