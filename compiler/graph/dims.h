// Sizes of a model's symbolic dimensions ("batch", "seq"): which are asked for, and the combinations that follow from
// them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

// A size for each symbol.
using SymbolSizes = std::map<std::string, int64_t>;

// What --dim and --weight say.
struct DimChoices {
  std::map<std::string, std::vector<int64_t>> sizes;         // by symbol, ascending
  std::map<std::string, std::map<int64_t, double>> weights;  // by symbol and size; 1 where nothing is said
  bool empty() const { return sizes.empty(); }
};

// One plan is made for each combination.
struct DimCombination {
  SymbolSizes sizes;
  double weight = 1;  // the product of the weights of its sizes
};

inline constexpr int64_t kMaxDimSize = int64_t{1} << 24;
inline constexpr size_t kMaxCombinations = 64;

// Adds "seq=16,64,128", "seq=1..512", or a list of both. A range stands for the powers of two and 1.5 times the powers
// of two in it, and its upper end. InvalidArgument names the text: malformed, a size that is no size, a symbol that has
// its sizes already.
absl::Status AddDim(const std::string& text, DimChoices& choices);
// Adds "seq=128:5". InvalidArgument names the text.
absl::Status AddDimWeight(const std::string& text, DimChoices& choices);
// InvalidArgument when there are too many combinations, weights of sizes that are not asked for, or numbers that AddDim
// and AddDimWeight would refuse.
absl::Status CheckDimChoices(const DimChoices& choices);

// All combinations, the first symbol's sizes the slowest; one without sizes where nothing is asked for. REQUIRES:
// CheckDimChoices is OK.
std::vector<DimCombination> CombinationsOf(const DimChoices& choices);

// "batch=4 seq=128"; "batch=1,4 seq=16".
std::string SizesText(const SymbolSizes& sizes);
std::string SizesText(const std::map<std::string, std::vector<int64_t>>& sizes);

// The name of one combination of a network, as objectives take it: "bert[batch:4;seq:128]".
std::string NameWithSizes(const std::string& network, const SymbolSizes& sizes);

}  // namespace diapason
