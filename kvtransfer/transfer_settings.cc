#include "kvtransfer/transfer_settings.h"

#include <iterator>

namespace baton {

void DeclareTransfer(TransferOptions* options, Settings* settings) {
  settings->Text("kvtransfer.trusted_cidrs", &options->trusted_cidrs,
                 "networks in which nobody else can change packets: to and from other ones, KV has "
                 "a MAC. IPv4, with commas; the machine itself is trusted, too. Empty: nobody is");
  settings->Text("kvtransfer.allowed_cidrs", &options->allowed_cidrs,
                 "networks of the machines that may reach the KV ports: the kernel drops packets "
                 "of all others. Written as trusted_cidrs");
  settings->Text("kvtransfer.ports", &options->ports,
                 "ports that workers take for KV, two for each of the machine, as in 7100-7199; "
                 "0 = any");
  settings->Choice<KvTransport>(
      "kvtransfer.transport", &options->transport,
      {std::begin(kTransportNames), std::end(kTransportNames)},
      "how KV travels: tcp; rdma, through the InfiniBand or RoCE device that has "
      "cluster.worker_host; shm, between workers of one host; auto: rdma where there is such a "
      "device, else tcp. Workers of other transports get tcp (docs/TUNING.md)");
}

}  // namespace baton
