// Which sums of a recurrence can be products on tensor cores, and as what.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/recurrent_tiles.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

// Results of a lane in a product of 16 weights' columns by 8 rows of the state: these are 2 rows of the state for each
// of 2 columns.
inline constexpr int64_t kRowsOfProduct = 8, kRowsOfLane = 2, kLanesOfUnit = 4, kColumnsOfLane = 2;

// A sum over all units, of the state by weights in a narrow type.
struct RecurrentProduct {
  Expr state;   // load of an exchanged stage
  Expr weight;  // load of a placeholder
  TensorMode mode = TensorMode::kNone;
  // Numbers of the weights' type that make an element of the state: 2 of a state in float32. Their sum is the element
  // to within 2^-22 of it (float16; 2^-25 of what is small) or 2^-16 of it (bfloat16).
  int parts = 1;
};

// Of the sum at position `i` of the body. FailedPrecondition, saying why, if it is no such product, or if an element of
// the state may be too large for the type of its parts.
absl::StatusOr<RecurrentProduct> ProductOf(const RecurrentSchedule& schedule, size_t i);

// Whether all sums are such products, by weights of one type, and each row of all other stages depends on its own row
// of others alone, so that a lane can have some of the rows. FailedPrecondition says why not.
absl::Status CheckRecurrentProducts(const RecurrentSchedule& schedule);

// The largest absolute value of an element of a stage of the body, whatever the inputs are; infinity if none is known.
// By intervals; a weighted mean of what has bounds, such as (1 - z) x + z y, keeps them.
double LargestElement(const RecurrentSchedule& schedule, int stage);

}  // namespace diapason
