#include "lab/lab_config.h"

namespace baton {
namespace {

constexpr int64_t kTiB = int64_t{1} << 40;

void DeclareRelays(LabConfig* lab, Settings* settings) {
  settings->Int("lab.relay_min_ranks", &lab->relay_min_ranks, 1, 64,
                "share such prompts among so many where they are there, whatever is predicted");
  settings->Choice<std::optional<RelayPush>>(
      "lab.relay_push", &lab->relay.push,
      {{"auto", std::nullopt}, {"all", RelayPush::kAll}, {"tail", RelayPush::kTail}},
      "which workers that share a prompt hand KV to the decode worker: each its own, the last all "
      "of it, or what is sooner by their links");
  settings->Choice<PartitionMode>("lab.partition", &lab->relay.partition,
                                  {{"closed", PartitionMode::kClosed},
                                   {"table", PartitionMode::kTable},
                                   {"even", PartitionMode::kEven}},
                                  "how the slices of a shared prompt are found: from measured "
                                  "costs, from a tuned table, all even");
  settings->Text("lab.partition_table", &lab->partition_table,
                 "file of baton tune, for lab.partition: table");
}

void DeclareDevice(LabConfig::Device* device, Settings* settings) {
  settings->Choice<bool>("lab.device", &device->is_emulated, {{"none", false}, {"emulated", true}},
                         "workers compute on an emulated device, slower and with the CPU's bits, "
                         "which finds missing waits");
  settings->Int("lab.device_depth", &device->depth, 1, 8, "steps under way on it at most");
  settings->Choice<bool>("lab.device_steps", &device->uses_graphs,
                         {{"graphs", true}, {"eager", false}},
                         "steps of rows are launched as graphs of a bucket, or kernel by kernel");
  settings->Int("lab.device_seed", &device->seed, 0, INT32_MAX,
                "of the order and the times of what it executes");
  settings->Int("lab.device_lost_at", &device->lost_at, 0, INT32_MAX,
                "it is lost where it would execute this operation; 0 = never");
  settings->Bytes("lab.device_memory", &device->memory, 0, kTiB,
                  "its memory, of which model.gpu_memory_utilization is used, as on a GPU; 0 = as "
                  "much as the worker needs");
}

}  // namespace

void DeclareLab(LabConfig* lab, Settings* settings) {
  DeclareRelays(lab, settings);
  DeclareEngineLab(&lab->engine, settings);
  settings->Choice<bool>("lab.streaming", &lab->streams, {{"ordered", true}, {"off", false}},
                         "KV of the workers before is attended to as it comes, or layer by layer");
  settings->Choice<bool>(
      "lab.forwarding", &lab->cuts_through, {{"cut_through", true}, {"accumulated", false}},
      "KV is passed on as it comes, or when all of a layer is there (KV-Runahead)");
  LabConfig::Link& link = lab->link;
  settings->Bytes("lab.link_bytes_per_second", &link.bytes_per_second, 0, kTiB,
                  "KV links are slowed to this; 0 = not at all");
  settings->Duration("lab.link_latency", &link.latency, absl::ZeroDuration(), absl::Seconds(1),
                     "added to what KV links carry");
  settings->Bytes("lab.link_falls_after", &link.falls_after, 0, kTiB,
                  "a worker's KV link carries a hundredth of link_bytes_per_second once so much "
                  "has come in over it; 0 = never");
  DeclareDevice(&lab->device, settings);
}

}  // namespace baton
