#include "kvtransfer/links/ucx_lanes.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvtransfer/links/ucx_context.h"

namespace baton {
namespace {

constexpr int kMaxTurns = 10000;  // of UCX until an endpoint is closed; loopback takes a few

// Returns what UCX prints of an endpoint.
std::string Printed(ucp_ep_h endpoint) {
  char* bytes = nullptr;
  size_t size = 0;
  std::FILE* out = ::open_memstream(&bytes, &size);
  if (out == nullptr) return "";
  ucp_ep_print_info(endpoint, out);
  std::fclose(out);
  std::string text(bytes, size);
  std::free(bytes);
  return text;
}

// Takes of "#   lane[0]:  1:tcp/lo.0 md[1]  -> ..." the "tcp/lo".
std::vector<std::string> LanesOf(const std::string& text) {
  std::vector<std::string> lanes;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const size_t lane = line.find("lane[");
    const size_t colon =
        lane == std::string::npos ? lane : line.find(':', line.find("]:", lane) + 2);
    if (colon == std::string::npos) continue;
    std::string name = line.substr(colon + 1, line.find(' ', colon) - colon - 1);
    if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.resize(dot);
    if (std::find(lanes.begin(), lanes.end(), name) == lanes.end()) lanes.push_back(name);
  }
  return lanes;
}

void Close(ucp_ep_h endpoint, const UcxWorker& worker) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  for (int i = 0; i < kMaxTurns && ucp_request_check_status(request) == UCS_INPROGRESS; ++i)
    ucp_worker_progress(worker.get());
  ucp_request_free(request);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> UcxLanes(const std::string& host, KvTransport transport) {
  ASSIGN_OR_RETURN(const sockaddr_in address, ParseSocketAddress(absl::StrCat(host, ":0")));
  ASSIGN_OR_RETURN(const UcxContext context, MakeUcxContext(address.sin_addr, {}, transport));
  ASSIGN_OR_RETURN(const UcxWorker here, MakeUcxWorker(context));
  ASSIGN_OR_RETURN(const UcxWorker there, MakeUcxWorker(context));
  ucp_address_t* peer = nullptr;
  size_t bytes = 0;
  if (const ucs_status_t status = ucp_worker_get_address(there.get(), &peer, &bytes);
      status != UCS_OK) {
    return UcxError("asking for a worker's address", status);
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = peer;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(here.get(), &params, &endpoint);
  ucp_worker_release_address(there.get(), peer);
  if (status != UCS_OK) return UcxError("making an endpoint", status);
  std::vector<std::string> lanes = LanesOf(Printed(endpoint));
  Close(endpoint, here);
  if (lanes.empty()) return absl::UnavailableError("UCX tells no lanes of an endpoint");
  return lanes;
}

}  // namespace baton
