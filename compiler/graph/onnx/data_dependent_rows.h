// Results of a node of ONNX with a number of rows that only a run shows: how much room they get, and which of their
// rows are real. found_rows.h follows those rows through the operators.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/onnx/import_state.h"

namespace diapason {

// State and node outlive it. All but StopTracking and Known are for nodes that have a result.
class DataDependentRows {
 public:
  DataDependentRows(ImportState& state, const OnnxNode& node) : state_(state), node_(node) {}

  // How many rows result 0 can hold, where only a run shows how many are found: --dim RESULT.rows=N.
  // InvalidArgument where it does not, or where the node was imported already (in a loop); `what` is found, as in "how
  // many boxes it finds".
  absl::StatusOr<int64_t> Capacity(const std::string& what) const;
  // Whether Capacity failed because --dim does not say it.
  bool IsUnbounded() const;
  // As many rows, or those of ModelOptions::rows_taken, need to be found. REQUIRES: Capacity was OK.
  int64_t Taken() const;
  // How many rows are found, one number: the network gets it as an output of the symbol's name. REQUIRES: Capacity was
  // OK.
  void SetCount(ImportValue count);

  // For a result with all rows that there may be, where `no_capacity` is the error of Capacity(what): which of them are
  // real, by a list of flags that `source` determines.
  FoundRowsPtr Flagged(const absl::Status& no_capacity, const ImportValue& source, ImportValue flags) const;
  // For a result with as many rows as --dim says, of which the first ones are real, by a list of flags.
  // REQUIRES: Capacity was OK.
  FoundRowsPtr Bounded(ImportValue flags) const;
  // Rows that were entered under this key; null at first.
  FoundRowsPtr& Known(const std::string& key) { return state_.found_rows[key]; }

  // The bounded rows of this symbol are tracked no further than to this node.
  void StopTracking(const std::string& symbol) {
    state_.untracked.insert(symbol);
    stopped_tracking_ = true;
  }
  bool HasStoppedTracking() const { return stopped_tracking_; }

 private:
  std::string Symbol() const;  // RESULT.rows

  ImportState& state_;
  const OnnxNode& node_;
  bool stopped_tracking_ = false;
};

}  // namespace diapason
