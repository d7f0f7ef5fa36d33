// Memory that UCX has registered once, so that it does not register payloads and destinations on
// every use. Included by ucx_*.cc only. Link thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton {

class UcxMemory {
 public:
  // The context must outlive the memory.
  explicit UcxMemory(ucp_context_h context) : context_(context) {}
  ~UcxMemory();
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  // Only an optimisation: where UCX refuses, it registers the memory on every use.
  void Register(std::byte* base, int64_t bytes);
  // Says in *param what UCX should know of the bytes that an operation reads or writes.
  void Describe(const std::byte* address, uint64_t length, ucp_request_param_t* param) const;

 private:
  struct Region {
    std::byte* base;
    int64_t bytes;
    ucp_mem_h memory;
  };
  ucp_context_h const context_;
  std::vector<Region> regions_;
};

}  // namespace baton
