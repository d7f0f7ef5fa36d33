#include "tests/engine/cuda/emulated_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "engine/numerics/tensor_core_dot.h"

namespace baton {
namespace {

constexpr int kWarp = 32, kWarpgroup = 128;
constexpr size_t kStackBytes = 256 << 10;
constexpr int kSeveral = 1 << 20;       // in place of a thread
constexpr float kHidden = 0.12345679f;  // stands where sums are not known yet

EmulatedBlock* running = nullptr;  // makecontext passes no pointers

float Added(float c, const uint16_t* a, const uint16_t* b) {
  return __builtin_bit_cast(float, TensorCoreStep(__builtin_bit_cast(uint32_t, c), a, b));
}

uint16_t Half(uint32_t pair, int half) { return static_cast<uint16_t>(pair >> (16 * half)); }

}  // namespace

EmulatedBlock::EmulatedBlock(int n_threads, int shared_bytes, uint32_t seed)
    : threads_(n_threads),
      shared_(kSharedBase + shared_bytes),
      pieces_((kSharedBase + shared_bytes) / 16),
      words_((kSharedBase + shared_bytes) / 4),
      random_(seed),
      warps_((n_threads + kWarp - 1) / kWarp),
      warpgroups_((n_threads + kWarpgroup - 1) / kWarpgroup),
      warp_operands_(warps_.size()),
      warp_exchanges_(warps_.size()),
      arriving_(warpgroups_.size()),
      open_operations_(warpgroups_.size()),
      operation_groups_(warpgroups_.size()) {
  for (Thread& thread : threads_) thread.stack.resize(kStackBytes);
}

EmulatedBlock::~EmulatedBlock() = default;

EmulatedBlock& EmulatedBlock::Now() {
  BATON_CHECK(running != nullptr);
  return *running;
}

void EmulatedBlock::AllowSource(std::span<const uint16_t> values) { sources_.push_back(values); }

void EmulatedBlock::Entry() {
  EmulatedBlock& block = *running;
  block.body_();
  block.threads_[block.thread_].has_ended = true;
  ++block.n_events_;
  swapcontext(&block.threads_[block.thread_].context, &block.main_);
}

std::set<std::string> EmulatedBlock::Run(ThreadIndex block, const std::function<void()>& body) {
  BATON_CHECK(running == nullptr);
  running = this;
  block_ = block;
  body_ = body;
  complaints_.clear();
  for (Thread& thread : threads_) {
    thread.has_ended = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, &EmulatedBlock::Entry, 0);
  }
  std::vector<int> order(threads_.size());
  std::iota(order.begin(), order.end(), 0);
  for (bool all_ended = false; !all_ended;) {
    std::shuffle(order.begin(), order.end(), random_);
    const int64_t before = n_events_;
    all_ended = true;
    for (const int index : order) {
      if (threads_[index].has_ended) continue;
      thread_ = index;
      swapcontext(&main_, &threads_[index].context);
      all_ended = all_ended && threads_[index].has_ended;
    }
    if (!all_ended && n_events_ == before) {
      Complain("threads wait for threads that do not come");
      break;
    }
  }
  for (const Thread& thread : threads_)
    if (!thread.hidden_sums.empty()) Complain("a thread ended with matrix operations under way");
  running = nullptr;
  return complaints_;
}

void EmulatedBlock::Yield() { swapcontext(&threads_[thread_].context, &main_); }

void EmulatedBlock::Meet(Meeting& meeting, int size, const std::function<void()>& last_does) {
  const int64_t round = meeting.round;
  ++n_events_;
  if (++meeting.n_arrived == size) {
    last_does();
    meeting.n_arrived = 0;
    ++meeting.round;
    return;
  }
  while (meeting.round == round) Yield();
  ++n_events_;
}

void EmulatedBlock::ShowPieces() {
  for (Piece& piece : pieces_) {
    piece.is_visible = piece.is_written;
    piece.is_visible_to_wgmma = piece.is_shown;
  }
}

void EmulatedBlock::Barrier() {
  Meet(barrier_, static_cast<int>(threads_.size()), [&] { ShowPieces(); });
}

void EmulatedBlock::BarrierOfFirst(int n_threads) {
  if (thread_ >= n_threads) Complain("a thread at a barrier of others");
  Meet(barrier_of_first_, n_threads, [&] { ShowPieces(); });
}

EmulatedBlock::Piece* EmulatedBlock::PieceAt(uint32_t address) {
  if (address < kSharedBase || address / 16 >= pieces_.size()) {
    Complain("an address beyond the shared memory");
    return nullptr;
  }
  return &pieces_[address / 16];
}

void EmulatedBlock::StartCopy(uint32_t target, const uint16_t* source, bool is_there) {
  if (target % 16 != 0 || reinterpret_cast<uintptr_t>(source) % 16 != 0)
    Complain("a copy that 16 bytes do not align");
  Piece* piece = PieceAt(target);
  if (piece == nullptr) return;
  *piece = {};  // from now on its bytes may change
  for (int i = 0; i < 4; ++i) words_[target / 4 + i] = {};
  const bool is_allowed = std::any_of(sources_.begin(), sources_.end(), [&](const auto& values) {
    return source >= values.data() && source + 8 <= values.data() + values.size();
  });
  if (!is_allowed) {
    Complain("a copy from outside of its matrix");
    return;
  }
  Thread& thread = threads_[thread_];
  const Copy copy{target, is_there ? source : nullptr};
  if (random_() % 2 == 0) Write(copy, thread);  // its bytes may be there at once ...
  thread.open_copies.push_back(copy);           // ... but nobody may rely on it
}

void EmulatedBlock::Write(const Copy& copy, Thread& writer) {
  if (copy.source == nullptr) {
    std::memset(&shared_[copy.target], 0, 16);
  } else {
    std::memcpy(&shared_[copy.target], copy.source, 16);
  }
  writer.written.insert(copy.target);
}

void EmulatedBlock::CommitCopies() {
  Thread& thread = threads_[thread_];
  thread.copy_groups.push_back(std::exchange(thread.open_copies, {}));
}

void EmulatedBlock::WaitForCopies(int max_groups) {
  Thread& thread = threads_[thread_];
  while (static_cast<int>(thread.copy_groups.size()) > max_groups) {
    for (const Copy& copy : thread.copy_groups.front()) {
      Write(copy, thread);
      *PieceAt(copy.target) = {.is_written = true};
    }
    thread.copy_groups.pop_front();
  }
}

void EmulatedBlock::CheckLoad(uint32_t address, int thread) {
  Word& word = words_[address / 4];
  if (word.writer >= 0) {
    if (word.writer != thread && word.write_round == barrier_.round)
      Complain("a load of what no barrier has passed");
    word.reader = word.read_round == barrier_.round && word.reader != thread ? kSeveral : thread;
    word.read_round = barrier_.round;
    return;
  }
  const Piece* piece = PieceAt(address);
  if (!piece->is_written) {
    Complain("a load of what no copy has brought, or a later one overwrites");
  } else if (!piece->is_visible) {
    Complain("a load of what no barrier has passed");
  }
}

void EmulatedBlock::StoreShared(uint32_t address, uint32_t value) {
  if (PieceAt(address) == nullptr) return;
  Word& word = words_[address / 4];
  if (word.read_round == barrier_.round && word.reader != thread_)
    Complain("a store to what another thread loads before the next barrier");
  if (word.write_round == barrier_.round && word.writer != thread_)
    Complain("two threads store to one place");
  word.writer = thread_;
  word.write_round = barrier_.round;
  std::memcpy(&shared_[address], &value, sizeof value);
}

int EmulatedBlock::AddShared(uint32_t address, int value) {
  if (PieceAt(address) == nullptr) return 0;
  Word& word = words_[address / 4];
  if (word.writer < 0) Complain("an addition to what nothing has stored");
  word.writer = kSeveral;
  word.write_round = barrier_.round;
  int before;
  std::memcpy(&before, &shared_[address], sizeof before);
  const int after = before + value;
  std::memcpy(&shared_[address], &after, sizeof after);
  return before;
}

uint32_t EmulatedBlock::Shuffle(uint32_t value, int lane) {
  const int warp = thread_ / kWarp;
  WarpExchange& exchange = warp_exchanges_[warp];
  uint32_t result = 0;
  exchange.results[thread_ % kWarp] = &result;
  exchange.values[thread_ % kWarp] = value;
  exchange.sources[thread_ % kWarp] = lane;
  Meet(warps_[warp], kWarp, [&] {
    for (int i = 0; i < kWarp; ++i)
      *exchange.results[i] = exchange.values[exchange.sources[i] % kWarp];
  });
  return result;
}

// Lane l brings the address of row l % 8 of matrix l / 8, and gets of each matrix two values: of
// row l / 4 from column 2 * (l % 4) on; transposed, of column l / 4 from that row on.
void EmulatedBlock::LoadMatrices(uint32_t (&values)[4], uint32_t address, bool is_transposed) {
  const int warp = thread_ / kWarp;
  if (address % 16 != 0) Complain("a row of a matrix that 16 bytes do not align");
  WarpExchange& exchange = warp_exchanges_[warp];
  exchange.results[thread_ % kWarp] = values;
  exchange.values[thread_ % kWarp] = address;
  Meet(warps_[warp], kWarp, [&] {
    for (const uint32_t row : exchange.values) {
      if (PieceAt(row) == nullptr) return;
      for (int i = 0; i < 4; ++i) CheckLoad(row + 4 * i, kSeveral);
    }
    for (int i = 0; i < kWarp * 4; ++i) {
      const int lane = i / 4, matrix = i % 4;
      uint16_t pair[2];
      for (int j = 0; j < 2; ++j) {
        const int row = is_transposed ? lane % 4 * 2 + j : lane / 4;
        const int column = is_transposed ? lane / 4 : lane % 4 * 2 + j;
        std::memcpy(&pair[j], &shared_[exchange.values[matrix * 8 + row] + column * 2],
                    sizeof pair[j]);
      }
      exchange.results[lane][matrix] = uint32_t{pair[1]} << 16 | pair[0];
    }
  });
}

uint32_t EmulatedBlock::LoadShared(uint32_t address) {
  if (PieceAt(address) == nullptr) return 0;
  CheckLoad(address, thread_);
  uint32_t value;
  std::memcpy(&value, &shared_[address], sizeof value);
  return value;
}

void EmulatedBlock::ShowToWgmma() {
  Thread& thread = threads_[thread_];
  for (const uint32_t address : thread.written)
    if (Piece* piece = PieceAt(address); piece->is_written) piece->is_shown = true;
  thread.written.clear();
}

// Fragments of the PTX manual for m16n8k16: registers of a hold (row g, k 2t), (g + 8, 2t), (g, 2t
// + 8), (g + 8, 2t + 8); those of b (k 2t, column g), (2t + 8, g); those of d (g, 2t), (g, 2t + 1),
// and 8 rows on.
void EmulatedBlock::Mma(float* d, const uint32_t* a, const uint32_t* b) {
  const int warp = thread_ / kWarp;
  WarpOperands& operands = warp_operands_[warp];
  operands.d[thread_ % kWarp] = d;
  operands.a[thread_ % kWarp] = a;
  operands.b[thread_ % kWarp] = b;
  Meet(warps_[warp], kWarp, [&] {
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        uint16_t left[16], right[16];
        for (int k = 0; k < 16; ++k) {
          const int t = k % 8 / 2;
          left[k] = Half(operands.a[row % 8 * 4 + t][k / 8 * 2 + row / 8], k % 2);
          right[k] = Half(operands.b[column * 4 + t][k / 8], k % 2);
        }
        float& sum = operands.d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
        sum = Added(sum, left, right);
      }
    }
  });
}

void EmulatedBlock::WarpgroupFence() {
  threads_[thread_].has_fenced = true;
  Meet(warpgroups_[thread_ / kWarpgroup], kWarpgroup, [] {});
}

void EmulatedBlock::Wgmma(int n, float* d, uint64_t a, uint64_t b, WgmmaForm form) {
  const int warpgroup = thread_ / kWarpgroup;
  Thread& thread = threads_[thread_];
  if (!thread.has_fenced) Complain("wgmma without wgmma.fence after its sums were touched");
  auto [hidden, is_new] = thread.hidden_sums.try_emplace(d);
  if (is_new) {
    hidden->second.assign(d, d + n / 2);
    std::fill_n(d, n / 2, kHidden);
  }
  Operation& operation = arriving_[warpgroup];
  if (operation.sums.empty()) {
    operation = {
        n, a, b, form, std::vector<float*>(kWarpgroup), std::vector<const uint32_t*>(kWarpgroup)};
  }
  if (operation.n != n || operation.a != a || operation.b != b)
    Complain("threads of a warpgroup disagree about an operation");
  operation.sums[thread_ % kWarpgroup] = d;
  operation.a_registers[thread_ % kWarpgroup] = form.a_registers;
  Meet(warpgroups_[warpgroup], kWarpgroup,
       [&] { open_operations_[warpgroup].push_back(std::exchange(operation, {})); });
}

void EmulatedBlock::WarpgroupCommit() {
  const int warpgroup = thread_ / kWarpgroup;
  Meet(warpgroups_[warpgroup], kWarpgroup, [&] {
    operation_groups_[warpgroup].push_back(std::exchange(open_operations_[warpgroup], {}));
  });
}

void EmulatedBlock::WarpgroupWait(int max_groups) {
  const int warpgroup = thread_ / kWarpgroup;
  auto& groups = operation_groups_[warpgroup];
  Meet(warpgroups_[warpgroup], kWarpgroup, [&] {
    while (static_cast<int>(groups.size()) > max_groups) {
      for (const Operation& operation : groups.front()) Execute(operation, warpgroup);
      groups.pop_front();
    }
  });
  Thread& thread = threads_[thread_];
  const auto is_under_way = [&](const float* place) {
    for (const std::vector<Operation>& group : groups)
      for (const Operation& operation : group)
        if (operation.sums[thread_ % kWarpgroup] == place) return true;
    return false;
  };
  for (auto at = thread.hidden_sums.begin(); at != thread.hidden_sums.end();) {
    const auto& [place, values] = *at;
    if (is_under_way(place)) {
      ++at;
      continue;
    }
    if (std::count(place, place + values.size(), kHidden) != std::ssize(values))
      Complain("sums were touched while matrix operations were under way");
    std::copy(values.begin(), values.end(), place);
    thread.has_fenced = false;
    at = thread.hidden_sums.erase(at);
  }
}

// The matrix descriptor of the PTX manual: bits 0 to 13 the address, 32 to 45 the distance of
// groups of 8 rows, both over 16; bits 62 and 63 the swizzle, 1 for 128 bytes: bits 4 to 6 of an
// address are combined with bits 7 to 9 by exclusive or.
uint16_t EmulatedBlock::ReadOperand(uint64_t descriptor, int row, int column) {
  const uint32_t start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  const uint32_t group_bytes = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  return ReadForWgmma(descriptor, start + row / 8 * group_bytes + row % 8 * 128 + column * 2);
}

// With rows side by side, 64 of them in the 128 bytes of the swizzle: bits 16 to 29 are the
// distance of groups of 64 rows, bits 32 to 45 that of groups of 8 columns, both over 16.
uint16_t EmulatedBlock::ReadTransposed(uint64_t descriptor, int row, int column) {
  const uint32_t start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  const uint32_t row_bytes = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  const uint32_t column_bytes = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  return ReadForWgmma(descriptor, start + row / 64 * row_bytes + row % 64 * 2 +
                                      column / 8 * column_bytes + column % 8 * 128);
}

uint16_t EmulatedBlock::ReadForWgmma(uint64_t descriptor, uint32_t linear) {
  if (descriptor >> 62 != 1) Complain("a tile that is not swizzled in 128 bytes");
  const uint32_t address = linear ^ (linear >> 7 & 7) << 4;
  const Piece* piece = PieceAt(address);
  if (piece == nullptr) return 0;
  if (!piece->is_written) {
    Complain("wgmma reads what no copy has brought, or a later one overwrites");
  } else if (!piece->is_shown) {
    Complain("wgmma reads what was not shown by fence.proxy.async");
  } else if (!piece->is_visible_to_wgmma) {
    Complain("wgmma reads what no barrier has passed");
  }
  uint16_t value;
  std::memcpy(&value, &shared_[address], sizeof value);
  return value;
}

void EmulatedBlock::Execute(const Operation& operation, int warpgroup) {
  std::vector<uint16_t> a(64 * 16), b(operation.n * 16);
  for (int row = 0; row < 64; ++row)
    for (int k = 0; k < 16; ++k) {
      if (operation.form.a_registers == nullptr) {
        a[row * 16 + k] = ReadOperand(operation.a, row, k);
        continue;
      }
      const int thread = row / 16 * kWarp + row % 8 * 4 + k % 8 / 2;
      a[row * 16 + k] = Half(operation.a_registers[thread][k / 8 * 2 + row % 16 / 8], k % 2);
    }
  for (int row = 0; row < operation.n; ++row)
    for (int k = 0; k < 16; ++k)
      b[row * 16 + k] = operation.form.is_b_transposed ? ReadTransposed(operation.b, row, k)
                                                       : ReadOperand(operation.b, row, k);
  for (int index = 0; index < kWarpgroup; ++index) {
    Thread& thread = threads_[warpgroup * kWarpgroup + index];
    std::vector<float>& sums = thread.hidden_sums.at(operation.sums[index]);
    if (operation.form.is_set) std::fill(sums.begin(), sums.end(), 0.0f);
    for (int i = 0; i < operation.n / 2; ++i) {
      const int row = index / kWarp * 16 + index % kWarp / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + index % 4 * 2 + i % 2;
      sums[i] = Added(sums[i], &a[row * 16], &b[column * 16]);
    }
  }
}

}  // namespace baton
