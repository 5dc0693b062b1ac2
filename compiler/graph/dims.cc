#include "compiler/graph/dims.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace diapason {
namespace {

absl::Status CheckDimSize(int64_t size, const std::string& symbol) {
  if (size >= 1 && size <= kMaxDimSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", symbol, "' cannot have the size ", size, ": give a number from 1 to ", kMaxDimSize));
}

absl::Status CheckDimWeight(double weight, const std::string& symbol, int64_t size) {
  if (std::isfinite(weight) && weight >= 1e-6 && weight <= 1e6) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the size ", size, " of '", symbol, "' cannot have the weight ",
                                                 weight, ": give a number from 1e-06 to 1e+06"));
}

// 1, 2, 3, 4, 6, 8, 12, ... within the range, and its end.
void AddRange(int64_t first, int64_t last, std::vector<int64_t>& sizes) {
  for (int64_t power = 1; power <= last; power *= 2) {
    for (int64_t size : {power, power + power / 2})
      if (size >= first && size <= last) sizes.push_back(size);
  }
  sizes.push_back(last);
}

// The symbol may hold '=' itself: exporters name dimensions by expressions.
absl::StatusOr<std::pair<std::string, std::string>> SplitDim(const std::string& flag, const std::string& text,
                                                             const std::string& example) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, " is not understood; write it as ", example));
  return std::make_pair(text.substr(0, equals), text.substr(equals + 1));
}

}  // namespace

absl::Status AddDim(const std::string& text, DimChoices& choices) {
  constexpr char kExample[] = "SYMBOL=SIZES, for example seq=16,64,128 or seq=1..512";
  ASSIGN_OR_RETURN(const auto parts, SplitDim("--dim", text, kExample));
  const auto& [symbol, list] = parts;
  if (choices.sizes.contains(symbol)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dim gives sizes of '", symbol, "' twice: give all of them at once, as in --dim ", symbol, "=16,64,128"));
  }
  std::vector<int64_t> sizes;
  for (const std::string& part : static_cast<std::vector<std::string>>(absl::StrSplit(list, ','))) {
    const std::vector<std::string> ends = absl::StrSplit(part, "..");
    std::vector<int64_t> numbers(ends.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends.size() > 2 || !absl::SimpleAtoi(ends[i], &numbers[i]))
        return absl::InvalidArgumentError(absl::StrCat("--dim ", text, " is not understood; write it as ", kExample));
      RETURN_IF_ERROR(CheckDimSize(numbers[i], symbol));
    }
    if (numbers.front() > numbers.back())
      return absl::InvalidArgumentError(
          absl::StrCat("--dim ", text, " has the range ", part, ", which ends before it begins"));
    numbers.size() == 1 ? sizes.push_back(numbers[0]) : AddRange(numbers[0], numbers[1], sizes);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  choices.sizes[symbol] = std::move(sizes);
  return absl::OkStatus();
}

absl::Status AddDimWeight(const std::string& text, DimChoices& choices) {
  constexpr char kExample[] = "SYMBOL=SIZE:WEIGHT, for example seq=128:5";
  ASSIGN_OR_RETURN(const auto parts, SplitDim("--weight", text, kExample));
  const auto& [symbol, value] = parts;
  const std::vector<std::string> words = absl::StrSplit(value, ':');
  int64_t size = 0;
  double weight = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &size) || !absl::SimpleAtod(words[1], &weight))
    return absl::InvalidArgumentError(absl::StrCat("--weight ", text, " is not understood; write it as ", kExample));
  RETURN_IF_ERROR(CheckDimWeight(weight, symbol, size));
  choices.weights[symbol][size] = weight;
  return absl::OkStatus();
}

absl::Status CheckDimChoices(const DimChoices& choices) {
  size_t combinations = 1;
  for (const auto& [symbol, sizes] : choices.sizes) {
    if (sizes.empty()) return absl::InvalidArgumentError(absl::StrCat("the symbol '", symbol, "' is given no sizes"));
    for (size_t i = 0; i < sizes.size(); ++i) {
      RETURN_IF_ERROR(CheckDimSize(sizes[i], symbol));
      if (i > 0 && sizes[i] <= sizes[i - 1])
        return absl::InvalidArgumentError(absl::StrCat("the sizes of '", symbol, "' are not in ascending order"));
    }
    if (sizes.size() > kMaxCombinations / combinations)
      return absl::InvalidArgumentError(absl::StrCat("--dim asks for more than ", kMaxCombinations,
                                                     " combinations of sizes (", SizesText(choices.sizes),
                                                     "), which is the limit: give fewer sizes"));
    combinations *= sizes.size();
  }
  for (const auto& [symbol, weights] : choices.weights) {
    const auto sizes = choices.sizes.find(symbol);
    for (const auto& [size, weight] : weights) {
      RETURN_IF_ERROR(CheckDimWeight(weight, symbol, size));
      if (sizes != choices.sizes.end() && std::binary_search(sizes->second.begin(), sizes->second.end(), size))
        continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--weight names ", symbol, "=", size, ", which --dim does not ask for",
                       choices.empty() ? std::string() : absl::StrCat(": its sizes are ", SizesText(choices.sizes))));
    }
  }
  return absl::OkStatus();
}

std::vector<DimCombination> CombinationsOf(const DimChoices& choices) {
  std::vector<DimCombination> all = {DimCombination{}};
  for (const auto& [symbol, sizes] : choices.sizes) {
    std::vector<DimCombination> next;
    const auto weights = choices.weights.find(symbol);
    for (const DimCombination& before : all) {
      for (int64_t size : sizes) {
        DimCombination with = before;
        with.sizes[symbol] = size;
        if (weights != choices.weights.end()) {
          const auto weight = weights->second.find(size);
          if (weight != weights->second.end()) with.weight *= weight->second;
        }
        next.push_back(std::move(with));
      }
    }
    all = std::move(next);
  }
  return all;
}

std::string SizesText(const SymbolSizes& sizes) {
  return absl::StrJoin(sizes, " ",
                       [](std::string* out, const auto& one) { absl::StrAppend(out, one.first, "=", one.second); });
}

std::string SizesText(const std::map<std::string, std::vector<int64_t>>& sizes) {
  return absl::StrJoin(sizes, " ", [](std::string* out, const auto& one) {
    absl::StrAppend(out, one.first, "=", absl::StrJoin(one.second, ","));
  });
}

std::string NameWithSizes(const std::string& network, const SymbolSizes& sizes) {
  if (sizes.empty()) return network;
  return absl::StrCat(
      network, "[",
      absl::StrJoin(sizes, ";",
                    [](std::string* out, const auto& one) { absl::StrAppend(out, one.first, ":", one.second); }),
      "]");
}

}  // namespace diapason
