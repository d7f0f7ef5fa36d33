// The parts of the GPU check, each of which the script runs as a process of its own with a time-out
// (docs/CUDA.md lists what each one says). All need a GPU that baton_cuda_open accepts, made
// current.
#pragma once

#include <string>

#include "engine/cuda/check/report.h"

namespace baton {

struct CheckOptions {
  std::string predictions;  // tests/data/golden/cuda-sm90-gemm.txt
  std::string library_dir;  // where libcublasLt.so.13 is; empty: where the system's loader looks
  bool is_quick = false;    // fewer shapes
};

// S0: ceilings.
void MeasureMemory(Report& report);
void MeasureMatrixRate(Report& report);
void MeasureLink(Report& report);
void MeasureHost(Report& report);

// S1: arithmetic. Letters are those of docs/CUDA.md.
void CompareInstructions(Report& report, const CheckOptions& options);  // a
void CompareSwapped(Report& report, const CheckOptions& options);       // b
void CompareCublasLt(Report& report, const CheckOptions& options);      // c
void CompareRows(Report& report, const CheckOptions& options);          // d
void ComparePredictions(Report& report, const CheckOptions& options);   // e
void CompareMaskedTail(Report& report);                                 // f
void CheckExp2(Report& report);                                         // h
void MeasureChains(Report& report);                                     // k

// S2: kernels of the engine.
void CheckProducts(Report& report, const CheckOptions& options);    // gemm
void CheckRowKernels(Report& report, const CheckOptions& options);  // rows
void CheckAttention(Report& report, const CheckOptions& options);   // attention
void CheckSampling(Report& report, const CheckOptions& options);    // sample

// S4: steps of whole models.
void MeasureSteps(Report& report, const CheckOptions& options);

}  // namespace baton
