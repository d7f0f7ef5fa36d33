// The table of functions that libbaton_cuda.so exports.
#include <cstdio>
#include <memory>

#include <cuda_runtime_api.h>

#include "engine/cuda/plugin_abi.h"
#include "engine/cuda/sample.h"
#include "engine/cuda/self_test.h"
#include "engine/cuda/step_model.h"

namespace baton {
namespace {

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }
StepModel& ModelOf(void* model) { return *static_cast<StepModel*>(model); }
const int32_t* BlockOf(const void* block) { return static_cast<const int32_t*>(block); }

// The error of an allocation, which the next launch does not report again.
int32_t Forgotten(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

struct Call {
  void (*call)(void*);
  void* argument;
};

int32_t Notify(void* stream, void (*call)(void*), void* argument) {
  // A callback, and no host function: these are not called when the device is lost.
  const auto run = [](cudaStream_t, cudaError_t, void* made) {
    const std::unique_ptr<Call> kept(static_cast<Call*>(made));
    kept->call(kept->argument);
  };
  auto made = std::make_unique<Call>(Call{call, argument});
  const cudaError_t error = cudaStreamAddCallback(StreamOf(stream), run, made.get(), 0);
  if (error == cudaSuccess) static_cast<void>(made.release());
  return error;
}

int32_t EndCapture(void* stream, void** made) {
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(StreamOf(stream), &graph);
  if (error != cudaSuccess) return error;
  cudaGraphExec_t executable = nullptr;
  error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  *made = executable;
  return error;
}

constexpr BatonCudaModelApi kModelApi = {
    .create = [](const ModelView* view, void** model) -> int32_t {
      std::unique_ptr<StepModel> made;
      const cudaError_t error = StepModel::Create(*view, &made);
      *model = made.release();
      return error;
    },
    .remove = [](void* model) { delete static_cast<StepModel*>(model); },
    .test = [](const ModelView* view, char* fault, int32_t size) -> int32_t {
      std::string what;
      const cudaError_t error = TestKernels(*view, &what);
      std::snprintf(fault, static_cast<size_t>(size), "%s", what.c_str());
      return error;
    },
    .bytes = [](void* model) { return ModelOf(model).bytes(); },
    .begin = [](void* model, const void* block, const int32_t* sampled, const StepCounts* counts,
                void* kv, void* stream) -> int32_t {
      return ModelOf(model).Begin(BlockOf(block), sampled, *counts, static_cast<uint8_t*>(kv),
                                  StreamOf(stream));
    },
    .layer = [](void* model, int32_t layer, float* logits, void* stream) -> int32_t {
      return ModelOf(model).Layer(layer, logits, StreamOf(stream));
    },
    .scored_logits = [](void* model, int32_t from, int32_t to, float* logits, void* stream)
        -> int32_t { return ModelOf(model).ScoredLogits(from, to, logits, StreamOf(stream)); },
    .begin_slice = [](void* model, const void* block, const StepCounts* counts, void* kv,
                      void* stream) -> int32_t {
      return ModelOf(model).BeginSlice(BlockOf(block), *counts, static_cast<uint8_t*>(kv),
                                       StreamOf(stream));
    },
    .project_slice = [](void* model, int32_t layer, int32_t from, int32_t to, void* stream)
        -> int32_t { return ModelOf(model).ProjectSlice(layer, from, to, StreamOf(stream)); },
    .finish_slice = [](void* model, int32_t layer, int32_t from, int32_t to, float* logits,
                       void* stream) -> int32_t {
      return ModelOf(model).FinishSlice(layer, from, to, logits, StreamOf(stream));
    },
    .sample_scratch_bytes = [](int32_t max_rows,
                               int32_t vocab) { return SampleScratchBytes(max_rows, vocab); },
    .sample = [](const float* logits, int32_t n_rows, int32_t vocab, const void* rows,
                 void* scratch, void* results, int32_t* sampled, void* stream) -> int32_t {
      return SampleRows(logits, n_rows, vocab, static_cast<const SampleRowArguments*>(rows),
                        scratch, results, sampled, StreamOf(stream));
    },
};

constexpr BatonCudaApi kApi = {
    .words = [](int32_t error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); },
    .select = [](int32_t index) -> int32_t { return cudaSetDevice(index); },
    .allocate = [](int64_t bytes, void** memory) -> int32_t {
      return Forgotten(cudaMalloc(memory, static_cast<size_t>(bytes)));
    },
    .allocate_pinned = [](int64_t bytes, void** memory) -> int32_t {
      return Forgotten(cudaHostAlloc(memory, static_cast<size_t>(bytes), cudaHostAllocPortable));
    },
    .free = [](void* memory) -> int32_t { return cudaFree(memory); },
    .free_pinned = [](void* memory) -> int32_t { return cudaFreeHost(memory); },
    .memory = [](int64_t* free_bytes, int64_t* total_bytes) -> int32_t {
      size_t free = 0, total = 0;
      const cudaError_t error = cudaMemGetInfo(&free, &total);
      *free_bytes = static_cast<int64_t>(free);
      *total_bytes = static_cast<int64_t>(total);
      return error;
    },
    .new_stream = [](void** stream) -> int32_t {
      cudaStream_t made = nullptr;
      const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
      *stream = made;
      return error;
    },
    .delete_stream = [](void* stream) -> int32_t { return cudaStreamDestroy(StreamOf(stream)); },
    .new_event = [](void** event) -> int32_t {
      cudaEvent_t made = nullptr;
      const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
      *event = made;
      return error;
    },
    .delete_event = [](void* event) -> int32_t { return cudaEventDestroy(EventOf(event)); },
    .record = [](void* event, void* stream) -> int32_t {
      return cudaEventRecord(EventOf(event), StreamOf(stream));
    },
    .wait = [](void* stream, void* event) -> int32_t {
      return cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0);
    },
    .query = [](void* event, int32_t* is_reached) -> int32_t {
      const cudaError_t error = cudaEventQuery(EventOf(event));
      *is_reached = error == cudaSuccess ? 1 : 0;
      return error == cudaErrorNotReady ? cudaSuccess : error;
    },
    .synchronize = [](void* event) -> int32_t { return cudaEventSynchronize(EventOf(event)); },
    .notify = Notify,
    .copy = [](void* stream, void* to, const void* from, int64_t bytes) -> int32_t {
      return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                             StreamOf(stream));
    },
    .fill = [](void* stream, void* to, int32_t value, int64_t bytes) -> int32_t {
      return cudaMemsetAsync(to, value, static_cast<size_t>(bytes), StreamOf(stream));
    },
    .begin_capture = [](void* stream) -> int32_t {
      return cudaStreamBeginCapture(StreamOf(stream), cudaStreamCaptureModeThreadLocal);
    },
    .end_capture = EndCapture,
    .launch_graph = [](void* stream, void* graph) -> int32_t {
      return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), StreamOf(stream));
    },
    .delete_graph = [](void* graph) -> int32_t {
      return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
    },
    .model = kModelApi,
};

}  // namespace
}  // namespace baton

const BatonCudaApi* baton_cuda_api() { return &baton::kApi; }
