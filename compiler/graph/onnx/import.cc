#include "compiler/graph/onnx/import.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/found_rows.h"
#include "compiler/graph/onnx/graph_structure.h"
#include "compiler/graph/onnx/import_nodes.h"
#include "compiler/graph/onnx/inline_functions.h"
#include "compiler/graph/onnx/input_shapes.h"
#include "compiler/graph/onnx/node_importer.h"
#include "compiler/graph/onnx/read_model.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason {
namespace {

absl::Status CheckOptions(const ModelOptions& options) {
  for (const auto& [name, value] : options.extra) {
    if (name == "seed") continue;  // common to all models; a file has its own weights
    return absl::InvalidArgumentError(
        absl::StrCat("a model in a file has no option '", name, "', which is for built-in networks: leave it out"));
  }
  return absl::OkStatus();
}

// Models of a newer opset are read as if they used the newest one that is known: most operators do not change. One that
// was added is refused by its name, and an attribute that was added too.
absl::Status CheckOpset(const OnnxModel& model, const ModelOptions& options, ModelFacts* facts) {
  if (model.opset() <= kNewestOpset) return absl::OkStatus();
  const std::string uses = absl::StrCat("it uses opset ", model.opset(), " of ONNX's operators, but ", kOldestOpset,
                                        " to ", kNewestOpset, " are known");
  if (options.strict)
    return absl::InvalidArgumentError(
        absl::StrCat(uses,
                     ", which --strict refuses: export it with one of these, or convert it with "
                     "onnx.version_converter"));
  if (facts != nullptr)
    facts->warnings.push_back(
        absl::StrCat(uses, ": it is read as if it used opset ", kNewestOpset, ", so compare its results"));
  return absl::OkStatus();
}

void AddInputs(const OnnxModel& model, const std::vector<std::vector<int64_t>>& shapes, ImportState& state) {
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    auto value = std::make_shared<ImportedTensor>();
    value->name = model.inputs[i].name;
    value->type = {model.inputs[i].dtype, shapes[i]};
    value->narrow = model.inputs[i].narrow;
    value->id = state.network.AddInput(value->name, value->type);
    state.values[value->name] = std::move(value);
  }
  for (const auto& [name, array] : model.initializers) {
    auto value = std::make_shared<ImportedTensor>();
    value->name = name;
    value->type = {array->dtype, array->shape};
    value->value = array;
    if (auto narrow = model.narrow.find(name); narrow != model.narrow.end()) value->narrow = narrow->second;
    state.values[name] = std::move(value);
  }
}

// An output is always the result of a node: of an identity where the model hands out an input or a constant.
absl::Status AddOutput(const std::string& name, ImportState& state) {
  ImportValue value = state.values.at(name);
  if (!value->is_tensor())
    return absl::InvalidArgumentError(
        absl::StrCat("output '", Printable(name), "' is ",
                     value->elements ? "a sequence, which is not supported: join its tensors (ConcatFromSequence)"
                                     : "an optional value without an element, which is not supported"));
  RETURN_IF_ERROR(CheckFoundRowsOfOutput(*value, state));
  Network& network = state.network;
  bool is_input = false;
  for (int id : network.inputs) is_input |= id == value->id;
  if (value->value && value->type.elements() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("output '", Printable(name), "' is empty, which is not supported"));
  }
  if (value->value || is_input) {
    int id = value->value ? network.AddConstant(name, *value->value) : value->id;
    ASSIGN_OR_RETURN(value->id, network.AddNode("identity", {id}, {}, name));
  }
  network.outputs.push_back(value->id);
  return absl::OkStatus();
}

// How many rows are real, for each result that has room for more.
absl::Status AddCounts(const OnnxModel& model, ImportState& state) {
  for (const std::string& symbol : RowsSymbols(model)) {
    const auto count = state.counts.find(symbol);
    if (count == state.counts.end() && !state.dims.contains(symbol)) continue;
    if (count == state.counts.end())
      return absl::InvalidArgumentError(
          absl::StrCat("how many rows ", Quoted(symbol), " stands for is known without --dim: leave it out"));
    ASSIGN_OR_RETURN(const int id, state.network.AddNode("identity", {count->second->id}, {}, symbol));
    state.network.outputs.push_back(id);
  }
  return absl::OkStatus();
}

// ModelFacts::followed.
std::map<std::string, std::vector<int>> Followed(const OnnxModel& model, const ImportState& state) {
  std::map<std::string, std::vector<int>> followed;
  for (const auto& [symbol, count] : state.counts) {
    if (state.untracked.contains(symbol)) continue;
    std::vector<int>& outputs = followed[symbol];
    for (size_t i = 0; i < model.outputs.size(); ++i) {
      const FoundRowsPtr& rows = state.values.at(model.outputs[i])->found.rows;
      if (rows && rows->bound == symbol) outputs.push_back(static_cast<int>(i));
    }
  }
  return followed;
}

absl::StatusOr<Network> Import(std::istream& bytes, const std::string& name, const std::string& directory,
                               const ModelOptions& options, ModelFacts* facts) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(OnnxModel model, ReadOnnxModel(bytes, directory, options.external_data));
  RETURN_IF_ERROR(CheckOpset(model, options, facts));
  RETURN_IF_ERROR(InlineFunctions(model));
  SortOnnxNodes(model);
  RETURN_IF_ERROR(CheckOnnxStructure(model));
  RETURN_IF_ERROR(CheckOnnxOperators(model));
  ASSIGN_OR_RETURN(std::vector<std::vector<int64_t>> shapes, FixInputShapes(model, options));
  if (facts != nullptr) facts->inputs = InputsWithSymbols(model, options);
  ImportState state;
  state.network.name = std::filesystem::path(name).stem().string();
  state.opset = std::min(model.opset(), kNewestOpset);
  state.model = &model;
  state.dims = options.dims;
  state.rows_taken = options.rows_taken;
  AddReadNames(model.nodes, state.read);
  state.read.insert(model.outputs.begin(), model.outputs.end());
  AddInputs(model, shapes, state);
  RETURN_IF_ERROR(ImportOnnxNodes(model.nodes, state));
  for (const std::string& output : model.outputs) RETURN_IF_ERROR(AddOutput(output, state));
  if (facts != nullptr) facts->followed = Followed(model, state);
  RETURN_IF_ERROR(AddCounts(model, state));
  RETURN_IF_ERROR(state.network.Validate());
  return std::move(state.network);
}

}  // namespace

absl::StatusOr<Network> ImportOnnxStream(std::istream& bytes, const std::string& name, const std::string& directory,
                                         const ModelOptions& options, ModelFacts* facts) {
  absl::StatusOr<Network> network = Import(bytes, name, directory, options, facts);
  if (network.ok()) return network;
  return absl::Status(network.status().code(),
                      absl::StrCat("cannot import '", name, "': ", WithoutControls(network.status().message())));
}

absl::StatusOr<Network> ImportOnnx(const std::string& path, const ModelOptions& options, ModelFacts* facts) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  std::string why = file.is_open() ? "" : std::strerror(errno);
  if (std::filesystem::is_directory(path, error)) why = "it is a folder";
  if (!why.empty()) {
    return absl::NotFoundError(absl::StrCat("cannot read the model '", path, "': ", why,
                                            "; give an .onnx file or the name of a built-in network"));
  }
  return ImportOnnxStream(file, path, std::filesystem::path(path).parent_path().string(), options, facts);
}

std::vector<std::string> OnnxOperators() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : OnnxRules()) names.push_back(name);
  return names;
}

}  // namespace diapason
