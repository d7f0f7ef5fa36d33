#include "server/config/lab_config.h"

namespace baton {
namespace {

constexpr int64_t kTiB = int64_t{1} << 40;

}  // namespace

void DeclareLab(LabConfig* lab, Settings* settings) {
  DeclareEngineLab(&lab->engine, settings);
  LabConfig::Link& link = lab->link;
  settings->Bytes("lab.link_bytes_per_second", &link.bytes_per_second, 0, kTiB,
                  "KV links are slowed to this; 0 = not at all");
  settings->Duration("lab.link_latency", &link.latency, absl::ZeroDuration(), absl::Seconds(1),
                     "added to what KV links carry");
  settings->Bytes("lab.link_falls_after", &link.falls_after, 0, kTiB,
                  "a worker's KV link carries a hundredth of link_bytes_per_second once so much "
                  "has come in over it; 0 = never");
}

}  // namespace baton
