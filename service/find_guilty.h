// Which parts of a whole make it wrong: bisection, where the only question that can be asked is whether the whole is
// wrong with some of them in place and the others replaced by parts that are known to be right.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

// Whether the whole is wrong with the parts in place for which the vector has true. An answer of true is evidence; one
// of false may be luck, as with a race that shows now and then. An error ends the search with that error.
using IsWrong = std::function<absl::StatusOr<bool>(const std::vector<bool>& in_place)>;

// The parts without which the whole is right, in the order in which they were found; none when it never was wrong. Asks
// about (log2(count) + 3) questions for each guilty part. A part is blamed when the whole is wrong with it and right
// without it, all parts behind it replaced. Where two parts are wrong only together, the later one is blamed. An answer
// of "right" that acquits parts is asked for `confirmations` times more before a part is blamed on its account, and at
// the end. FailedPrecondition when the whole is wrong with all parts replaced: then none of them is to blame. REQUIRES:
// count >= 0, confirmations >= 0.
absl::StatusOr<std::vector<int>> FindGuilty(int count, const IsWrong& is_wrong, int confirmations = 1);

}  // namespace diapason
