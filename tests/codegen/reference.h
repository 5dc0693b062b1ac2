// Runs loop nests directly, in double: what printed kernels are compared with. The threads of a GPU kernel's block, and
// of all blocks of a cluster, take turns (fibers.h), so that barriers do what they do there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/lower/stmt.h"
#include "compiler/tensor/array.h"
#include "tests/codegen/fibers.h"

namespace diapason::testing {

// What the lanes of a warp show each other.
struct ReferenceWarp {
  explicit ReferenceWarp(Fibers* fibers) : barrier(fibers, 32) {}

  FiberBarrier barrier;
  double shown[32];
  double factors[32][6];
  double group_factors[32][8];
  int64_t rows[32];
};

// Barriers of a block where bulk and tensor copies arrive, by buffer and place.
struct ReferenceArrivals {
  struct Barrier {
    int64_t phase = 0;
    int64_t arrivals = 1, arrived = 0;            // that it takes, of threads that came in this phase
    std::vector<std::function<void()>> copies{};  // that are under way

    bool all_asked() const { return static_cast<int64_t>(copies.size()) >= arrivals; }
  };
  std::map<std::pair<int, int64_t>, Barrier> barriers;
};

// One thread of a kernel.
class ReferenceThread {
 public:
  int64_t block = 0, rank = 0, thread = 0;                        // block: of clusters, where the kernel has them
  std::function<void()> barrier, cluster_barrier, first_barrier;  // the last one: of all that are no producers
  ReferenceWarp* warp = nullptr;
  ReferenceArrivals* arrivals = nullptr;
  Fibers* fibers = nullptr;
  int64_t threads = 1;
  std::vector<std::map<int, std::vector<double>>>* blocks = nullptr;  // shared buffers of the cluster's blocks
  std::map<int, std::vector<double>*> memory;                         // global and shared buffers
  std::map<int, BufferDecl> decls;

  void Execute(const Stmt& s) {
    if (s == nullptr) return;
    switch (s->kind) {
      case StmtKind::kFor: return Loop(*s);
      case StmtKind::kSeq:
        for (const Stmt& child : s->body) Execute(child);
        return;
      case StmtKind::kStore:
        if (thread == 0 && decls.at(s->buffer).overlay) SpoilOthers(s->buffer);
        return Store(*s);
      case StmtKind::kIf:
        if (Value(s->condition) != 0) Execute(s->body[0]);
        return;
      case StmtKind::kAlloc: {
        decls[s->decl.id] = s->decl;
        if (s->decl.scope == Scope::kShared) return Execute(s->body[0]);
        std::vector<double> contents(s->decl.elements, std::nan(""));
        memory[s->decl.id] = &contents;
        return Execute(s->body[0]);
      }
      case StmtKind::kLet: return Let(*s);
      case StmtKind::kBarrier: return s->extent > 0 ? first_barrier() : barrier();
      case StmtKind::kSetRegisters: return;
      case StmtKind::kClusterBarrier:
      case StmtKind::kClusterEnd:
        for (const Stmt& child : s->body) Execute(child);
        return cluster_barrier();
      case StmtKind::kLaunchDependents: return;
      case StmtKind::kCommit: groups_.emplace_back(); return;
      case StmtKind::kWait: return Finish(s->extent);
      case StmtKind::kMma: return Multiply(*s);
      case StmtKind::kLoadMatrix: return LoadMatrix(*s);
      case StmtKind::kShuffle: return Shuffle(*s);
      case StmtKind::kQuadStore: return StoreByQuad(*s);
      case StmtKind::kPack:
        memory.at(s->buffer)->at(Int(s->index)) =
            Packed(s->operands[0]->dtype, [&](size_t i) { return Value(s->operands[i]); });
        return;
      case StmtKind::kFactorParts: return FactorParts(*s);
      case StmtKind::kGroupMma: return MultiplyByGroup(*s);
      case StmtKind::kGroupSync: return SyncGroup(*s);
      case StmtKind::kBulkCopy: return BulkCopy(*s);
      case StmtKind::kTensorCopy: return TensorCopy(*s);
      case StmtKind::kMbarrier:
        if (s->mbarrier == MbarrierOp::kArrive) return Arrive(*s);
        return s->mbarrier == MbarrierOp::kInit ? InitArrivals(*s) : AwaitArrival(*s);
      case StmtKind::kComment: return;
    }
  }

 private:
  // Behind the body the variable is what it was before: the step of a pipeline is bound to the one before inside it.
  void Let(const StmtNode& s) {
    const auto outer = vars_.find(s.var.get());
    const std::optional<int64_t> before = outer == vars_.end() ? std::nullopt : std::optional(outer->second);
    vars_[s.var.get()] = Int(s.value);
    Execute(s.body[0]);
    if (before) vars_[s.var.get()] = *before;
  }

  void Loop(const StmtNode& s) {
    const bool is_block = s.for_kind == ForKind::kBlockX, is_thread = s.for_kind == ForKind::kThreadX;
    if (is_block || is_thread || s.for_kind == ForKind::kCluster) {
      vars_[s.var.get()] = is_block ? block : is_thread ? thread : rank;
      return Execute(s.body[0]);
    }
    for (int64_t i = 0; i < s.extent; ++i) {
      vars_[s.var.get()] = i;
      Execute(s.body[0]);
    }
  }

  void Shuffle(const StmtNode& s) {
    warp->shown[thread % 32] = Value(s.value);
    warp->barrier.ArriveAndWait();
    memory.at(s.buffer)->at(Int(s.index)) = warp->shown[Int(s.operands[0])];
    warp->barrier.ArriveAndWait();
  }

  // What this lane has of it.
  void StoreByQuad(const StmtNode& s) {
    if (s.transposed) return StoreTransposed(s);
    DIAPASON_CHECK_MSG(Int(s.index) % static_cast<int64_t>(s.operands.size()) == 0, "a store that is not aligned");
    for (int64_t i = 0; i < static_cast<int64_t>(s.operands.size()); ++i)
      memory.at(s.buffer)->at(Int(s.index) + i / 2 * 8 + thread % 4 * 2 + i % 2) =
          Rounded(decls.at(s.buffer), Value(s.operands[i]));
  }

  // Lanes 4g and 4g + 1 have where row g begins; -1: its first or last eight are not stored.
  void StoreTransposed(const StmtNode& s) {
    const int64_t lane = thread % 32, begin = Int(s.index);
    const bool stores = !s.condition || Int(s.condition) != 0;
    if (stores) DIAPASON_CHECK_MSG(begin % 4 == 0, "a store that is not aligned");
    warp->rows[lane] = stores ? begin : -1;
    warp->barrier.ArriveAndWait();
    DIAPASON_CHECK_MSG(warp->rows[lane] == warp->rows[lane ^ 2], "lanes that store of the same eight do not agree");
    const int64_t other = warp->rows[lane ^ 1];
    DIAPASON_CHECK_MSG(!stores || other < 0 || other == begin, "lanes of a row begin at different places");
    for (int64_t i = 0; i < static_cast<int64_t>(s.operands.size()); ++i) {
      const int64_t row = warp->rows[4 * (lane % 4 * 2 + i % 2) + i / 2];
      if (row >= 0)
        memory.at(s.buffer)->at(row + i / 2 * 8 + lane / 4) = Rounded(decls.at(s.buffer), Value(s.operands[i]));
    }
    warp->barrier.ArriveAndWait();
  }

  // A register of factors of fewer than 32 bits.
  template <typename F>
  static double Packed(DType dtype, F value) {
    const int bits = 8 * BytesOf(dtype);
    uint32_t all = 0;
    for (int i = 0; i < 32 / bits; ++i) {
      const double one = value(i);
      const uint32_t pattern = IsFloat(dtype) ? FloatToNarrow(dtype, static_cast<float>(one))
                                              : static_cast<uint32_t>(static_cast<int32_t>(one)) & 0xffu;
      all |= pattern << bits * i;
    }
    return static_cast<double>(all);
  }

  // One of its factors.
  static double FactorOf(DType dtype, double packed, int64_t which) {
    const uint32_t bits = static_cast<uint32_t>(packed) >> 8 * BytesOf(dtype) * which;
    if (IsFloat(dtype)) return NarrowToFloat(dtype, static_cast<uint16_t>(bits));
    return dtype == DType::kInt8 ? static_cast<int8_t>(bits) : static_cast<uint8_t>(bits);
  }

  // Lane l gives the row l % 8 of matrix l / 8, and gets word l % 4 of row l / 4 of each.
  void LoadMatrix(const StmtNode& s) {
    const int64_t lane = thread % 32;
    warp->rows[lane] = Int(s.value->args[0]);
    warp->barrier.ArriveAndWait();
    for (int64_t m = 0; m < s.extent; ++m) {
      const TensorIntrinsic& intrinsic = TensorIntrinsicOf(s.tensor);
      const std::vector<double>& from = *memory.at(s.value->buffer);
      double& to = memory.at(s.buffer)->at(Int(s.index) + m);
      for (int i = 0; i < 8; ++i)
        DIAPASON_CHECK_MSG(warp->rows[m * 8 + i] % intrinsic.row() == 0, "a row that is not aligned");
      const int64_t row = warp->rows[m * 8 + lane / 4], word = lane % 4;
      if (intrinsic.factors_per_register() == 1)
        to = from.at(row + word);
      else if (s.transposed)
        to = Packed(s.value->dtype, [&](int i) { return from.at(warp->rows[m * 8 + 2 * word + i] + lane / 4); });
      else
        to = Packed(s.value->dtype, [&](int i) { return from.at(row + intrinsic.factors_per_register() * word + i); });
    }
    warp->barrier.ArriveAndWait();
  }

  // What a tensor core sees of a factor: TensorFloat-32. The low 13 bits are ignored, not rounded.
  static double AsTensorFloat(double value) {
    const auto single = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &single, sizeof bits);
    bits &= 0xffffe000u;
    float large;
    std::memcpy(&large, &bits, sizeof large);
    return large;
  }
  // Rounded to TensorFloat-32.
  static double Rounded(double value) {
    const auto single = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &single, sizeof bits);
    bits += 0x1000u;
    float rounded;
    std::memcpy(&rounded, &bits, sizeof rounded);
    return AsTensorFloat(rounded);
  }
  // What of a factor tensor cores do not see, rounded to TensorFloat-32 itself.
  static double LowPart(double value) { return Rounded(static_cast<float>(value) - AsTensorFloat(value)); }
  // A product as the kernels make it, of three on tensor cores: all but that of the low parts.
  static double ThreeProducts(double a, double b) {
    return LowPart(a) * AsTensorFloat(b) + AsTensorFloat(a) * LowPart(b) + AsTensorFloat(a) * AsTensorFloat(b);
  }

  // As PTX lays out mma.m16n8k8: lane 4 * g + q has elements k = q, q + 4 of rows g, g + 8 and of column g; m16n8k16:
  // pairs from 2q and 2q + 8 on; m16n8k32: fours from 4q and 4q + 16 on.
  void Multiply(const StmtNode& s) {
    const TensorIntrinsic& intrinsic = TensorIntrinsicOf(s.tensor);
    const int64_t lane = thread % 32;
    for (int i = 0; i < 6; ++i) warp->factors[lane][i] = Value(s.operands[4 + i]);
    warp->barrier.ArriveAndWait();
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = 0;
      for (int64_t word = 0; word < 8; ++word) {
        const double a = warp->factors[row % 8 * 4 + word % 4][word / 4 * 2 + row / 8],
                     b = warp->factors[column * 4 + word % 4][4 + word / 4];
        if (intrinsic.parts) sum += ThreeProducts(a, b);
        if (intrinsic.rounds_factors()) sum += Rounded(a) * Rounded(b);
        for (int64_t f = 0; f < intrinsic.factors_per_register() && intrinsic.factors_per_register() > 1; ++f)
          sum += FactorOf(s.factors.rows, a, f) * FactorOf(s.factors.columns, b, f);
      }
      double& to = memory.at(s.buffer)->at(Int(s.operands[i]));
      to = s.from_zero ? sum : to + sum;
    }
    warp->barrier.ArriveAndWait();
  }

  void FactorParts(const StmtNode& s) {
    for (int64_t i = 0; i < s.extent; ++i) {
      const double whole = memory.at(s.value->buffer)->at(Int(s.value->args[0]) + i);
      memory.at(s.buffer)->at(Int(s.index) + i) = s.part == FactorPart::kLow ? LowPart(whole) : Rounded(whole);
    }
  }

  struct GroupProduct {
    const StmtNode* node;
    std::vector<int64_t> sums;      // where they lie
    int64_t rows;                   // where they begin, in shared memory
    int64_t columns[2];             // where they begin
    std::vector<const double*> at;  // the lane's factors of the rows
    std::vector<double> factors;
    std::vector<double> column_factors;
    std::vector<double> row_factors;  // of rows in shared memory, in place of the lane's
    int parts() const { return TensorIntrinsicOf(node->tensor).parts ? 2 : 1; }
  };

  // Of a warpgroup's 64 rows this warp makes its 16, for which its own lanes have the factors. The product is made when
  // it is waited for, and what it reads must be there from now on until then.
  void MultiplyByGroup(const StmtNode& s) {
    DIAPASON_CHECK_MSG(group_begun_, "a product whose factors are not said to be ready");
    GroupProduct product{};
    product.node = &s;
    for (const Expr& sum : s.sums) product.sums.push_back(Int(sum));
    for (int64_t i = 0; i < s.extent / 2 && s.sums.empty(); ++i) product.sums.push_back(Int(s.index) + i);
    const int factors = s.rows.stride > 0 ? 0 : 4 * product.parts();
    for (int i = 0; i < factors; ++i) {
      product.at.push_back(&memory.at(s.operands[i]->buffer)->at(Int(s.operands[i]->args[0])));
      product.factors.push_back(*product.at[i]);
    }
    for (int i = 0; i < product.parts(); ++i) {
      product.columns[i] = Int(ColumnsOf(product, i)->args[0]);
      DIAPASON_CHECK_MSG(product.columns[i] % TensorIntrinsicOf(s.tensor).row() == 0,
                         "core matrices that are not aligned");
    }
    product.column_factors = ColumnFactors(product);
    if (s.rows.stride > 0) product.rows = Int(s.operands[0]->args[0]);
    if (s.rows.stride > 0) product.row_factors = RowFactors(product);
    for (size_t i = 0; i < s.sums.size(); ++i) unfinished_sums_.insert({s.buffer, product.sums[i]});
    products_.push_back(std::move(product));
  }

  static const Expr& ColumnsOf(const GroupProduct& product, int part) {
    return product.node->operands[product.node->operands.size() - product.parts() + part];
  }

  // Of the lane's two rows of the warp's 16, by element of k.
  std::vector<double> RowFactors(const GroupProduct& product) {
    const int64_t depth = TensorIntrinsicOf(product.node->tensor).depth();
    const std::vector<double>& copy = *memory.at(product.node->operands[0]->buffer);
    const int64_t first = thread / 32 % 4 * 16 + thread % 32 / 4;
    std::vector<double> all;
    all.reserve(2 * depth);
    for (int64_t row : {first, first + 8})
      for (int64_t k = 0; k < depth; ++k) all.push_back(copy.at(product.rows + product.node->rows.At(row, k)));
    return all;
  }

  // Of the lane's columns, two of each eight, by column, element of k, and part.
  std::vector<double> ColumnFactors(const GroupProduct& product) {
    const int64_t depth = TensorIntrinsicOf(product.node->tensor).depth();
    const int parts = product.parts();
    const std::vector<double>* copies[2] = {};
    for (int i = 0; i < parts; ++i) copies[i] = memory.at(ColumnsOf(product, i)->buffer);
    std::vector<double> all;
    all.reserve(product.node->extent / 4 * depth * parts);
    for (int64_t i = 0; i < product.node->extent / 4; ++i) {
      const int64_t column = i / 2 * 8 + thread % 4 * 2 + i % 2;
      for (int64_t k = 0; k < depth; ++k)
        for (int part = 0; part < parts; ++part)
          all.push_back(copies[part]->at(product.columns[part] + product.node->columns.At(column, k)));
    }
    return all;
  }

  void SyncGroup(const StmtNode& s) {
    switch (s.sync) {
      case GroupSync::kBegin: group_begun_ = true; return;
      case GroupSync::kCommit:
        product_groups_.push_back(std::exchange(products_, {}));
        group_begun_ = false;
        return;
      case GroupSync::kWait:
        for (; static_cast<int64_t>(product_groups_.size()) > s.extent; product_groups_.pop_front())
          for (const GroupProduct& product : product_groups_.front()) FinishProduct(product);
        if (s.sums.empty()) return;
        // All that products have been added to.
        for (const Expr& sum : s.sums) unfinished_sums_.erase({s.buffer, Int(sum)});
        DIAPASON_CHECK_MSG(unfinished_sums_.empty() || s.extent > 0, "sums that nobody waits for");
        return;
      case GroupSync::kPublish: return;
    }
  }

  void FinishProduct(const GroupProduct& product) {
    const StmtNode& s = *product.node;
    const int64_t lane = thread % 32;
    DIAPASON_CHECK_MSG(SameBits(ColumnFactors(product), product.column_factors),
                       "columns that are overwritten before the product is done");
    if (s.rows.stride > 0)
      DIAPASON_CHECK_MSG(SameBits(RowFactors(product), product.row_factors),
                         "rows that are overwritten before the product is done");
    for (size_t i = 0; i < product.factors.size(); ++i) {
      DIAPASON_CHECK_MSG(*product.at[i] == product.factors[i],
                         "a factor that is overwritten before the product is done");
      warp->group_factors[lane][i] = product.factors[i];
    }
    warp->barrier.ArriveAndWait();
    std::vector<double>& sums = *memory.at(s.buffer);
    const TensorIntrinsic& intrinsic = TensorIntrinsicOf(s.tensor);
    const int64_t depth = intrinsic.depth(), packed = intrinsic.factors_per_register();
    const auto seen = [&](double factor) { return packed == 1 ? AsTensorFloat(factor) : factor; };
    for (int64_t i = 0; i < s.extent / 2; ++i) {
      // Of the lane's rows and columns.
      const int64_t row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 2 + i % 2;
      double sum = 0;
      for (int64_t k = 0; k < depth && !intrinsic.parts; ++k) {
        const int64_t word = k / packed;
        double factor;
        if (s.rows.stride > 0) {
          factor = product.row_factors[i % 4 / 2 * depth + k];
        } else {
          factor = warp->group_factors[row % 8 * 4 + word % 4][word / 4 * 2 + row / 8];
          if (packed > 1) factor = FactorOf(s.factors.rows, factor, k % packed);
        }
        sum += seen(factor) * seen(product.column_factors[column * depth + k]);
      }
      for (int64_t k = 0; k < 8 && intrinsic.parts; ++k) {
        const double* row_factors = &warp->group_factors[row % 8 * 4 + k % 4][k / 4 * 2 + row / 8];
        const double* column_factors = &product.column_factors[(column * 8 + k) * 2];
        const double row_large = AsTensorFloat(row_factors[0]), column_large = AsTensorFloat(column_factors[0]);
        sum += AsTensorFloat(row_factors[4]) * column_large + row_large * AsTensorFloat(column_factors[1]) +
               row_large * column_large;
      }
      double& to = sums.at(product.sums[i]);
      to = s.from_zero ? sum : to + sum;
    }
    warp->barrier.ArriveAndWait();
  }

  // What is there is lost at once, what comes is there when someone waits for it.
  void BulkCopy(const StmtNode& s) {
    std::vector<double>& to = *memory.at(s.buffer);
    const std::vector<double>& from = *memory.at(s.value->buffer);
    const int64_t first = Int(s.index), source = Int(s.value->args[0]);
    DIAPASON_CHECK_MSG(first >= 0 && first + s.extent <= static_cast<int64_t>(to.size()),
                       "a bulk copy past the end of its buffer");
    DIAPASON_CHECK_MSG(source >= 0 && source + s.extent <= static_cast<int64_t>(from.size()),
                       "a bulk copy from past the end of a buffer");
    if (s.operands.empty()) {
      for (int64_t i = thread; i < s.extent; i += threads) to[first + i] = from[source + i];
      return;
    }
    const auto barrier = arrivals->barriers.find({s.operands[0]->buffer, Int(s.operands[0]->args[0])});
    DIAPASON_CHECK_MSG(barrier != arrivals->barriers.end(), "a bulk copy to a barrier that is not initialised");
    DIAPASON_CHECK_MSG(!barrier->second.all_asked(), "more copies under way to one barrier than it takes");
    std::fill_n(to.begin() + first, s.extent, std::nan(""));
    barrier->second.copies.emplace_back([&to, &from, first, source, extent = s.extent] {
      std::copy_n(from.begin() + source, extent, to.begin() + first);
    });
  }

  // As bulk copies; elements outside of the tensor become zeros.
  void TensorCopy(const StmtNode& s) {
    if (s.condition && Value(s.condition) == 0) return;
    std::vector<double>& to = *memory.at(s.buffer);
    const std::vector<double>& from = *memory.at(s.value->buffer);
    const int64_t first = Int(s.index);
    DIAPASON_CHECK_MSG(first >= 0 && first + s.box->elements() <= static_cast<int64_t>(to.size()),
                       "a tensor copy past the end of its buffer");
    DIAPASON_CHECK_MSG(IsCopyable(*s.box, BytesOf(s.value->dtype), static_cast<int64_t>(from.size())),
                       "a tensor copy that hardware does not make");
    DIAPASON_CHECK_MSG(decls.at(s.buffer).swizzle == s.box->swizzle, "a tensor copy that is swizzled otherwise");
    std::vector<int64_t> start;
    for (size_t d = 1; d < s.operands.size(); ++d) start.push_back(Int(s.operands[d]));
    const auto barrier = arrivals->barriers.find({s.operands[0]->buffer, Int(s.operands[0]->args[0])});
    DIAPASON_CHECK_MSG(barrier != arrivals->barriers.end(), "a tensor copy to a barrier that is not initialised");
    DIAPASON_CHECK_MSG(!barrier->second.all_asked(), "more copies under way to one barrier than it takes");
    std::fill_n(to.begin() + first, s.box->elements(), std::nan(""));
    barrier->second.copies.emplace_back([&to, &from, first, start, box = s.box] {
      const auto element = box->windows.empty() ? ElementOfBox : ElementOfWindows;
      for (int64_t i = 0; i < box->elements(); ++i) to[first + i] = element(*box, from, start, i);
    });
  }

  static double ElementOfBox(const TensorBox& box, const std::vector<double>& from, const std::vector<int64_t>& start,
                             int64_t number) {
    int64_t at = box.offset;
    for (size_t d = 0; d < box.box.size(); ++d) {
      const int64_t coordinate = start[d] + number % box.box[d];
      number /= box.box[d];
      if (coordinate < 0 || coordinate >= box.extents[d]) return 0;
      at += coordinate * box.strides[d];
    }
    return from.at(at);
  }

  // As PTX has it (Tensors, im2col mode): from window to window, at the same element of each.
  static double ElementOfWindows(const TensorBox& box, const std::vector<double>& from,
                                 const std::vector<int64_t>& start, int64_t number) {
    const size_t rank = box.extents.size();
    std::vector<int64_t> at(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(rank));
    at[0] += number % box.box[0];
    for (int64_t moves = number / box.box[0]; moves > 0; --moves) {
      size_t d = 1;
      for (; d + 1 < rank; ++d) {
        const WindowDim& dim = box.windows[d - 1];
        at[d] += dim.step;
        if (at[d] < dim.first + dim.windows * dim.step) break;
        at[d] = dim.first;
      }
      if (d + 1 == rank) ++at[d];
    }
    int64_t place = box.offset;
    for (size_t d = 0; d < rank; ++d) {
      if (d > 0 && d + 1 < rank) at[d] += start[rank + d - 1];
      if (at[d] < 0 || at[d] >= box.extents[d]) return 0;
      place += at[d] * box.strides[d];
    }
    return from.at(place);
  }

  void InitArrivals(const StmtNode& s) {
    const int64_t first = Int(s.operands[0]->args[0]);
    for (int64_t i = 0; i < s.extent; ++i)
      arrivals->barriers[{s.operands[0]->buffer, first + i}] = {.arrivals = Int(s.value)};
  }

  void Arrive(const StmtNode& s) {
    if (s.condition && Value(s.condition) == 0) return;
    const auto barrier = arrivals->barriers.find({s.operands[0]->buffer, Int(s.operands[0]->args[0])});
    DIAPASON_CHECK_MSG(barrier != arrivals->barriers.end(), "an arrival at a barrier that is not initialised");
    ReferenceArrivals::Barrier& at = barrier->second;
    if (++at.arrived < at.arrivals) return;
    at.arrived = 0;
    ++at.phase;
  }

  // As mbarrier.try_wait.parity: passes while the phase of that parity is not the present one.
  void AwaitArrival(const StmtNode& s) {
    const auto barrier = arrivals->barriers.find({s.operands[0]->buffer, Int(s.operands[0]->args[0])});
    DIAPASON_CHECK_MSG(barrier != arrivals->barriers.end(), "a wait at a barrier that is not initialised");
    ReferenceArrivals::Barrier& at = barrier->second;
    const int64_t parity = Int(s.value);
    fibers->WaitUntil([&] { return at.phase % 2 != parity || at.all_asked(); });
    if (at.phase % 2 != parity) return;
    for (const auto& copy : std::exchange(at.copies, {})) copy();
    ++at.phase;
  }

  static bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
  }

  // Asynchronous stores happen as late as they may: at the wait for their group.
  void Store(const StmtNode& s) {
    std::vector<double>& buffer =
        s.operands.empty() ? *memory.at(s.buffer) : blocks->at(Int(s.operands[0])).at(s.buffer);
    double* to = &buffer.at(Int(s.index));
    const double value = Rounded(decls.at(s.buffer), Value(s.value));
    if (s.async) {
      groups_.back().emplace_back(to, value);
    } else {
      *to = value;
    }
  }

  // All but the last `unfinished` groups that were committed, and the one that is still open.
  void Finish(int64_t unfinished) {
    while (static_cast<int64_t>(groups_.size()) > unfinished + 1) {
      for (const auto& [to, value] : groups_.front()) *to = value;
      groups_.pop_front();
    }
  }

  // The buffer takes the place of the block's other ones.
  void SpoilOthers(int buffer) {
    for (auto& [id, contents] : blocks->at(rank))
      if (id != buffer && !decls.at(id).apart) std::fill(contents.begin(), contents.end(), std::nan(""));
  }

  static double Rounded(const BufferDecl& decl, double value) {
    switch (decl.dtype) {
      case DType::kFloat32: return static_cast<float>(value);
      case DType::kFloat16:
      case DType::kBfloat16:
        return decl.scope == Scope::kLocal
                   ? value
                   : NarrowToFloat(decl.dtype, FloatToNarrow(decl.dtype, static_cast<float>(value)));
      case DType::kBool: return value != 0;
      default: return value;
    }
  }

  int64_t Int(const Expr& e) { return static_cast<int64_t>(Value(e)); }

  double Value(const Expr& e) {
    auto arg = [&](size_t i) { return Value(e->args[i]); };
    switch (e->kind) {
      case ExprKind::kIntImm: return static_cast<double>(e->value);
      case ExprKind::kFloatImm: return e->fvalue;
      case ExprKind::kVar: return static_cast<double>(vars_.at(e.get()));
      case ExprKind::kAdd: return arg(0) + arg(1);
      case ExprKind::kSub: return arg(0) - arg(1);
      case ExprKind::kMul: return arg(0) * arg(1);
      case ExprKind::kDiv: return arg(0) / arg(1);
      case ExprKind::kFloorDiv: return std::floor(arg(0) / arg(1));
      case ExprKind::kFloorMod: return arg(0) - std::floor(arg(0) / arg(1)) * arg(1);
      case ExprKind::kMin: return std::min(arg(0), arg(1));
      case ExprKind::kMax: return std::max(arg(0), arg(1));
      case ExprKind::kLt: return arg(0) < arg(1);
      case ExprKind::kLe: return arg(0) <= arg(1);
      case ExprKind::kEq: return arg(0) == arg(1);
      case ExprKind::kNe: return arg(0) != arg(1);
      case ExprKind::kAnd: return arg(0) != 0 && arg(1) != 0;
      case ExprKind::kOr: return arg(0) != 0 || arg(1) != 0;
      case ExprKind::kNot: return arg(0) == 0;
      case ExprKind::kSelect: return arg(0) != 0 ? arg(1) : arg(2);
      case ExprKind::kCast:
        if (e->dtype == DType::kBool) return arg(0) != 0;
        if (e->dtype == DType::kInt8) return static_cast<int8_t>(static_cast<int64_t>(arg(0)));
        if (e->dtype == DType::kUint8) return static_cast<uint8_t>(static_cast<int64_t>(arg(0)));
        return IsFloat(e->dtype) ? arg(0) : std::trunc(arg(0));
      case ExprKind::kCall: return Called(e);
      case ExprKind::kLoad:
        if (e->args.size() > 1) return blocks->at(Int(e->args[1])).at(e->buffer).at(Int(e->args[0]));
        return memory.at(e->buffer)->at(Int(e->args[0]));
    }
    return 0;
  }

  double Called(const Expr& e) {
    const double x = Value(e->args[0]);
    const std::string& f = e->name;
    if (f == "exp") return std::exp(x);
    if (f == "log") return std::log(x);
    if (f == "sqrt") return std::sqrt(x);
    if (f == "rsqrt") return 1 / std::sqrt(x);
    if (f == "tanh") return std::tanh(x);
    if (f == "sigmoid") return 1 / (1 + std::exp(-x));
    if (f == "erf") return std::erf(x);
    if (f == "tf32") return Rounded(x);
    if (f == "bfloat16") return NarrowToFloat(DType::kBfloat16, FloatToNarrow(DType::kBfloat16, static_cast<float>(x)));
    if (f == "pow") return std::pow(x, Value(e->args[1]));
    if (f == "abs") return std::fabs(x);
    if (f == "floor") return std::floor(x);
    if (f == "ceil") return std::ceil(x);
    if (f == "round") return std::nearbyint(x);
    internal::CheckFailed(__FILE__, __LINE__, "known function", f);
  }

  std::unordered_map<const ExprNode*, int64_t> vars_;
  std::deque<std::vector<std::pair<double*, double>>> groups_{1};  // of asynchronous stores
  bool group_begun_ = false;
  std::set<std::pair<int, int64_t>> unfinished_sums_;  // buffer and element, of products whose wait names them
  std::vector<GroupProduct> products_;                 // since the last commit
  std::deque<std::vector<GroupProduct>> product_groups_;
};

class NestRunner {
 public:
  // Parameters by id, converted to double; stores round to the buffer's type.
  std::map<int, std::vector<double>> buffers;

  void Run(const KernelFunc& kernel) {
    ReferenceThread start;
    for (const BufferDecl& param : kernel.params) {
      start.decls[param.id] = param;
      start.memory[param.id] = &buffers.at(param.id);
    }
    start.barrier = start.cluster_barrier = start.first_barrier = [] {};
    if (kernel.body == nullptr) return;
    if (!OnGpu(kernel.body)) return start.Execute(kernel.body);
    const int64_t clusters = kernel.blocks / kernel.cluster;
    const std::map<int, std::vector<double>> before = clusters == 1 ? buffers : std::map<int, std::vector<double>>();
    for (start.block = 0; start.block < clusters; ++start.block) RunCluster(kernel, start, start.block % 2 == 1);
    if (clusters > 1) return;
    // In the other order too: what is missing a barrier shows in one of them.
    const std::map<int, std::vector<double>> forward = buffers;
    for (auto& [id, contents] : buffers) contents = before.at(id);
    start.block = 0;
    RunCluster(kernel, start, /*backward=*/true);
    for (const auto& [id, contents] : buffers)
      DIAPASON_CHECK_MSG(std::memcmp(contents.data(), forward.at(id).data(), contents.size() * sizeof(double)) == 0,
                         "threads whose results depend on their order");
  }

 private:
  static bool OnGpu(const Stmt& s) {
    if (s->kind == StmtKind::kFor && (s->for_kind == ForKind::kBlockX || s->for_kind == ForKind::kThreadX)) return true;
    return std::any_of(s->body.begin(), s->body.end(), OnGpu);
  }

  // All threads of all blocks of one cluster, which is one block where there are none.
  void RunCluster(const KernelFunc& kernel, ReferenceThread start, bool backward) {
    std::vector<std::map<int, std::vector<double>>> shared(kernel.cluster);
    const int64_t warps_of_block = (kernel.threads + 31) / 32;
    // Producers end before the others do, and are not waited for then.
    FiberBarrier cluster_barrier(&fibers_, kernel.cluster * (kernel.threads - kernel.producers));
    std::deque<FiberBarrier> barriers, first_barriers;
    std::deque<ReferenceArrivals> arrivals(kernel.cluster);
    std::deque<ReferenceWarp> warps;
    for (auto& buffers : shared) {
      AllocateShared(kernel.body, buffers);
      barriers.emplace_back(&fibers_, kernel.threads);
      first_barriers.emplace_back(&fibers_, kernel.threads - kernel.producers);
      for (int64_t i = 0; i < warps_of_block; ++i) warps.emplace_back(&fibers_);
    }
    start.blocks = &shared;
    start.threads = kernel.threads;
    start.fibers = &fibers_;
    start.cluster_barrier = [&] { cluster_barrier.ArriveAndWait(); };
    for (start.rank = 0; start.rank < kernel.cluster; ++start.rank) {
      for (auto& [id, contents] : shared[start.rank]) start.memory[id] = &contents;
      start.arrivals = &arrivals[start.rank];
      start.barrier = [barrier = &barriers[start.rank]] { barrier->ArriveAndWait(); };
      start.first_barrier = [barrier = &first_barriers[start.rank]] { barrier->ArriveAndWait(); };
      for (start.thread = 0; start.thread < kernel.threads; ++start.thread) {
        start.warp = &warps[start.rank * warps_of_block + start.thread / 32];
        fibers_.Add([thread = start, &kernel]() mutable { thread.Execute(kernel.body); });
      }
    }
    fibers_.Run(backward);
  }

  static void AllocateShared(const Stmt& s, std::map<int, std::vector<double>>& shared) {
    if (s->kind == StmtKind::kAlloc && s->decl.scope == Scope::kShared)
      shared[s->decl.id].assign(s->decl.elements, std::nan(""));
    for (const Stmt& child : s->body) AllocateShared(child, shared);
  }

  Fibers fibers_;
};

}  // namespace diapason::testing
