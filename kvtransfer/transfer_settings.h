// Settings of the KV plane, kvtransfer.*.
#pragma once

#include "common/settings.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// `options` must outlive `settings`.
void DeclareTransfer(TransferOptions* options, Settings* settings);

}  // namespace baton
