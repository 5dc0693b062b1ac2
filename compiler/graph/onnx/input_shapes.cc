#include "compiler/graph/onnx/input_shapes.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/onnx/printable.h"
#include "compiler/graph/rank.h"
#include "compiler/tensor/check.h"

namespace diapason {
namespace {

// Far above any tensor, and low enough that sizes do not overflow.
constexpr int64_t kMostElements = int64_t{1} << 40;

using Shape = std::vector<int64_t>;

// The model's own shape, open extents by their names ("?" without one).
std::string ShapeText(const OnnxInput& input) {
  return absl::StrJoin(input.shape, "x", [](std::string* out, const OnnxDimension& d) {
    absl::StrAppend(out, !d.open() ? absl::StrCat(d.extent) : d.symbol.empty() ? "?" : Printable(d.symbol));
  });
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

// Fixes what `symbols` and the batch say; the rest stays negative.
Shape Fixed(const OnnxInput& input, int64_t batch, const std::map<std::string, int64_t>& symbols) {
  Shape shape;
  for (const OnnxDimension& d : input.shape) {
    auto known = d.open() && !d.symbol.empty() ? symbols.find(d.symbol) : symbols.end();
    shape.push_back(known != symbols.end() ? known->second : d.extent);
  }
  if (!shape.empty() && batch > 0) shape[0] = batch;
  if (!shape.empty() && shape[0] < 0) shape[0] = 1;
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<Shape>> FixInputShapes(const OnnxModel& model, const ModelOptions& options) {
  RETURN_IF_ERROR(CheckNames(model, options));
  std::map<std::string, int64_t> symbols;
  for (const OnnxInput& input : model.inputs) {
    auto given = options.input_shapes.find(input.name);
    if (given != options.input_shapes.end()) RETURN_IF_ERROR(CheckGiven(input, given->second));
    for (size_t d = 0; d < input.shape.size(); ++d) {
      if (!input.shape[d].open() || input.shape[d].symbol.empty()) continue;
      if (given != options.input_shapes.end()) {
        symbols[input.shape[d].symbol] = given->second[d];
      } else if (d == 0) {
        symbols.emplace(input.shape[d].symbol, std::max<int64_t>(options.batch, 1));
      }
    }
  }
  std::vector<Shape> shapes;
  for (const OnnxInput& input : model.inputs) {
    auto given = options.input_shapes.find(input.name);
    bool open = !input.has_shape;
    Shape shape = given != options.input_shapes.end() ? given->second : Fixed(input, options.batch, symbols);
    for (int64_t extent : shape) open |= extent < 0;
    if (open && given == options.input_shapes.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input ", Quoted(input.name), " has an open shape",
                                                     input.has_shape ? absl::StrCat(" (", ShapeText(input), ")") : "",
                                                     ": fix it with --input-shape ", Printable(input.name),
                                                     "=1x3x224x224, with its own numbers"));
    }
    RETURN_IF_ERROR(CheckSize(input, shape));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace diapason
