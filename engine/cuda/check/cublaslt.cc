#include "engine/cuda/check/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <type_traits>

#include "engine/cuda/check/gpu.h"

namespace baton {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// Names and numbers of cublasLt.h and library_types.h.
constexpr int kSuccess = 0;
constexpr int kComputeFp32 = 68;    // CUBLAS_COMPUTE_32F
constexpr int kTypeFp32 = 0;        // CUDA_R_32F
constexpr int kTypeBf16 = 14;       // CUDA_R_16BF
constexpr int32_t kTransposed = 1;  // CUBLAS_OP_T
constexpr int kDescTransposeA = 3;  // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kPrefWorkspace = 1;
constexpr int kConfigId = 0, kConfigTile = 1, kConfigSplitK = 2, kConfigReduction = 3,
              kConfigSwizzle = 4, kConfigCustom = 5, kConfigStages = 6, kConfigInnerShape = 7,
              kConfigCluster = 8;
constexpr int kCapImplementation = 15;  // CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS

struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

struct CublasLt::Functions {
  int (*create)(void**);
  int (*destroy)(void*);
  size_t (*version)();
  int (*desc_create)(void**, int, int);
  int (*desc_destroy)(void*);
  int (*desc_set)(void*, int, const void*, size_t);
  int (*layout_create)(void**, int, uint64_t, uint64_t, int64_t);
  int (*layout_destroy)(void*);
  int (*preference_create)(void**);
  int (*preference_destroy)(void*);
  int (*preference_set)(void*, int, const void*, size_t);
  int (*heuristic)(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult*, int*);
  int (*config_get)(const uint64_t*, int, void*, size_t, size_t*);
  int (*cap_get)(const uint64_t*, int, void*, size_t, size_t*);
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                const void*, void*, void*, void*, const uint64_t*, void*, size_t, cudaStream_t);

  bool Load(void* library) {
    const auto load = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return load(create, "cublasLtCreate") && load(destroy, "cublasLtDestroy") &&
           load(version, "cublasLtGetVersion") && load(desc_create, "cublasLtMatmulDescCreate") &&
           load(desc_destroy, "cublasLtMatmulDescDestroy") &&
           load(desc_set, "cublasLtMatmulDescSetAttribute") &&
           load(layout_create, "cublasLtMatrixLayoutCreate") &&
           load(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           load(preference_create, "cublasLtMatmulPreferenceCreate") &&
           load(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           load(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           load(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           load(config_get, "cublasLtMatmulAlgoConfigGetAttribute") &&
           load(cap_get, "cublasLtMatmulAlgoCapGetAttribute") && load(matmul, "cublasLtMatmul");
  }
};

// The library thinks in columns: it computes C^T (n, m) = B (k, n)^T * A (k, m).
struct CublasLt::Problem {
  Problem(const Functions& functions, GemmShape shape, bool is_output_bf16) : lt(functions) {
    const auto make_layout = [&](void** layout, int type, int height, int width) {
      return lt.layout_create(layout, type, static_cast<uint64_t>(height),
                              static_cast<uint64_t>(width), height) == kSuccess;
    };
    ok = lt.desc_create(&desc, kComputeFp32, kTypeFp32) == kSuccess &&
         lt.desc_set(desc, kDescTransposeA, &kTransposed, sizeof kTransposed) == kSuccess &&
         make_layout(&weights, kTypeBf16, shape.k, shape.n) &&
         make_layout(&rows, kTypeBf16, shape.k, shape.m) &&
         make_layout(&output, is_output_bf16 ? kTypeBf16 : kTypeFp32, shape.n, shape.m);
  }
  ~Problem() {
    for (void* layout : {weights, rows, output})
      if (layout != nullptr) lt.layout_destroy(layout);
    if (desc != nullptr) lt.desc_destroy(desc);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const Functions& lt;
  void* desc = nullptr;
  void* weights = nullptr;
  void* rows = nullptr;
  void* output = nullptr;
  bool ok = false;
};

std::string LtAlgorithm::Description() const {
  return "algorithm " + std::to_string(id) + ", tile " + std::to_string(tile) + ", stages " +
         std::to_string(stages) + ", split-K " + std::to_string(split_k) + ", reduction " +
         std::to_string(reduction) + ", swizzle " + std::to_string(swizzle) + ", custom " +
         std::to_string(custom) + ", inner shape " + std::to_string(inner_shape) + ", cluster " +
         std::to_string(cluster) + ", implementation " + std::to_string(implementation);
}

CublasLt::CublasLt() : functions_(std::make_unique<Functions>()) {}

std::unique_ptr<CublasLt> CublasLt::Load(const std::string& library_dir, std::string* reason) {
  const std::string path = (library_dir.empty() ? "" : library_dir + "/") + "libcublasLt.so.13";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *reason = std::string(dlerror()) + "; name its folder with --lib-dir";
    return nullptr;
  }
  std::unique_ptr<CublasLt> lt(new CublasLt());
  if (!lt->functions_->Load(library)) {
    *reason = path + " lacks a function";
    return nullptr;
  }
  lt->version_ = lt->functions_->version();
  if (lt->version_ / 10000 != 13) {
    *reason = path + " is version " + std::to_string(lt->version_) + ", not 13";
    return nullptr;
  }
  if (lt->functions_->create(&lt->handle_) != kSuccess) {
    *reason = path + " does not start";
    return nullptr;
  }
  GPU_CHECK(cudaMalloc(&lt->workspace_, kWorkspaceBytes));
  return lt;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) functions_->destroy(handle_);
  if (workspace_ != nullptr) GPU_CHECK(cudaFree(workspace_));
}

std::vector<LtAlgorithm> CublasLt::Algorithms(GemmShape shape, bool is_output_bf16, int max_count) {
  const Functions& lt = *functions_;
  const Problem problem(lt, shape, is_output_bf16);
  void* preference = nullptr;
  if (!problem.ok || lt.preference_create(&preference) != kSuccess) return {};
  bool ok = lt.preference_set(preference, kPrefWorkspace, &kWorkspaceBytes,
                              sizeof kWorkspaceBytes) == kSuccess;
  std::vector<HeuristicResult> results(static_cast<size_t>(max_count));
  int count = 0;
  ok =
      ok && lt.heuristic(handle_, problem.desc, problem.weights, problem.rows, problem.output,
                         problem.output, preference, max_count, results.data(), &count) == kSuccess;
  lt.preference_destroy(preference);
  std::vector<LtAlgorithm> algorithms;
  for (int i = 0; ok && i < count; ++i) {
    if (results[i].state != kSuccess) continue;
    LtAlgorithm algorithm;
    std::copy(results[i].algorithm, results[i].algorithm + 8, algorithm.data);
    algorithm.workspace_bytes = results[i].workspace_bytes;
    size_t written = 0;
    const auto get = [&](int attribute, auto& value) {
      lt.config_get(algorithm.data, attribute, &value, sizeof value, &written);
    };
    get(kConfigId, algorithm.id);
    get(kConfigTile, algorithm.tile);
    get(kConfigSplitK, algorithm.split_k);
    get(kConfigReduction, algorithm.reduction);
    get(kConfigSwizzle, algorithm.swizzle);
    get(kConfigCustom, algorithm.custom);
    get(kConfigStages, algorithm.stages);
    get(kConfigInnerShape, algorithm.inner_shape);
    get(kConfigCluster, algorithm.cluster);
    lt.cap_get(algorithm.data, kCapImplementation, &algorithm.implementation,
               sizeof algorithm.implementation, &written);
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

bool CublasLt::Multiply(const LtAlgorithm& algorithm, const uint16_t* a, const uint16_t* b, void* c,
                        GemmShape shape, bool is_output_bf16, cudaStream_t stream) {
  const Problem problem(*functions_, shape, is_output_bf16);
  const float one = 1, zero = 0;
  return problem.ok &&
         functions_->matmul(handle_, problem.desc, &one, b, problem.weights, a, problem.rows, &zero,
                            c, problem.output, c, problem.output, algorithm.data, workspace_,
                            kWorkspaceBytes, stream) == kSuccess;
}

}  // namespace baton
