#include "engine/cpu/loaded_model.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/str_format.h"
#include "common/log.h"
#include "engine/cpu/machine/isa.h"

namespace baton {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxStepTokens = 1 << 16;
constexpr int kMaxSliceTokens = 1 << 20;

absl::Status CheckOptions(const EngineOptions& options) {
  const auto refuse = [](const char* name, int value, const char* wanted) {
    return absl::InvalidArgumentError(
        absl::StrFormat("engine: %s is %d; it must be %s", name, value, wanted));
  };
  if (options.page_tokens != 16 && options.page_tokens != 32 && options.page_tokens != 64) {
    return refuse("page_tokens", options.page_tokens, "16, 32 or 64");
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return refuse("threads", options.threads, "from 0 (all cores) to 1024");
  }
  if (options.spin_us < 0 || options.spin_us > 1000) {
    return refuse("spin_us", options.spin_us, "from 0 to 1000");
  }
  if (options.limits.max_step_tokens < 1 || options.limits.max_step_tokens > kMaxStepTokens) {
    return refuse("max_step_tokens", options.limits.max_step_tokens, "from 1 to 65536");
  }
  if (options.limits.max_slice_tokens < 1 || options.limits.max_slice_tokens > kMaxSliceTokens) {
    return refuse("max_slice_tokens", options.limits.max_slice_tokens, "from 1 to 1048576");
  }
  if (options.limits.slice_keys < 0 || options.limits.slice_keys % kSliceKeys != 0) {
    return refuse("slice_keys", options.limits.slice_keys, "a multiple of 512, or 0");
  }
  constexpr std::string_view kDtypes[] = {"auto", "bf16", "int8", "int4", "fp32"};
  if (std::find(std::begin(kDtypes), std::end(kDtypes), options.dtype) == std::end(kDtypes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "engine: dtype is \"%s\"; supported: auto, bf16, int8, int4, fp32", options.dtype));
  }
  if (options.int4_group != 32 && options.int4_group != 64 && options.int4_group != 128) {
    return refuse("int4_group", options.int4_group, "32, 64 or 128");
  }
  if (options.kv_dtype != "bf16" && options.kv_dtype != "int8") {
    return absl::InvalidArgumentError(
        absl::StrFormat("engine: kv_dtype is \"%s\"; supported: bf16, int8", options.kv_dtype));
  }
  if (options.kv_dtype == "int8" && options.dtype == "fp32") {
    return absl::InvalidArgumentError(
        "engine: dtype fp32 keeps its KV in fp32; kv_dtype int8 goes with bf16");
  }
  return absl::OkStatus();
}

absl::Status LimitContext(int max_context, ModelDesc& desc) {
  if (max_context < 0 || max_context > desc.max_model_context()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("engine: max_context is %d; the model %s has %d positions, so it must be "
                        "from 0 (the model's own) to that",
                        max_context, desc.name, desc.max_model_context()));
  }
  if (max_context > 0) desc.ServeContext(max_context);
  return absl::OkStatus();
}

// Independent of max_context, unless the frequencies depend on it.
uint64_t RopeDigest(const ModelDesc& desc) {
  constexpr int kSampledPositions = 1024;
  return RopeTables(desc, kSampledPositions).Digest();
}

}  // namespace

absl::StatusOr<LoadedModel> OpenModel(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckIsaSupported(Isa::kAvx2));  // for any dtype: the sampler is compiled for
                                                   // AVX2
  LoadedModel loaded;
  ASSIGN_OR_RETURN(loaded.desc, ReadModelDesc(options.model));
  ASSIGN_OR_RETURN(loaded.source,
                   OpenWeightSource(options.model, loaded.desc, options.random_seed));
  RETURN_IF_ERROR(LimitContext(options.max_context, loaded.desc));
  loaded.rope_digest = RopeDigest(loaded.desc);
  loaded.ropes = RopeTables(loaded.desc, loaded.desc.max_positions);
  RequestAmxPermission();  // before the threads of the pool
  if (IsAmxRefused()) {
    LogWarn(
        "the kernel does not let this process use the CPU's AMX tiles, so slower instructions do "
        "their work; a thread with a small signal stack, started before, is one reason");
  }
  loaded.pool = std::make_unique<ComputePool>(ComputeThreads(options.threads), options.spin_us);
  return loaded;
}

}  // namespace baton
