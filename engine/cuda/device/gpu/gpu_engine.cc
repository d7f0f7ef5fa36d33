#include "engine/cuda/device/gpu/gpu_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

absl::Status TestKernels(GpuDevice& device, const ModelView& view) {
  char fault[256] = {};
  RETURN_IF_ERROR(device.CheckMemory(device.api().model.test(&view, fault, sizeof(fault)),
                                     "the test of its kernels"));
  if (fault[0] == '\0') return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this GPU does not compute what it should: ", fault,
                   "; tools/gpu_check.sh tells more, and --device cpu serves meanwhile"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuEngine>> GpuEngine::Create(const BatonCudaApi& api,
                                                             const Options& options,
                                                             void (*progress)(void*, double),
                                                             void* progress_context) {
  std::unique_ptr<GpuEngine> engine(new GpuEngine(api, options.index));
  ASSIGN_OR_RETURN(engine->model_, OpenModel(options.engine));
  const LoadedModel& model = engine->model_;
  RETURN_IF_ERROR(CheckGpuComputes(model.desc, options.engine));
  ASSIGN_OR_RETURN(const uint64_t fingerprint, model.source->Fingerprint(*model.pool));
  DeviceModel described;
  described.desc = &model.desc;
  described.layout = KvLayout::For(model.desc, KvType::kBf16Rows, options.engine.page_tokens);
  ASSIGN_OR_RETURN(engine->weights_, GpuWeights::Load(engine->device_, model, described.layout,
                                                      progress, progress_context));
  described.numerics_id = "v1/cuda-sm90/bf16/kv-bf16/l2";
  described.fingerprint = fingerprint ^ model.rope_digest;
  described.unit = absl::StrCat("sm_90a, ", options.name);
  described.limits = options.engine.limits;
  described.limits.slice_keys = 0;  // rows of a slice attend to all keys at once
  described.weights = {engine->weights_->bytes(), false};
  ModelView view = engine->weights_->view();
  view.max_step_rows = described.limits.max_step_tokens;
  view.max_slice_rows = described.limits.max_slice_tokens;
  RETURN_IF_ERROR(TestKernels(engine->device_, view));
  ASSIGN_OR_RETURN(engine->kernels_,
                   GpuStepKernels::Create(engine->device_, view, model.pool.get()));
  ASSIGN_OR_RETURN(engine->backend_,
                   DeviceBackend::Create(engine->device_, std::move(described), options.backend));
  engine->engine_ = engine->backend_.get();
  return engine;
}

}  // namespace baton
