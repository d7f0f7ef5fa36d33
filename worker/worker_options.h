// Options of a worker: those of each room, and values that only this process knows. Plain data, set
// at the start of the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/settings.h"
#include "common/ticket.h"
#include "common/token_grammar.h"
#include "engine/step/engine_options.h"
#include "kvtransfer/protocol/cell_copier.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "planner/partition_table.h"
#include "proto/cluster_certificate.h"
#include "proto/messages.h"
#include "worker/transfer_filter.h"
#include "worker/worker_core.h"

namespace baton {

struct WorkerOptions {
  EngineOptions engine;  // model, threads and spin_us are the process's choice
  WorkerCoreOptions core;
  TransferOptions transfer;
};

// Declares SECTION.*, the settings of one role's workers, and those of DeclareEngine and
// DeclareTransfer. `options`
// must outlive `settings`.
void DeclareWorker(const std::string& section, WorkerOptions* options, Settings* settings);

// A worker's identity and what was chosen for it; no user sets these.
struct WorkerStart {
  std::string name;  // "prefill0": logs and metrics
  Role role = Role::kBoth;
  std::vector<std::string> routers;  // control addresses of routers (proto/router_addresses.h)
  ClusterKey key{};
  std::shared_ptr<const ClusterCertificate> certificate{};  // of control streams; null: plain text
  LinkMaker make_link;  // link of the KV transfer; empty: UCX at transfer.listen_host, listen_port
  double link_bytes_per_second = 0;  // rate to which make_link slows the link; 0: not slowed
  std::shared_ptr<TransferFilter> filter{};  // of commands to the KV transfer; null: none
  // Copies KV between an engine's device and the link (device_copier.h). Called on the link thread;
  // `lost` as below, on any thread. Null: the pool is memory of this process.
  using TellsWhy = std::function<void(const std::string& why)>;
  std::function<std::unique_ptr<CellCopier>(const PoolView& pool, std::function<void()> wake,
                                            TellsWhy lost)>
      make_copier{};
  // Told once why the device is lost, on a thread of the worker: nothing is computed or copied any
  // more, and what is under way has no results. The process is to end; Stop does not work then.
  TellsWhy lost{};
  // Told of each event of the transfer room: when the link thread sends it, and when the engine
  // thread takes it, in the same order. Null: nobody asks.
  std::function<void()> event_sent{}, event_taken{};
  int64_t kv_bytes = 1 << 30;  // size of the KV pool
  int kv_pages = 0;            // not 0: pages instead of bytes
  // Table of `baton tune` with costs of prefill until they are measured; may be null.
  std::shared_ptr<const PartitionTable> costs{};
  std::string costs_file;  // the table's file, for errors
  // Called on one thread. Null: requests with grammars are refused.
  GrammarCompilerFn compile_grammar{};
};

}  // namespace baton
