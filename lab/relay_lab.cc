#include "lab/relay_lab.h"

#include "common/check.h"

namespace baton {
namespace {

class LabSharing final : public RelaySharing {
 public:
  explicit LabSharing(const RelayLab& lab) : lab_(lab) {
    BATON_CHECK(lab.partition != PartitionMode::kTable || lab.table != nullptr);
  }

  std::vector<double> Slices(const PrefillCost& cost, const ChainLink& link, double tokens,
                             double prefix, std::span<const double> speeds,
                             double handed_on) const override {
    switch (lab_.partition) {
      case PartitionMode::kTable:
        return lab_.table->Slices(tokens, static_cast<int>(speeds.size()));
      case PartitionMode::kEven:
        return std::vector<double>(speeds.size(), tokens / static_cast<double>(speeds.size()));
      case PartitionMode::kClosed:
        break;
    }
    return RelaySharing::Slices(cost, link, tokens, prefix, speeds, handed_on);
  }
  bool may_add_rounds() const override { return lab_.partition == PartitionMode::kClosed; }
  RelayPush Push(const PrefillCost& cost, const PushedChain& chain) const override {
    return lab_.push ? *lab_.push : RelaySharing::Push(cost, chain);
  }
  const PartitionTable* table() const override { return lab_.table.get(); }

 private:
  const RelayLab lab_;
};

}  // namespace

std::shared_ptr<const RelaySharing> SharingOf(const RelayLab& lab) {
  return std::make_shared<LabSharing>(lab);
}

}  // namespace baton
