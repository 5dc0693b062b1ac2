// What an axis of a matrix product is: of the batch, a row, a column, or reduced.
#pragma once

namespace diapason {

enum GemmAxis { kBatch = 0, kM = 1, kN = 2, kK = 3 };

}  // namespace diapason
