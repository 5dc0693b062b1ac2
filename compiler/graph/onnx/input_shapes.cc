#include "compiler/graph/onnx/input_shapes.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/rank.h"

namespace diapason {
namespace {

using Shape = std::vector<int64_t>;

// What exporters write for an extent that they do not know is no name: equal ones need not be equal extents.
bool IsName(const std::string& symbol) {
  return !symbol.empty() && symbol != "?" && symbol != "None" && symbol != "-1";
}

std::string SymbolOf(const OnnxInput& input, size_t axis) {
  const OnnxDimension& d = input.shape[axis];
  if (!d.open()) return "";
  return !IsName(d.symbol) ? absl::StrCat(input.name, ".", axis) : d.symbol;
}

// The model's own shape, open extents by their symbols.
std::string ShapeText(const OnnxInput& input) {
  std::vector<std::string> extents;
  for (size_t d = 0; d < input.shape.size(); ++d)
    extents.push_back(input.shape[d].open() ? Printable(SymbolOf(input, d)) : absl::StrCat(input.shape[d].extent));
  return absl::StrJoin(extents, "x");
}

absl::Status CheckNames(const OnnxModel& model, const ModelOptions& options) {
  for (const auto& [name, shape] : options.input_shapes) {
    const std::string& wanted = name;
    if (std::any_of(model.inputs.begin(), model.inputs.end(),
                    [&](const OnnxInput& input) { return input.name == wanted; }))
      continue;
    std::string known = absl::StrJoin(
        model.inputs, ", ", [](std::string* out, const OnnxInput& input) { absl::StrAppend(out, Quoted(input.name)); });
    return absl::InvalidArgumentError(absl::StrCat("it has no input '", name, "' to give a shape to: its inputs are ",
                                                   known.empty() ? "none" : known));
  }
  return absl::OkStatus();
}

absl::Status CheckGiven(const OnnxInput& input, const Shape& shape) {
  if (input.has_shape && shape.size() != input.shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(input.name), " has the shape ", ShapeText(input),
                                                   ", which does not fit the given ", absl::StrJoin(shape, "x")));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const OnnxInput& input, const Shape& shape) {
  if (shape.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(input.name), " has ", shape.size(),
                                                   " dimensions, and ", kMaxRank, " are supported"));
  }
  int64_t elements = 1;
  for (int64_t extent : shape) {
    if (extent < 1 || extent > kMostElements || elements > kMostElements / std::max<int64_t>(extent, 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", Quoted(input.name), " cannot have the shape ", absl::StrJoin(shape, "x")));
    }
    elements *= extent;
  }
  return absl::OkStatus();
}

// What is known of a symbol's size, and which flag says so.
struct SymbolSize {
  int64_t size = 0;
  std::string flag;
};
using Sizes = std::map<std::string, SymbolSize>;

absl::Status SetSize(const std::string& symbol, int64_t size, const std::string& flag, Sizes& sizes) {
  const auto [known, fresh] = sizes.emplace(symbol, SymbolSize{size, flag});
  if (fresh || known->second.size == size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Quoted(symbol), " cannot be ", known->second.size, " (",
                                                 known->second.flag, ") and ", size, " (", flag,
                                                 ") at once: leave one of them out"));
}

std::set<std::string> SymbolsOf(const OnnxModel& model) {
  std::set<std::string> symbols;
  for (const OnnxInput& input : model.inputs)
    for (size_t d = 0; d < input.shape.size(); ++d)
      if (input.shape[d].open()) symbols.insert(SymbolOf(input, d));
  return symbols;
}

absl::Status CheckSymbols(const OnnxModel& model, const ModelOptions& options) {
  std::set<std::string> symbols = SymbolsOf(model);
  symbols.merge(RowsSymbols(model));
  for (const auto& [symbol, size] : options.dims) {
    if (symbols.contains(symbol)) continue;
    const std::string known = absl::StrJoin(
        symbols, ", ", [](std::string* out, const std::string& name) { absl::StrAppend(out, Quoted(name)); });
    return absl::InvalidArgumentError(absl::StrCat("it has no symbolic dimension ", Quoted(symbol), ": ",
                                                   known.empty() ? "all its dimensions are fixed" : "it has " + known));
  }
  return absl::OkStatus();
}

absl::StatusOr<Sizes> SizesOf(const OnnxModel& model, const ModelOptions& options) {
  RETURN_IF_ERROR(CheckSymbols(model, options));
  Sizes sizes;
  for (const auto& [symbol, size] : options.dims)
    RETURN_IF_ERROR(SetSize(symbol, size, absl::StrCat("--dim ", Printable(symbol), "=", size), sizes));
  for (const OnnxInput& input : model.inputs) {
    const auto given = options.input_shapes.find(input.name);
    if (given == options.input_shapes.end()) continue;
    RETURN_IF_ERROR(CheckGiven(input, given->second));
    const std::string flag =
        absl::StrCat("--input-shape ", Printable(input.name), "=", absl::StrJoin(given->second, "x"));
    for (size_t d = 0; d < input.shape.size(); ++d)
      if (input.shape[d].open()) RETURN_IF_ERROR(SetSize(SymbolOf(input, d), given->second[d], flag, sizes));
  }
  for (const OnnxInput& input : model.inputs) {
    if (input.shape.empty() || !input.shape[0].open() || options.input_shapes.contains(input.name)) continue;
    if (options.batch > 0)
      RETURN_IF_ERROR(SetSize(SymbolOf(input, 0), options.batch, absl::StrCat("--batch ", options.batch), sizes));
    sizes.emplace(SymbolOf(input, 0), SymbolSize{1, ""});
  }
  return sizes;
}

// One sentence for all that has no size.
absl::Status CheckNothingOpen(const OnnxModel& model, const ModelOptions& options, const Sizes& sizes) {
  std::vector<std::string> open, flags, inputs;
  for (const OnnxInput& input : model.inputs) {
    const bool given = options.input_shapes.contains(input.name);
    if (!input.has_shape && !given)
      return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(input.name),
                                                     " has an open shape: fix it with --input-shape ",
                                                     Printable(input.name), "=1x3x224x224, with its own numbers"));
    bool named = false;
    for (size_t d = 0; d < input.shape.size() && !given; ++d) {
      if (!input.shape[d].open() || sizes.contains(SymbolOf(input, d))) continue;
      named = true;
      const std::string symbol = Quoted(SymbolOf(input, d));
      if (std::find(open.begin(), open.end(), symbol) != open.end()) continue;
      open.push_back(symbol);
      flags.push_back(DimFlag(SymbolOf(input, d)));
    }
    if (named) inputs.push_back(absl::StrCat("input ", Quoted(input.name), " is ", ShapeText(input)));
  }
  if (open.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", open.size() == 1 ? "size of " : "sizes of ", absl::StrJoin(open, ", "),
                   open.size() == 1 ? " is" : " are", " open (", absl::StrJoin(inputs, ", "), "): give ",
                   open.size() == 1 ? "it" : "them", " with ", absl::StrJoin(flags, " ")));
}

Shape Fixed(const OnnxInput& input, int64_t batch, const Sizes& sizes) {
  Shape shape;
  for (size_t d = 0; d < input.shape.size(); ++d)
    shape.push_back(input.shape[d].open() ? sizes.at(SymbolOf(input, d)).size : input.shape[d].extent);
  if (!shape.empty() && batch > 0 && !input.shape[0].open()) shape[0] = batch;
  return shape;
}

void AddRowsSymbols(const std::vector<OnnxNode>& nodes, std::set<std::string>& symbols) {
  for (const OnnxNode& node : nodes) {
    const bool finds = node.op == "NonMaxSuppression" || node.op == "NonZero" || node.op == "Compress";
    if (finds && node.domain.empty() && !node.outputs.empty()) symbols.insert(RowsSymbol(node));
    for (const auto& [name, value] : node.attributes)
      if (const auto* body = std::get_if<std::shared_ptr<const OnnxGraph>>(&value))
        AddRowsSymbols((*body)->nodes, symbols);
  }
}

}  // namespace

std::string RowsSymbol(const OnnxNode& node) { return absl::StrCat(node.outputs[0], ".rows"); }

std::set<std::string> RowsSymbols(const OnnxModel& model) {
  std::set<std::string> symbols;
  AddRowsSymbols(model.nodes, symbols);
  return symbols;
}

std::string DimFlag(const std::string& symbol) {
  const bool plain = std::all_of(symbol.begin(), symbol.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '/' || c == ':';
  });
  return plain ? absl::StrCat("--dim ", symbol, "=128") : absl::StrCat("--dim '", Printable(symbol), "=128'");
}

absl::StatusOr<std::vector<Shape>> FixInputShapes(const OnnxModel& model, const ModelOptions& options) {
  RETURN_IF_ERROR(CheckNames(model, options));
  ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(model, options));
  RETURN_IF_ERROR(CheckNothingOpen(model, options, sizes));
  std::vector<Shape> shapes;
  for (const OnnxInput& input : model.inputs) {
    const auto given = options.input_shapes.find(input.name);
    Shape shape = given != options.input_shapes.end() ? given->second : Fixed(input, options.batch, sizes);
    RETURN_IF_ERROR(CheckSize(input, shape));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<ModelInput> InputsWithSymbols(const OnnxModel& model, const ModelOptions& options) {
  std::vector<ModelInput> inputs;
  for (const OnnxInput& input : model.inputs) {
    ModelInput with{input.name, {}};
    for (size_t d = 0; d < input.shape.size(); ++d) with.symbols.push_back(SymbolOf(input, d));
    const auto given = options.input_shapes.find(input.name);
    if (!input.has_shape && given != options.input_shapes.end()) with.symbols.resize(given->second.size());
    inputs.push_back(std::move(with));
  }
  return inputs;
}

}  // namespace diapason
