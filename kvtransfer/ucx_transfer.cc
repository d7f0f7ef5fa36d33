// Connects the protocol to UCX: the rest of Transfer knows only Link.
#include <utility>

#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/transfer.h"

namespace baton {

absl::StatusOr<std::unique_ptr<Transfer>> Transfer::Start(
    const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
    std::function<void(TransferEvent)> on_event, CopierMaker make_copier) {
  ASSIGN_OR_RETURN(const UcxLinkOptions link, UcxLinkOptionsOf(options));
  return StartOver([host = options.listen_host, link] { return MakeUcxLink(host, link); }, options,
                   facts, pool, std::move(on_event), std::move(make_copier));
}

}  // namespace baton
