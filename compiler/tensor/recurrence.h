// Recurrences in a dag: steps that are alike, each of which reads what the one before it computed (LSTM, GRU and RNN
// layers, unrolled). They are recognized by their indices alone; there is no list of cells.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/expr.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// Steps k = 0, 1, ... , steps - 1 compute the stages of `body`, each step once more. Stages that come before them
// (`start`) are computed once: they are a first step that has no state to read. `stores` says what of it is the output.
//
// The last axis of a stage has one column, or `units` columns `groups` times (the gates of a cell, side by side):
// column g * units + u belongs to unit u. All other axes are its rows. Stages that do not reduce read only their own
// unit of other stages, in any row and group, or the one column; sums read all units.
struct Recurrence {
  // What step k + 1 reads of step k.
  struct Carried {
    int source = -1;  // a stage of `body`
    Expr initial;     // what step 0 reads in its place, over the axes of `source`: of `start` and placeholders
  };
  // One row and group of a stage, stored at offset + k * step_stride + unit in the type of the output.
  struct Store {
    int stage = -1;     // of `start`, `body`
    bool last = false;  // of the last step alone
    int64_t row = 0, group = 0, offset = 0, step_stride = 0;
  };

  int64_t steps = 0, units = 0;
  // Stages that only move elements of placeholders are neither: they are part of the expressions that read them.
  std::vector<int> start, body;
  std::vector<Carried> carried;
  std::vector<Store> stores;
  std::vector<Expr> start_expressions;  // by position in `start`
  // By position in `body`: the stage's expression in step `step`, over the axes of the stage of `body`. A load of
  // carried[i] has the buffer BufferOf(i).
  Expr step;
  std::vector<Expr> expressions;

  static int BufferOf(int carried) { return -2 - carried; }
  // The index in `carried`, or -1 for another buffer.
  static int CarriedIn(int buffer) { return buffer <= -2 ? -2 - buffer : -1; }
  // The stage that a load of a buffer of `expressions` reads, of this step or the one before.
  int SourceOf(int buffer) const {
    const int index = CarriedIn(buffer);
    return index < 0 ? buffer : carried[index].source;
  }
  int64_t RowsOf(const Stage& stage) const { return stage.elements() / stage.axes.back().extent; }
  int64_t GroupsOf(const Stage& stage) const { return IsUniform(stage) ? 1 : stage.axes.back().extent / units; }
  // Has one column, which all units share.
  bool IsUniform(const Stage& stage) const { return stage.axes.back().extent == 1; }
};

struct RowAndGroup {
  int64_t row = 0, group = 0;
};
// Which element of its own unit an element of `stage` is; nothing if it is another unit's, or not one for all units.
// `indices` are free of variables but `unit`, for which `analyzer` knows the range.
std::optional<RowAndGroup> OwnElement(const Recurrence& recurrence, const Stage& stage, absl::Span<const Expr> indices,
                                      const Expr& unit, Analyzer& analyzer);

// The axes of `stage` for one row and group: of the row's number, and for the last axis what `unit` makes of it.
VarMap AxesAt(const Recurrence& recurrence, const Stage& stage, const Expr& row, int64_t group, const Expr& unit);
inline VarMap AxesAt(const Recurrence& recurrence, const Stage& stage, RowAndGroup at, const Expr& unit) {
  return AxesAt(recurrence, stage, IntImm(at.row), at.group, unit);
}

inline constexpr int64_t kLeastSteps = 4;
// So small that every GPU has room for the state in one block, and a core on its stack.
inline constexpr int64_t kMostRows = 16, kMostUnits = 1024, kMostStateBytes = 10 << 10;

// InvalidArgument, saying why, for dags that are no recurrence of kLeastSteps steps or more, or a larger one.
absl::StatusOr<Recurrence> FindRecurrence(const ComputeDag& dag);

}  // namespace diapason
