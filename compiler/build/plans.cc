#include "compiler/build/plans.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace diapason {
namespace {

// Calls copy(from, to, index) for each element of an array of shape `to`, with its position there and that of the
// element of an array of shape `from` whose indices are the same, or the last that there are.
template <typename Copy>
void ForEachElement(const std::vector<int64_t>& to, const std::vector<int64_t>& from, Copy copy) {
  int64_t elements = 1;
  for (int64_t extent : to) elements *= extent;
  std::vector<int64_t> index(to.size(), 0);
  for (int64_t e = 0; e < elements; ++e) {
    int64_t at = 0;
    bool beyond = false;
    for (size_t d = 0; d < to.size(); ++d) {
      beyond = beyond || index[d] >= from[d];
      at = at * from[d] + std::min(index[d], from[d] - 1);
    }
    copy(at, e, beyond);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == to[d];) index[d] = 0;
  }
}

// The array with other extents: what is beyond its own is a copy of its last elements, or zero.
Array Resized(const Array& array, const std::vector<int64_t>& shape, bool zero_beyond) {
  Array resized(array.dtype, shape);
  const size_t bytes = BytesOf(array.dtype);
  ForEachElement(shape, array.shape, [&](int64_t from, int64_t to, bool beyond) {
    if (!beyond || !zero_beyond) std::memcpy(resized.data.data() + to * bytes, array.data.data() + from * bytes, bytes);
  });
  return resized;
}

// "float32 batchx4".
std::string TypeText(const PackagePort& port) {
  std::vector<std::string> extents;
  for (size_t d = 0; d < port.shape.size(); ++d)
    extents.push_back(port.symbols[d].empty() ? absl::StrCat(port.shape[d]) : port.symbols[d]);
  return absl::StrCat(NameOf(port.dtype), " ", absl::StrJoin(extents, "x"));
}

const PackagePort* FindPort(const std::vector<PackagePort>& ports, const std::string& name) {
  const auto port = std::find_if(ports.begin(), ports.end(), [&](const PackagePort& p) { return p.name == name; });
  return port == ports.end() ? nullptr : &*port;
}

// All sizes of each symbol, ascending.
std::map<std::string, std::vector<int64_t>> SizesOfPlans(const Package& package) {
  std::map<std::string, std::set<int64_t>> sets;
  for (const PackageManifest& plan : package.plans())
    for (const auto& [symbol, size] : plan.sizes) sets[symbol].insert(size);
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const auto& [symbol, set] : sets) sizes[symbol] = {set.begin(), set.end()};
  return sizes;
}

std::string SymbolsText(const Package& package) {
  return absl::StrJoin(package.manifest().sizes, ", ",
                       [](std::string* out, const auto& one) { absl::StrAppend(out, "'", one.first, "'"); });
}

absl::Status CheckSymbols(const Package& package, const SymbolSizes& given) {
  const SymbolSizes& sizes = package.manifest().sizes;
  for (const auto& [symbol, size] : given) {
    if (sizes.contains(symbol)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the package has no symbolic dimension '", symbol,
        "': ", sizes.empty() ? std::string("its shapes are fixed") : absl::StrCat("it has ", SymbolsText(package))));
  }
  for (const auto& [symbol, size] : sizes) {
    if (given.contains(symbol)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the size of '", symbol, "' is not known: give it with --dim ", symbol, "=", size,
                     ", or an input that has it; the package has plans for ", SizesText(SizesOfPlans(package))));
  }
  return absl::OkStatus();
}

// That masks are not 0 at the first position along symbols that are padded, where the proof rests on that.
absl::Status CheckMask(const PackageManifest& plan, const std::map<std::string, Array>& inputs) {
  const PackagePort* port = FindPort(plan.inputs, plan.mask);
  const auto given = inputs.find(plan.mask);
  if (port == nullptr || given == inputs.end() || port->symbols.empty()) return absl::OkStatus();
  const Array& mask = given->second;
  for (size_t d = 0; d < mask.shape.size(); ++d) {
    const auto padding = plan.padding.find(port->symbols[d]);
    if (padding == plan.padding.end() || !padding->second.needs_first || mask.shape[d] == port->shape[d]) continue;
    int64_t inner = 1;
    for (size_t e = d + 1; e < mask.shape.size(); ++e) inner *= mask.shape[e];
    for (int64_t at = 0, n = mask.elements(); at < n; ++at) {
      if (at / inner % mask.shape[d] != 0 || mask.at(at) != 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the mask '", plan.mask, "' begins with 0 along '", padding->first, "', so padding from ", padding->first,
          "=", mask.shape[d], " to ", port->shape[d], " could change results: let each sequence begin with a real ",
          "position, or build the package again with --dim ", padding->first, "=", mask.shape[d]));
    }
  }
  return absl::OkStatus();
}

// The sizes of the smallest plan that holds what is given.
absl::StatusOr<SymbolSizes> SizesToUse(const Package& package, const SymbolSizes& given) {
  SymbolSizes wanted;
  for (const auto& [symbol, sizes] : SizesOfPlans(package)) {
    const auto fits = std::lower_bound(sizes.begin(), sizes.end(), given.at(symbol));
    if (fits == sizes.end())
      return absl::InvalidArgumentError(
          absl::StrCat("the inputs have ", SizesText(given), ", and the package has plans up to ", symbol, "=",
                       sizes.back(), " (", SizesText(SizesOfPlans(package)),
                       "): give smaller inputs, or build it again with --dim ", symbol, "=", given.at(symbol)));
    wanted[symbol] = *fits;
  }
  return wanted;
}

absl::Status CheckPadding(const Package& package, const PackageManifest& plan, const SymbolSizes& given) {
  for (const auto& [symbol, size] : given) {
    if (size == plan.sizes.at(symbol)) continue;
    const auto padding = plan.padding.find(symbol);
    const bool known = padding != plan.padding.end();
    if (known && padding->second.why_not.empty() && size >= padding->second.least) continue;
    const std::string why =
        known && !padding->second.why_not.empty() ? padding->second.why_not : "the package does not say that it is";
    return absl::InvalidArgumentError(
        absl::StrCat("the inputs have ", SizesText(given), ", and the package has plans for ",
                     SizesText(SizesOfPlans(package)), "; padding along '", symbol, "' is not known to be harmless (",
                     why, "): give inputs of these sizes, or build it again with --dim ", symbol, "=", size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SymbolSizes> SizesOfInputs(const Package& package, const std::map<std::string, Array>& inputs) {
  const std::vector<PackagePort>& ports = package.manifest().inputs;
  SymbolSizes sizes;
  std::map<std::string, std::string> said_by;
  for (const auto& [name, value] : inputs) {
    const PackagePort* port = FindPort(ports, name);
    if (port == nullptr) {
      const std::string names = absl::StrJoin(
          ports, ", ", [](std::string* out, const PackagePort& p) { absl::StrAppend(out, "'", p.name, "'"); });
      return absl::InvalidArgumentError(absl::StrCat("the package has no input '", name, "'; its inputs are: ", names));
    }
    if (port->symbols.empty()) continue;  // fixed shapes: PackageRunner compares them
    bool fits = value.dtype == port->dtype && value.shape.size() == port->shape.size();
    for (size_t d = 0; fits && d < value.shape.size(); ++d)
      fits = port->symbols[d].empty() ? value.shape[d] == port->shape[d] : value.shape[d] >= 1;
    if (!fits) {
      const PackagePort given{name, value.dtype, value.shape, -1, 0, 0};
      return absl::InvalidArgumentError(
          absl::StrCat("input '", name, "' is ", given.TypeText(), "; the package wants ", TypeText(*port)));
    }
    for (size_t d = 0; d < value.shape.size(); ++d) {
      const std::string& symbol = port->symbols[d];
      if (symbol.empty()) continue;
      const auto [known, fresh] = sizes.emplace(symbol, value.shape[d]);
      if (fresh) said_by[symbol] = name;
      if (known->second != value.shape[d])
        return absl::InvalidArgumentError(absl::StrCat("input '", said_by[symbol], "' has ", symbol, "=", known->second,
                                                       ", and input '", name, "' has ", symbol, "=", value.shape[d],
                                                       ": give both the same size"));
    }
  }
  return sizes;
}

absl::StatusOr<PlanChoice> ChoosePlan(const Package& package, const SymbolSizes& given) {
  RETURN_IF_ERROR(CheckSymbols(package, given));
  if (given.empty()) return PlanChoice{0, {}};
  ASSIGN_OR_RETURN(const SymbolSizes wanted, SizesToUse(package, given));
  const std::vector<PackageManifest>& plans = package.plans();
  const auto plan =
      std::find_if(plans.begin(), plans.end(), [&](const PackageManifest& p) { return p.sizes == wanted; });
  if (plan == plans.end())
    return absl::InvalidArgumentError(
        absl::StrCat("the package has no plan for ", SizesText(wanted), "; build it again"));
  RETURN_IF_ERROR(CheckPadding(package, *plan, given));
  return PlanChoice{static_cast<int>(plan - plans.begin()), given};
}

absl::StatusOr<std::map<std::string, Array>> PadInputs(const PackageManifest& plan,
                                                       const std::map<std::string, Array>& inputs) {
  RETURN_IF_ERROR(CheckMask(plan, inputs));
  std::map<std::string, Array> padded;
  for (const auto& [name, value] : inputs) {
    const PackagePort* port = FindPort(plan.inputs, name);
    const bool as_it_is = port == nullptr || port->symbols.empty() || value.shape == port->shape;
    padded[name] = as_it_is ? value : Resized(value, port->shape, name == plan.mask);
  }
  return padded;
}

std::vector<Array> CutOutputs(const PackageManifest& plan, const SymbolSizes& given, std::vector<Array> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int64_t> shape = outputs[i].shape;
    for (const PortGrowth& growth : plan.outputs[i].grows) shape[growth.axis] = given.at(growth.symbol) * growth.block;
    if (shape != outputs[i].shape) outputs[i] = Resized(outputs[i], shape, false);
  }
  return outputs;
}

absl::StatusOr<std::unique_ptr<PlanRunner>> PlanRunner::Load(const std::string& dir, Device* device) {
  ASSIGN_OR_RETURN(Package package, Package::Open(dir));
  return Load(std::move(package), device);
}

absl::StatusOr<std::unique_ptr<PlanRunner>> PlanRunner::Load(Package package, Device* device) {
  std::unique_ptr<Device> owned;
  if (device == nullptr) {
    ASSIGN_OR_RETURN(owned, OpenDeviceOf(package));
    device = owned.get();
  }
  return std::unique_ptr<PlanRunner>(new PlanRunner(std::move(package), std::move(owned), device));
}

absl::StatusOr<PackageRunner*> PlanRunner::Runner(int plan) {
  std::unique_ptr<PackageRunner>& runner = runners_[plan];
  if (runner == nullptr) {
    ASSIGN_OR_RETURN(runner,
                     PackageRunner::Load(package_.WithPlan(plan), device_, /*keep_other_plan=*/false, &loaded_));
  }
  return runner.get();
}

absl::StatusOr<std::vector<Array>> PlanRunner::Run(const std::map<std::string, Array>& inputs) {
  ASSIGN_OR_RETURN(const SymbolSizes given, SizesOfInputs(package_, inputs));
  ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(package_, given));
  ASSIGN_OR_RETURN(PackageRunner* const runner, Runner(choice.plan));
  ASSIGN_OR_RETURN(const auto padded, PadInputs(runner->manifest(), inputs));
  RETURN_IF_ERROR(runner->SetInputs(padded));
  RETURN_IF_ERROR(runner->Run());
  ASSIGN_OR_RETURN(std::vector<Array> outputs, runner->Outputs());
  return CutOutputs(runner->manifest(), choice.given, std::move(outputs));
}

}  // namespace diapason
