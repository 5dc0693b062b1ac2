// The loops that a stage of a processor's kernel runs in, from the innermost out: its own, and behind them those of the
// stages that it is computed in. What a register tile fetched is still in a cache when the loop around it comes back to
// it, wherever that loop belongs; so what caches hold follows from this chain. (Reuse distances of loop nests: Yotov et
// al., "Is search really necessary to generate high-performance BLAS?", 2005.)
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "compiler/schedule/bounds.h"

namespace diapason {

// How lanes of a vector find their elements of an operand.
enum class LaneAccess : uint8_t { kSame, kNeighbours, kApart };

class CpuLoops {
 public:
  // `accesses`: those of the stage that are looked at, by place in skeleton.accesses(stage). `configuration` says what
  // is unrolled. All are looked at in the constructor only, but for the accesses.
  struct Source {
    const Skeleton& skeleton;
    const Bounds& bounds;
    absl::Span<const int32_t> configuration;
  };
  CpuLoops(const Source& source, int stage, const std::vector<int>& accesses, int cores);

  // Numbers of loops, counted from the innermost. Loops of one iteration are left out.
  size_t size() const { return loops_.size(); }  // all
  size_t body() const { return body_; }          // unrolled or vectors: the straight code of a pass
  size_t held() const { return held_; }          // while these run, sums are in registers

  double lanes() const { return lanes_; }
  // Of the innermost loops: how often the statement runs, and how many elements of the stage it computes meanwhile.
  double Iterations(size_t loops) const;
  double Results(size_t loops) const;
  // Cores that run the loops at once; extents are those of one core's share.
  double cores() const { return cores_; }

  size_t accesses() const { return operands_.size(); }
  LaneAccess LanesOf(size_t access) const { return operands_[access].lanes; }
  // Distinct elements that the innermost loops read by an access.
  double Elements(size_t access, size_t loops) const;
  // Of a pass, elements whose places are quotients and remainders, one by one.
  double Divided() const;
  // Bytes that operands, and sums that are not in registers all the time, move into a core's cache of that capacity,
  // and sums out of it, while all loops run. What the innermost loops touch stays as long as it fits, and what the next
  // loop does not move stays then, too.
  // `first`: the size of a first cache, which finds lines by their place in 4 KiB and has as many for each as it has
  // pages: where the rows of a pass lie at such distances that more fall onto one place, each element fetches a line.
  // 0: not looked at.
  double Traffic(double capacity, double first) const;

  // Conditions of a pass on rows or columns that may lie beyond the tensor, in the mean. Whole tiles have none.
  double Guards() const { return guards_; }
  // Of these and of lanes at once: such vectors are computed lane by lane.
  bool guards_lanes() const { return lanes_beyond_ && rows_beyond_; }

 private:
  struct Loop {
    int stage, loop;
    double extent;
    bool moves_result;  // is no reduce loop
  };
  struct Step {
    int place;  // of the loop, from the innermost
    double distance;
  };
  struct Dim {
    bool affine;
    double whole;
    absl::InlinedVector<Step, 6> steps;
  };
  struct Operand {
    LaneAccess lanes;
    uint64_t moved_by;  // places of loops, a bit each
    double bytes;       // of an element
    double most;        // elements that there are: of the tensor, or the part of it that is computed at a loop
    double crowd;       // rows of a pass that fall onto the same place of 4 KiB
    absl::InlinedVector<Dim, 5> dims = {};
  };

  void AddLoop(const Source& source, int stage, int loop);
  void FindBody(const Source& source, int stage);
  void ShareAmongCores(const Source& source, int cores);
  void AddOperand(const Source& source, const Access& access);
  void CountGuards(const Source& source, int stage);
  int PlaceOf(int stage, int loop) const;
  void AddSums(const Source& source, int stage);
  double Lines(const Operand& operand, size_t loops, double most_rows) const;  // bytes of the lines of 64 bytes
  void AddSteps(const Source& source, const Access& access, size_t d, Operand* operand) const;
  double CountOf(const Dim& dim, size_t loops) const;
  double Reads(const Operand& operand, size_t loops) const;  // that differ in the loops that move the operand

  absl::InlinedVector<Loop, 24> loops_;
  absl::InlinedVector<Operand, 4> operands_;
  std::optional<Operand> sums_;  // that wait in memory between runs of the loops that hold them
  size_t body_ = 0, held_ = 0;
  double lanes_ = 1, cores_ = 1, guards_ = 0;
  bool lanes_beyond_ = false,
       rows_beyond_ = false;  // the last vectors of rows, or tiles along other axes, are not whole
};

}  // namespace diapason
