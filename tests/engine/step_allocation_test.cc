// After its largest step, a backend computes steps and slices without allocating memory.
#include <malloc.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <numeric>

#include "engine/cpu/linear/linear.h"
#include "engine/cpu/machine/isa.h"
#include "tests/engine/sequence_runner.h"

namespace {

std::atomic<int64_t> g_allocations = 0;

void* Allocate(std::size_t bytes, std::size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// Count allocations of the whole program, with compute threads.
void* operator new(std::size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace baton {
namespace {

// Returns the heap's bytes, with memory that does not come from operator new.
size_t HeapBytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Builds a step with prefill chunks and decode rows of several sequences.
void BuildStep(StepBuilder& step, int n_sequences, int prompt_tokens, int position,
               const std::vector<int32_t>& tokens, const std::vector<int32_t>& pages) {
  step.Clear();
  const size_t pages_each = pages.size() / static_cast<size_t>(n_sequences + 1);
  for (int i = 0; i <= n_sequences; ++i) {
    const int n = i == 0 ? prompt_tokens : 1;
    const int row = step.AddPiece(std::span(tokens).first(n), i == 0 ? 0 : position,
                                  std::span(pages).subspan(i * pages_each, pages_each));
    if (i == 0) step.WantScores(row, row + n - 1);
    step.WantLogits(row + n - 1);
  }
}

// Runs a slice in blocks of at most 200 rows: some rows stop half-way, then all continue.
constexpr int kSliceTokens = 300;
void RunSlice(Backend& backend, StepBuilder& step, int position, const std::vector<int32_t>& tokens,
              const std::vector<int32_t>& pages) {
  step.Clear();
  step.AddPiece(std::span(tokens).first(kSliceTokens), position, pages);
  step.WantLogits(kSliceTokens - 1);
  backend.BeginSlice(step.batch());
  for (int layer = 0; layer < backend.model().n_layers; ++layer) {
    backend.ProjectSlice(layer, 0, 100);
    backend.ProjectSlice(layer, 100, kSliceTokens);
    backend.AttendSlice(layer, 50, 200, kSliceKeys);
    backend.FinishSlice(layer, 0, 200);
    backend.FinishSlice(layer, 200, kSliceTokens);
  }
}

}  // namespace

// Equal rows go to the same experts; the rows of the counted steps differ.
TEST_CASE("a warm backend allocates nothing inside a step or a slice") {
  const std::string folder(BATON_SOURCE_DIR);
  const std::string model =
      GENERATE_COPY(folder + "/models/demo", "random:" + folder + "/configs/shapes/tiny-moe.json",
                    std::string(BATON_TEST_DATA) + "/models/deepseek_v2_lite",
                    std::string(BATON_TEST_DATA) + "/models/deepseek_v3");
  const auto [dtype, kv_dtype] = GENERATE(table<std::string, std::string>(
      {{"bf16", "bf16"}, {"bf16", "int8"}, {"int8", "bf16"}, {"int4", "bf16"}}));
  RequestAmxPermission();
  for (const Isa isa : SupportedIsas()) {
    EngineOptions options;
    options.model = model;
    options.isa = std::string(IsaName(isa));
    options.dtype = dtype;
    options.kv_dtype = kv_dtype;
    options.threads = 2;
    options.limits.max_step_tokens = 256;
    const std::unique_ptr<Backend> backend = LoadOrDie(options);
    const auto pool = *KvPool::Create(backend->kv_layout(), 9 * 16);
    backend->SetPages(pool->pages());
    std::vector<int32_t> pages, tokens(kSliceTokens, 5);
    REQUIRE(pool->Take(pool->total(), &pages));
    StepBuilder step;
    const auto run = [&](int prompt_tokens, int position) {
      BuildStep(step, 8, prompt_tokens, position, tokens, pages);
      backend->Begin(step.batch());
      backend->RunLayers(0, 2);
      backend->RunLayers(2, backend->model().n_layers);
      const int n_scored = std::min(prompt_tokens - 1, Backend::kScoredAtOnce);
      if (n_scored > 0) backend->ScoredLogits(prompt_tokens - 1 - n_scored, prompt_tokens - 1);
    };
    const auto run_all = [&] {
      for (int i = 0; i < 4; ++i) {
        run(1, 800 + i);
        run(100 + i, 900);
        run(200, 1000 - i);
        RunSlice(*backend, step, 700 - i, tokens, pages);
      }
    };
    run_all();
    std::iota(tokens.begin(), tokens.end(), 5);
    const int64_t before = g_allocations;
    const size_t heap_before = HeapBytes();
    run_all();
    const int64_t after = g_allocations;
    const size_t heap_after = HeapBytes();
    INFO(model << " " << options.isa << " " << dtype << " KV " << kv_dtype);
    CHECK(after == before);
    CHECK(heap_after == heap_before);
    CHECK(before > 0);  // the counter counts
    pool->Give(pages);
  }
}

}  // namespace baton
