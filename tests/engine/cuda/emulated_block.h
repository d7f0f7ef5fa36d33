// A block of GPU threads on one thread of the host: kernels that are written as device code
// (engine/cuda/*.cuh) run on it, with the primitives of tests/engine/cuda/emulated in place of PTX.
//
// Threads take turns in an order that a seed draws, at every point where they wait for each other.
// Copies end as early or as late as they may, drawn by the seed, too; matrix operations read shared
// memory as late as they may, and their sums are hidden meanwhile. So a missing wait shows as a
// wrong result or a complaint. The values of matrix operations are those of
// engine/numerics/tensor_core_dot.h. One block at a time; not thread-safe.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/tensor_map.h"

namespace baton {

// A tensor map of the emulation (engine/cuda/tensor_map.h), of boxes of so many rows and columns of
// 64 values.
TensorMap EmulatedTensorMap(const uint16_t* values, int n_rows, int k, int stride, int box_rows,
                            int box_columns);

// Forms of a matrix operation of a warpgroup beside the plain one.
struct WgmmaForm {
  bool is_set = false;                    // what was in the sums does not count
  const uint32_t* a_registers = nullptr;  // four of this thread, read as late as they may be
  bool is_b_transposed = false;           // rows of B lie side by side
};

struct ThreadIndex {
  unsigned x = 0, y = 0, z = 0;
};

class EmulatedBlock {
 public:
  // `shared_bytes`: dynamic shared memory, which begins at an address that only 16 divides.
  EmulatedBlock(int n_threads, int shared_bytes, uint32_t seed);
  ~EmulatedBlock();
  EmulatedBlock(const EmulatedBlock&) = delete;
  EmulatedBlock& operator=(const EmulatedBlock&) = delete;

  // Memory that copies may read; everything else is a complaint.
  void AllowSource(std::span<const uint16_t> values);

  // Runs the kernel's body once per thread. Returns what was wrong, each kind once; empty: nothing.
  std::set<std::string> Run(ThreadIndex block, const std::function<void()>& body);

  // The block that runs now, and its thread.
  static EmulatedBlock& Now();
  ThreadIndex thread_index() const { return {static_cast<unsigned>(thread_), 0, 0}; }
  ThreadIndex block_index() const { return block_; }
  ThreadIndex grid_size() const { return grid_; }
  void set_grid_size(ThreadIndex grid) { grid_ = grid; }

  // ---- primitives, called by kernels ----
  uint32_t SharedBase() const { return kSharedBase; }
  void Barrier();
  // A barrier of the first n_threads threads.
  void BarrierOfFirst(int n_threads);
  void StartCopy(uint32_t target, const uint16_t* source, bool is_there);
  void CommitCopies();
  void WaitForCopies(int max_groups);
  uint32_t LoadShared(uint32_t address);
  void StoreShared(uint32_t address, uint32_t value);
  int AddShared(uint32_t address, int value);
  // ldmatrix of four matrices of 8 rows of 16 bytes.
  void LoadMatrices(uint32_t (&values)[4], uint32_t address, bool is_transposed);
  // Returns the value that lane `lane` brings.
  uint32_t Shuffle(uint32_t value, int lane);
  void ShowToWgmma();
  void Mma(float* d, const uint32_t* a, const uint32_t* b);
  void WarpgroupFence();
  void Wgmma(int n, float* d, uint64_t a, uint64_t b, WgmmaForm form = {});
  void WarpgroupCommit();
  void WarpgroupWait(int max_groups);
  // Primitives of engine/cuda/tma.cuh.
  void InitBarrier(uint32_t address, int count);
  void ArriveExpecting(uint32_t address, uint32_t bytes);
  void ArriveAsWarp(uint32_t address);
  void WaitForPhase(uint32_t address, uint32_t parity);
  void StartBox(uint32_t target, const TensorMap& map, int x, int y, uint32_t barrier);

 private:
  static constexpr uint32_t kSharedBase = 0x410;

  struct Copy {
    uint32_t target;
    const uint16_t* source;  // null: zeros
  };
  // A matrix operation of a warpgroup: where each of its threads has the sums.
  struct Operation {
    int n;
    uint64_t a, b;
    WgmmaForm form;
    std::vector<float*> sums;
    std::vector<const uint32_t*> a_registers;
  };
  struct Thread {
    ucontext_t context = {};
    std::vector<char> stack;
    bool has_ended = false;
    std::vector<Copy> open_copies;
    std::deque<std::vector<Copy>> copy_groups;
    std::set<uint32_t> written;  // pieces that it has written and not shown
    bool has_fenced = false;     // since it last waited for sums
    std::map<float*, std::vector<float>>
        hidden_sums;  // by place: values while operations are under way
  };
  // Threads that do one thing together: the last one to come does it.
  struct Meeting {
    int n_arrived = 0;
    int64_t round = 0;
  };
  // State of 16 bytes: whether threads may load them, and whether wgmma may read them.
  struct Piece {
    bool is_written = false;
    bool is_visible = false;  // a barrier has followed
    bool is_shown = false;    // fence.proxy.async has followed
    bool is_visible_to_wgmma = false;
  };

  // State of 4 bytes that threads store, not copies: who stored and loaded them last, and after how
  // many barriers.
  struct Word {
    int writer = -1, reader = -1;  // -1: none
    int64_t write_round = -1, read_round = -1;
  };

  struct PhaseBarrier {
    int count = 0;
    int n_missing = 0;    // arrivals
    int64_t n_bytes = 0;  // announced and not there
    uint32_t parity = 0;  // of the phase under way
  };
  struct Box {
    uint32_t target;
    TensorMap map;
    int x, y;
    uint32_t barrier;
  };

  static void Entry();
  void Yield();
  void Meet(Meeting& meeting, int size, const std::function<void()>& last_does);
  void Complain(const std::string& what) { complaints_.insert(what); }
  void Write(const Copy& copy, Thread& writer);
  Piece* PieceAt(uint32_t address);
  void CheckLoad(uint32_t address, int thread);
  PhaseBarrier* BarrierAt(uint32_t address);
  void EndPhase(PhaseBarrier& barrier);
  void WriteBox(const Box& box, bool is_last_time);
  // Reads row `row` at `column` of a tile as wgmma does.
  uint16_t ReadOperand(uint64_t descriptor, int row, int column);
  // Reads a tile in the same way whose rows lie side by side.
  uint16_t ReadTransposed(uint64_t descriptor, int row, int column);
  uint16_t ReadForWgmma(uint64_t descriptor, uint32_t linear);
  void ShowPieces();
  void Execute(const Operation& operation, int warpgroup);

  std::vector<Thread> threads_;
  std::vector<uint8_t> shared_;
  std::vector<Piece> pieces_;  // of 16 bytes
  std::vector<Word> words_;    // of 4 bytes
  std::vector<std::span<const uint16_t>> sources_;
  std::mt19937 random_;
  std::set<std::string> complaints_;
  std::function<void()> body_;
  ThreadIndex block_, grid_;
  std::map<uint32_t, PhaseBarrier> phase_barriers_;
  std::vector<Box> boxes_;  // under way
  ucontext_t main_ = {};
  int thread_ = 0;
  int64_t n_events_ = 0;  // that let others go on
  Meeting barrier_, barrier_of_first_;
  std::vector<Meeting> warps_, warpgroups_;
  // By warp: the operands that its lanes have brought.
  struct WarpOperands {
    float* d[32];
    const uint32_t* a[32];
    const uint32_t* b[32];
  };
  std::vector<WarpOperands> warp_operands_;
  struct WarpExchange {
    uint32_t* results[32];
    uint32_t values[32];
    int sources[32];
  };
  std::vector<WarpExchange> warp_exchanges_;
  // By warpgroup.
  std::vector<Operation> arriving_;
  std::vector<std::vector<Operation>> open_operations_;
  std::vector<std::deque<std::vector<Operation>>> operation_groups_;
};

}  // namespace baton
