// How KV travels between workers (kvtransfer.transport). Plain value, any thread.
#pragma once

#include <cstddef>
#include <utility>

namespace baton {

enum class KvTransport {
  kAuto,  // kRdma where the listen address belongs to an RDMA device that UCX takes, else kTcp
  kTcp,
  kRdma,  // tcp to peers without it
  kShm,   // between processes of one host; tcp to peers of other hosts, or without it
};

inline constexpr std::pair<const char*, KvTransport> kTransportNames[] = {
    {"auto", KvTransport::kAuto},
    {"tcp", KvTransport::kTcp},
    {"rdma", KvTransport::kRdma},
    {"shm", KvTransport::kShm},
};

constexpr const char* NameOf(KvTransport transport) {
  return kTransportNames[static_cast<size_t>(transport)].first;
}

}  // namespace baton
