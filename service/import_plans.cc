#include "service/import_plans.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Constants by their contents.
class PlanConstants {
 public:
  // Makes equal constants of this network and of those before one.
  void Unite(Network& network) {
    for (Tensor& tensor : network.tensors) {
      if (!tensor.constant()) continue;
      const std::string_view bytes(reinterpret_cast<const char*>(tensor.data->data.data()), tensor.data->data.size());
      const auto [first, last] = known_.equal_range(std::hash<std::string_view>()(bytes));
      const auto same = std::find_if(first, last, [&](const auto& one) {
        const Array& array = *one.second;
        return array.dtype == tensor.data->dtype && array.shape == tensor.data->shape &&
               array.data == tensor.data->data;
      });
      if (same != last) {
        tensor.data = same->second;
      } else {
        known_.emplace(std::hash<std::string_view>()(bytes), tensor.data);
      }
    }
  }

 private:
  std::unordered_multimap<size_t, std::shared_ptr<const Array>> known_;
};

// From which size on inputs are padded to each of these: those above the next smaller one.
SymbolSizes LeastSizes(const DimChoices& dims, const SymbolSizes& sizes) {
  SymbolSizes least;
  for (const auto& [symbol, size] : sizes) {
    const std::vector<int64_t>& all = dims.sizes.at(symbol);
    const auto place = std::lower_bound(all.begin(), all.end(), size);
    least[symbol] = place == all.begin() ? 1 : *std::prev(place) + 1;
  }
  return least;
}

// A run's inputs do not say how many rows a result should have room for, so plans cannot differ in it.
absl::Status CheckRooms(const DimChoices& dims, const ImportedModel& model) {
  const SymbolSizes of_inputs = model.Sizes();
  for (const auto& [symbol, sizes] : dims.sizes) {
    if (sizes.size() == 1 || of_inputs.contains(symbol)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", symbol, "' says how many rows a result has room for, which must be one number, not ",
                     sizes.size(), " (", SizesText(std::map{std::pair{symbol, sizes}}), "): give the largest"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ImportedPlan>> ImportPlans(ImportRequest request, const DimChoices& dims) {
  RETURN_IF_ERROR(CheckDimChoices(dims));
  const std::vector<DimCombination> combinations = CombinationsOf(dims);
  request.prove_padding = request.prove_padding && !dims.empty();
  std::vector<ImportedPlan> plans;
  PlanConstants constants;
  for (const DimCombination& combination : combinations) {
    request.options.dims = combination.sizes;
    request.least = LeastSizes(dims, combination.sizes);
    absl::StatusOr<ImportedModel> model = ImportModel(request);
    // What is wrong with the first one is most often wrong with all.
    if (!model.ok() && !plans.empty())
      return absl::Status(model.status().code(),
                          absl::StrCat("with ", SizesText(combination.sizes), ": ", model.status().message()));
    RETURN_IF_ERROR(model.status());
    if (plans.empty()) RETURN_IF_ERROR(CheckRooms(dims, *model));
    constants.Unite(model->network);
    plans.push_back({combination, *std::move(model)});
  }
  return plans;
}

std::vector<std::string> WarningsOf(const std::vector<ImportedPlan>& plans) {
  std::vector<std::string> all;
  for (const ImportedPlan& plan : plans)
    for (const std::string& warning : plan.model.warnings)
      if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(warning);
  return all;
}

PlanSymbols SymbolsOf(const ImportedPlan& plan, const std::string& mask) {
  PlanSymbols symbols;
  if (plan.combination.sizes.empty()) return symbols;
  symbols.sizes = plan.model.Sizes();
  symbols.mask = mask;
  symbols.padding = plan.model.padding;
  for (const ImportedInput& input : plan.model.inputs) symbols.inputs.push_back(input.symbols);
  return symbols;
}

}  // namespace diapason
