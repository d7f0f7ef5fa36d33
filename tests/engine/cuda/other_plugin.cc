// A plugin of other sources, for plugin_loader_test.
#include <cstdlib>

#include "engine/cuda/plugin_abi.h"

const char* baton_cuda_source_id() { return "0123456789abcdef"; }
void baton_cuda_open(int32_t, BatonCudaDevice*) { std::abort(); }  // never called
