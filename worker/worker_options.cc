#include "worker/worker_options.h"

#include "absl/strings/str_cat.h"
#include "kvtransfer/transfer_settings.h"
#include "proto/control_codec.h"

namespace baton {

void DeclareWorker(const std::string& section, WorkerOptions* options, Settings* settings) {
  DeclareEngine(&options->engine, settings);
  DeclareTransfer(&options->transfer, settings);
  settings->Int(absl::StrCat(section, ".step_tokens"), &options->engine.limits.max_step_tokens, 16,
                65536, "tokens of one engine step");
  settings->Int(absl::StrCat(section, ".max_batch"), &options->core.decode.max_batch, 1, 4096,
                "sequences decoded at once");
  settings->Number(
      absl::StrCat(section, ".itl_stretch"), &options->core.itl_stretch, 1,
      ControlLimits::kItlStretch,
      "a step that decodes takes prompt tokens, too, until it is so many times as long");
  settings->Duration(
      absl::StrCat(section, ".prompt_step"), &options->core.prompt_step.time, absl::Milliseconds(1),
      absl::Hours(1),
      "a step of prompts alone takes so long, or 128 tokens: short prompts wait for it");
  settings->Bool(absl::StrCat(section, ".reuse_kv"), &options->core.reuse_kv,
                 "prompts reuse KV of earlier prompts and answers with the same beginning");
}

}  // namespace baton
