#include "server/cli/quantize.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/progress_bar.h"
#include "engine/cpu/quantize/checkpoint_quantizer.h"
#include "server/config/model_folder.h"

namespace baton {
namespace {

absl::Status Run(const QuantizeCommand& command) {
  ModelConfig model = command.model;
  RETURN_IF_ERROR(ResolveModel(&model));
  QuantizeOptions options;
  options.model = model.path;
  options.out = command.out.empty() ? absl::StrCat(model.name, "-", command.to) : command.out;
  options.format = command.to == "int8" ? WeightFormat{WeightType::kInt8, 0}
                                        : WeightFormat{WeightType::kInt4, command.group};
  ProgressBar progress("quantising", ProgressUnit::kShare, 1);
  RETURN_IF_ERROR(QuantizeCheckpoint(
      options,
      [](void* context, double fraction) { static_cast<ProgressBar*>(context)->Show(fraction); },
      &progress));
  progress.Finish();
  std::printf("%s: %s as %s; serve it with --dtype %s\n", options.out.c_str(), model.name.c_str(),
              options.format.Name().c_str(),
              command.to == "int8" || command.group == 128
                  ? command.to.c_str()
                  : absl::StrCat("int4 --model.int4_group=", command.group).c_str());
  return absl::OkStatus();
}

}  // namespace

int RunQuantize(const QuantizeCommand& command) {
  const absl::Status status = Run(command);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton quantize: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
