#include "engine/cpu/linear/linear.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "engine/cpu/linear/linear_reference.h"
#include "engine/cpu/linear/linear_tables.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/threads/mxcsr.h"
#include "engine/threads/phase_clock.h"

namespace baton {
namespace {

// Packing fewer words than this is not worth waking the pool.
constexpr int64_t kSerialPackElements = 16 * 1024;

// Runs of each path, in turns; the best run counts, because a shared machine disturbs some
// milliseconds.
constexpr int kSelectionRuns = 16;
// The preferred path is kept unless another path is faster by more than this factor.
constexpr double kDecisive = 1.05;

void CheckArgs(const LinearArgs& args) {
  BATON_CHECK(args.x_stride >= RoundUp(args.weights.k, 32));
  BATON_CHECK(args.norm.apply == nullptr ||
              (args.norm.n == args.weights.k && args.norm.n_padded == RoundUp(args.weights.k, 32)));
  BATON_CHECK(reinterpret_cast<uintptr_t>(args.weights.data) % 64 == 0);
  BATON_CHECK(args.epilogue == Epilogue::kFp32 ? args.y_fp32 != nullptr : args.y != nullptr);
  BATON_CHECK(args.epilogue != Epilogue::kResidualAdd || args.residual != nullptr);
  BATON_CHECK(!IsGated(args.epilogue) || args.weights.n % 32 == 0);
}

// The part of a job from row `begin` on.
LinearJob RowsOf(const LinearJob& job, int64_t begin, int64_t rows) {
  LinearJob part = job;
  part.rows = rows;
  if (job.x_rows != nullptr) {
    part.x_rows += begin;
  } else {
    part.x += begin * job.x_stride;
  }
  if (job.y != nullptr) part.y += begin * job.y_stride;
  if (job.y_fp32 != nullptr) part.y_fp32 += begin * job.y_stride;
  if (job.residual != nullptr) part.residual += begin * job.residual_stride;
  return part;
}

class TableLinearKernels final : public LinearKernels {
 public:
  TableLinearKernels(Isa isa, const LinearKernelSet& set) : isa_(isa), set_(set) {}

  Isa isa() const override { return isa_; }

  void RunAll(std::span<const LinearArgs> layers, ComputePool& pool) override {
    parts_.clear();
    for (const LinearArgs& args : layers) AddParts(args, pool.n_threads());
    if (parts_.empty()) return;
    PlaceRows();
    int64_t bytes = 0;
    for (const Part& part : parts_) bytes = std::max(bytes, ScratchBytes(*part.table, part.job));
    bytes = ScratchOfMember(bytes);
    std::byte* const scratch =
        static_cast<std::byte*>(scratch_.Reserve(static_cast<size_t>(bytes * pool.n_threads())));
    const Part& last = parts_.back();
    {
      const PhaseScope packing(pool.clock(), Phase::kPack);
      ForItems(pool, last.first_pack_item + last.table->pack_items(last.job),
               packed_elements_ <= kSerialPackElements, ItemOrder::kInTurn, &Part::first_pack_item,
               [&](const Part& part, int64_t item, int member) {
                 void* const row = scratch + bytes * member;
                 part.table->pack(part.job, item, static_cast<bf16*>(row));
               });
    }
    ForItems(pool, last.first_run_item + last.table->run_items(last.job), false, set_.order,
             &Part::first_run_item, [&](const Part& part, int64_t item, int member) {
               part.table->run(part.job, item, scratch + bytes * member);
             });
  }

  // Packed rows need at most the room of all rows in one layer, plus, per layer, a few rows that
  // fill up its tiles.
  void Reserve(std::span<const LinearArgs> layers, ComputePool& pool) override {
    int64_t rows = 0, together = 0, filling = 0, scratch = 0;
    int64_t min_max_rows = std::numeric_limits<int64_t>::max();
    for (const LinearArgs& args : layers) rows += args.rows;
    for (const LinearArgs& args : layers) {
      if (args.weights.n == 0) continue;
      LinearJob job = JobOf(args);
      job.members = pool.n_threads();
      const int64_t max_rows = TableOf(args, rows).max_rows, at_once = std::min(rows, max_rows);
      int64_t few = 0;
      for (job.rows = 1; job.rows <= at_once; ++job.rows) {
        const LinearKernelTable& table = TableOf(args, job.rows);
        scratch = std::max(scratch, ScratchBytes(table, job));
        if (job.rows <= kMaxTileRows) few = std::max(few, PackedBytes(table, job));
      }
      filling += few;
      job.rows = at_once;
      const int64_t parts = (rows + max_rows - 1) / max_rows;
      together = std::max(together, parts * PackedBytes(TableOf(args, at_once), job));
      min_max_rows = std::min(min_max_rows, max_rows);
    }
    packed_rows_.Reserve(static_cast<size_t>(together + filling));
    scratch_.Reserve(static_cast<size_t>(ScratchOfMember(scratch) * pool.n_threads()));
    parts_.reserve(layers.size() + static_cast<size_t>(rows / min_max_rows));
  }

 private:
  static constexpr int64_t kMaxTileRows = 48;  // rows of the largest tile of any kernel

  // Members' scratch lies in separate 4 KiB pages, an odd number of lines apart.
  static int64_t ScratchOfMember(int64_t bytes) { return RoundUp(bytes, 4096) + 64; }

  // Scratch of a member: the row that is packed, followed by scratch of items.
  static int64_t ScratchBytes(const LinearKernelTable& table, const LinearJob& job) {
    const int64_t row_bytes = RoundUp(job.k, 32) * static_cast<int64_t>(sizeof(bf16));
    return std::max(table.scratch_bytes(job), row_bytes);
  }

  static int64_t PackedBytes(const LinearKernelTable& table, const LinearJob& job) {
    return RoundUp(table.packed_rows_bytes(job), 64);
  }

  // At most max_rows rows of one layer, with the first index of its items among all parts' items.
  struct Part {
    const LinearKernelTable* table;
    LinearJob job;
    int64_t first_pack_item, first_run_item;
  };

  // The table for `rows` rows of a layer. If a job takes fewer rows, `rows` only determines the
  // size of jobs.
  const LinearKernelTable& TableOf(const LinearArgs& args, int64_t rows) const {
    const WeightFormat& format = args.weights.format;
    const LinearForm form = LinearFormOf(isa_, format, rows, args.weights.k);
    const LinearKernelSet::Tables& tables = format.type == WeightType::kBf16   ? set_.bf16
                                            : format.type == WeightType::kInt8 ? set_.int8
                                                                               : set_.int4;
    const LinearKernelTable* const table = tables[static_cast<size_t>(form)];
    BATON_CHECK(table != nullptr);
    return *table;
  }

  void AddParts(const LinearArgs& args, int members) {
    if (args.rows <= 0 || args.weights.n <= 0) return;
    CheckArgs(args);
    LinearJob job = JobOf(args);
    job.members = members;
    job.item_step = ItemStep(set_.order, members);
    const int64_t max_rows = TableOf(args, args.rows).max_rows;
    const int64_t parts = (args.rows + max_rows - 1) / max_rows;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = args.rows * part / parts;
      const int64_t end = args.rows * (part + 1) / parts;
      parts_.push_back({&TableOf(args, end - begin), RowsOf(job, begin, end - begin), 0, 0});
    }
  }

  // Counts the items and assigns every part its place for packed rows.
  void PlaceRows() {
    int64_t bytes = 0, pack_items = 0, run_items = 0;
    packed_elements_ = 0;
    for (Part& part : parts_) {
      part.first_pack_item = pack_items;
      part.first_run_item = run_items;
      pack_items += part.table->pack_items(part.job);
      run_items += part.table->run_items(part.job);
      packed_elements_ += part.job.rows * part.job.k_padded;
      bytes += PackedBytes(*part.table, part.job);
    }
    std::byte* place = static_cast<std::byte*>(packed_rows_.Reserve(static_cast<size_t>(bytes)));
    for (Part& part : parts_) {
      part.job.packed_rows = place;
      place += PackedBytes(*part.table, part.job);
    }
  }

  // Calls fn(part, item of the part, member) for all `items` items, on this thread alone if
  // `serial`.
  template <typename Fn>
  void ForItems(ComputePool& pool, int64_t items, bool serial, ItemOrder order,
                int64_t Part::*first, const Fn& fn) const {
    const auto run = [&](int64_t claim, int member) {
      const int64_t item = ItemOfClaim(order, claim, items, pool.n_threads());
      const auto after =
          std::upper_bound(parts_.begin(), parts_.end(), item,
                           [&](int64_t i, const Part& part) { return i < part.*first; });
      const Part& part = *std::prev(after);
      fn(part, item - part.*first, member);
    };
    if (!serial) return pool.For(items, run);
    const NumericsMxcsrScope scope;
    for (int64_t claim = 0; claim < items; ++claim) run(claim, 0);
  }

  Isa isa_;
  LinearKernelSet set_;
  std::vector<Part> parts_;  // parts of the current layers, in their order
  int64_t packed_elements_ = 0;
  AlignedBuffer packed_rows_;
  AlignedBuffer scratch_;
};

// A linear layer with its own inputs, for the self-test and the choice of a path.
struct Sample {
  Sample(int64_t rows_in, int64_t n, int64_t k, WeightFormat format) : rows(rows_in) {
    void* packed = weight_memory.Reserve(static_cast<size_t>(PackedWeights::Bytes(n, k, format)));
    weights = {packed, n, k, format};
    uint64_t state = 0x9e3779b97f4a7c15u;
    x.resize(static_cast<size_t>(rows * RoundUp(k, 32)));
    std::generate(x.begin(), x.end(), [&] { return NextValue(state); });
    for (int64_t block = 0; block < weights.n_padded() / 16; ++block) {
      FillBlock(state, static_cast<std::byte*>(packed) + block * format.BlockBytes(k));
    }
    y.resize(static_cast<size_t>(rows * n));
  }

  // Fills sixteen outputs; n is a multiple of 16.
  void FillBlock(uint64_t& state, std::byte* packed) const {
    const int64_t k = weights.k;
    if (weights.format.type == WeightType::kBf16) {
      std::vector<bf16> values(static_cast<size_t>(16 * k));
      std::generate(values.begin(), values.end(), [&] { return NextValue(state); });
      return PackBlock(values.data(), 16, k, 0, static_cast<bf16*>(static_cast<void*>(packed)));
    }
    const int min = weights.format.type == WeightType::kInt8 ? -128 : -8;
    std::vector<int8_t> values(static_cast<size_t>(16 * k));
    std::generate(values.begin(), values.end(),
                  [&] { return static_cast<int8_t>(min + NextValue(state) % (-2 * min)); });
    std::vector<float> scales(static_cast<size_t>(16 * weights.format.Groups(k)));
    std::generate(scales.begin(), scales.end(), [&] { return Bf16ToFloat(NextValue(state)); });
    PackIntegerBlock(values.data(), scales.data(), 16, k, weights.format, packed);
  }

  // Any sign and mantissa; exponents from 2^-70 to 2^57, so that products and sums pass through
  // denormals, cancellation and large values. (xorshift64)
  static bf16 NextValue(uint64_t& state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint32_t exponent = static_cast<uint32_t>(57 + (state >> 40) % 128);
    return static_cast<bf16>((state >> 20 & 0x8000u) | exponent << 7 | (state & 0x7fu));
  }

  LinearArgs Args(float* out) const {
    LinearArgs args;
    args.x = x.data();
    args.x_stride = RoundUp(weights.k, 32);
    args.rows = rows;
    args.weights = weights;
    args.epilogue = Epilogue::kFp32;
    args.y_fp32 = out;
    args.y_stride = weights.n;
    return args;
  }

  int64_t rows;
  AlignedBuffer weight_memory;
  PackedWeights weights;
  std::vector<bf16> x;
  std::vector<float> y;
};

double Seconds(LinearKernels& kernels, Sample& sample, ComputePool& pool) {
  const auto begin = std::chrono::steady_clock::now();
  kernels.Run(sample.Args(sample.y.data()), pool);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

LinearJob JobOf(const LinearArgs& args) {
  const PackedWeights& weights = args.weights;
  LinearJob job;
  job.x = args.x;
  job.x_stride = args.x_stride;
  job.x_rows = args.x_rows;
  job.norm = args.norm;
  job.rows = args.rows;
  job.weights = weights.data;
  job.weight_type = weights.format.type;
  job.n = weights.n;
  job.n_blocks = weights.n_padded() / 16;
  job.k = weights.k;
  job.k_padded = weights.format.KPadded(weights.k);
  job.group_k = weights.format.GroupK(weights.k);
  job.group_bytes = weights.format.GroupBytes(weights.k);
  job.block_bytes = weights.format.BlockBytes(weights.k);
  job.bias = args.bias;
  job.epilogue = args.epilogue;
  job.y = args.y;
  job.y_fp32 = args.y_fp32;
  job.y_stride = args.y_stride;
  job.residual = args.residual;
  job.residual_stride = args.residual_stride;
  return job;
}

LinearKernelSet KernelSetOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      break;
    case Isa::kAvx512:
      if (HasVnni()) return {{&kLinearAvx512}, {&kInt8Vnni}, {&kInt4Vnni}};
      return {{&kLinearAvx512}, {&kInt8Avx512}, {&kInt4Avx512}};
    case Isa::kAvx512Bf16:
      return {{&kLinearAvx512Bf16}, {&kInt8VnniZen}, {&kInt4VnniZen}, ItemOrder::kInParts};
    case Isa::kAmx:
      return {{&kLinearAmxVectors, &kLinearAmxStream, &kLinearAmxRowsInL2, &kLinearAmxWeightsInL2},
              {&kInt8Vnni, &kInt8AmxStream, &kInt8AmxRowsInL2, &kInt8AmxWeightsInL2},
              {&kInt4Vnni, &kInt4AmxStream, &kInt4AmxRowsInL2, &kInt4AmxWeightsInL2}};
  }
  return {{&kLinearAvx2}, {&kInt8Avx2}, {&kInt4Avx2}};
}

std::unique_ptr<LinearKernels> MakeLinearKernelsOf(Isa isa, const LinearKernelSet& set) {
  return std::make_unique<TableLinearKernels>(isa, set);
}

absl::Status SelfTestLinear(LinearKernels& kernels) {
  ComputePool pool(1, 0);
  // 2,048 outputs for each of the kernels for few and for many rows.
  constexpr WeightFormat kFormats[] = {
      {}, {WeightType::kInt8, 0}, {WeightType::kInt4, 32}, {WeightType::kInt4, 128}};
  for (const auto& [format, rows] : {std::pair{kFormats[0], 8},
                                     {kFormats[0], 64},
                                     {kFormats[1], 8},
                                     {kFormats[1], 64},
                                     {kFormats[2], 64},
                                     {kFormats[3], 8}}) {
    Sample sample(rows, 2048 / rows, 160, format);
    std::vector<float> expected(sample.y.size());
    {
      const NumericsMxcsrScope scope;
      RunLinearReference(JobOf(sample.Args(expected.data())));
    }
    kernels.Run(sample.Args(sample.y.data()), pool);
    if (std::memcmp(sample.y.data(), expected.data(), expected.size() * sizeof(float)) != 0) {
      return absl::InternalError(
          absl::StrCat("the CPU path ", std::string(IsaName(kernels.isa())), " of ", CpuModelName(),
                       " does not sum ", format.Name(),
                       " weights in the order of numerics v1; use another path (model.isa)"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LinearKernels>> MakeLinearKernels(Isa isa) {
  RETURN_IF_ERROR(CheckIsaSupported(isa));
  std::unique_ptr<LinearKernels> kernels = MakeLinearKernelsOf(isa, KernelSetOf(isa));
  RETURN_IF_ERROR(SelfTestLinear(*kernels));
  return kernels;
}

absl::StatusOr<std::unique_ptr<LinearKernels>> MakeFastestLinearKernels(ComputePool& pool) {
  RETURN_IF_ERROR(CheckIsaSupported(Isa::kAvx2));
  struct Candidate {
    std::unique_ptr<LinearKernels> kernels;
    double seconds = std::numeric_limits<double>::infinity();  // best run
  };
  std::vector<Candidate> candidates;
  for (const Isa isa : SupportedIsas()) {
    absl::StatusOr<std::unique_ptr<LinearKernels>> kernels = MakeLinearKernels(isa);
    // A path that fails the self-test is no candidate.
    if (kernels.ok()) candidates.push_back({*std::move(kernels)});
  }
  if (candidates.empty()) return MakeLinearKernels(Isa::kAvx2).status();
  Sample sample(96, 512, 512, {});  // 50 MFLOP: about a millisecond a run on the slowest path
  for (int run = 0; run < kSelectionRuns; ++run) {
    for (Candidate& candidate : candidates) {
      candidate.seconds = std::min(candidate.seconds, Seconds(*candidate.kernels, sample, pool));
    }
  }
  double min = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) min = std::min(min, candidate.seconds);
  while (candidates.back().seconds > kDecisive * min) candidates.pop_back();
  return std::move(candidates.back().kernels);
}

}  // namespace baton
