// The tensor memory accelerator of the emulated block: boxes that are copied when nobody expects
// it, and barriers that count their bytes.
#include <cstring>

#include "common/check.h"
#include "tests/engine/cuda/emulated_block.h"

namespace baton {

TensorMap EmulatedTensorMap(const uint16_t* values, int n_rows, int k, int stride, int box_rows,
                            int box_columns) {
  return {{reinterpret_cast<uint64_t>(values), static_cast<uint64_t>(n_rows),
           static_cast<uint64_t>(k), static_cast<uint64_t>(stride), static_cast<uint64_t>(box_rows),
           static_cast<uint64_t>(box_columns)}};
}

EmulatedBlock::PhaseBarrier* EmulatedBlock::BarrierAt(uint32_t address) {
  const auto found = phase_barriers_.find(address);
  if (found == phase_barriers_.end()) {
    Complain("a barrier that nobody has initialised");
    return nullptr;
  }
  return &found->second;
}

void EmulatedBlock::InitBarrier(uint32_t address, int count) {
  if (address % 8 != 0) Complain("a barrier that 8 bytes do not align");
  if (PieceAt(address) == nullptr) return;
  phase_barriers_[address] = {.count = count, .n_missing = count};
}

void EmulatedBlock::EndPhase(PhaseBarrier& barrier) {
  if (barrier.n_missing < 0) Complain("more arrivals at a barrier than it counts");
  if (barrier.n_missing != 0 || barrier.n_bytes != 0) return;
  barrier.n_missing = barrier.count;
  barrier.parity ^= 1;
  ++n_events_;
}

void EmulatedBlock::ArriveExpecting(uint32_t address, uint32_t bytes) {
  PhaseBarrier* barrier = BarrierAt(address);
  if (barrier == nullptr) return;
  barrier->n_bytes += bytes;
  --barrier->n_missing;
  EndPhase(*barrier);
}

void EmulatedBlock::ArriveAsWarp(uint32_t address) {
  Meet(warps_[thread_ / 32], 32, [&] { ArriveExpecting(address, 0); });
}

void EmulatedBlock::WaitForPhase(uint32_t address, uint32_t parity) {
  PhaseBarrier* barrier = BarrierAt(address);
  if (barrier == nullptr) return;
  while (barrier->parity == parity) {
    if (!boxes_.empty()) {
      const size_t index = random_() % boxes_.size();
      const Box box = boxes_[index];
      boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(index));
      WriteBox(box, true);
      ++n_events_;
    }
    if (barrier->parity == parity) Yield();
  }
}

void EmulatedBlock::StartBox(uint32_t target, const TensorMap& map, int x, int y,
                             uint32_t barrier) {
  const Box box{target, map, x, y, barrier};
  if (target % 1024 != 0) Complain("a box that is not where swizzled tiles begin");
  const auto rows = static_cast<uint32_t>(map.words[4]),
             columns = static_cast<uint32_t>(map.words[5]);
  for (uint32_t at = 0; at < rows * columns * 128; at += 16) {
    Piece* piece = PieceAt(target + at);
    if (piece == nullptr) return;
    *piece = {};  // from now on its bytes may change
  }
  if (random_() % 2 == 0) WriteBox(box, false);
  boxes_.push_back(box);
}

void EmulatedBlock::WriteBox(const Box& box, bool is_last_time) {
  const auto* values = reinterpret_cast<const uint16_t*>(box.map.words[0]);
  const auto n_rows = static_cast<int64_t>(box.map.words[1]),
             k = static_cast<int64_t>(box.map.words[2]),
             stride = static_cast<int64_t>(box.map.words[3]);
  const int rows = static_cast<int>(box.map.words[4]), columns = static_cast<int>(box.map.words[5]);
  for (int column = 0; column < columns; ++column) {
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < 8; ++i) {
        const uint32_t address =
            box.target + static_cast<uint32_t>((column * rows + row) * 128 + (i ^ row % 8) * 16);
        const int64_t at = box.x + column * 64 + i * 8;
        if (box.y + row < n_rows && at < k) {
          std::memcpy(&shared_[address], values + (box.y + row) * stride + at, 16);
        } else {
          std::memset(&shared_[address], 0, 16);
        }
        if (is_last_time) *PieceAt(address) = {true, true, true, true};
      }
    }
  }
  if (!is_last_time) return;
  PhaseBarrier* barrier = BarrierAt(box.barrier);
  if (barrier == nullptr) return;
  barrier->n_bytes -= rows * columns * 128;
  EndPhase(*barrier);
}

}  // namespace baton
