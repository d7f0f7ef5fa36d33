#include "kvtransfer/links/ucx_memory.h"

#include "common/log.h"

namespace baton {

UcxMemory::~UcxMemory() {
  for (const Region& region : regions_) ucp_mem_unmap(context_, region.memory);
}

void UcxMemory::Register(std::byte* base, int64_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = base;
  params.length = static_cast<size_t>(bytes);
  ucp_mem_h memory = nullptr;
  if (const ucs_status_t status = ucp_mem_map(context_, &params, &memory); status != UCS_OK) {
    LogWarn(
        "UCX does not register %d bytes of KV (%s): by RDMA each chunk is registered on its own, "
        "or fails; raise the limit of locked memory (ulimit -l, LimitMEMLOCK)",
        bytes, ucs_status_string(status));
    return;
  }
  regions_.push_back({base, bytes, memory});
}

void UcxMemory::Describe(const std::byte* address, uint64_t length,
                         ucp_request_param_t* param) const {
  param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param->memory_type = UCS_MEMORY_TYPE_HOST;
  for (const Region& region : regions_) {
    if (address < region.base || address + length > region.base + region.bytes) continue;
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param->memh = region.memory;
    return;
  }
}

}  // namespace baton
