// One conformance case: a model, its inputs and the outputs that ONNX's reference gives. conformance.py runs one
// process of this a case.
//
//   conformance_case MODEL --input FILE... --output FILE... [--rtol X] [--atol X] [--optimize] [--dim RESULT.rows=N]...
//   conformance_case --list
//
// Prints one line of JSON: {"status": S, "reason": TEXT}. S is "passed"; "refused" (the import says why); "failed" (the
// evaluation says why); "wrong" (an output differs). Exits with 0 in all these cases. --list prints the names of the
// operators that are imported.
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/dims.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/onnx/import.h"
#include "compiler/graph/onnx/tensor.h"
#include "compiler/graph/passes.h"

namespace diapason {
namespace {

struct CaseFlags {
  std::string model;
  std::vector<std::string> inputs, outputs, dims;
  double rtol = 1e-3, atol = 1e-7;
  bool list = false, optimize = false;
};

struct Verdict {
  std::string status, reason;
};

absl::StatusOr<std::vector<Array>> ReadAll(const std::vector<std::string>& files) {
  std::vector<Array> arrays;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(Array array, ReadOnnxTensor(file));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// What is wrong with an output, or nothing. As ONNX's own runner compares: types and shapes are the same, and numbers
// within atol + rtol * |expected|.
std::string Difference(const Array& got, const Array& want, const CaseFlags& flags) {
  const TensorType got_type{got.dtype, got.shape}, want_type{want.dtype, want.shape};
  if (!(got_type == want_type)) return absl::StrCat("is ", got_type.ToString(), ", not ", want_type.ToString());
  for (int64_t i = 0, n = want.elements(); i < n; ++i) {
    if (!IsFloat(want.dtype)) {
      if (got.int_at(i) == want.int_at(i)) continue;
      return absl::StrCat("element ", i, " is ", got.int_at(i), ", not ", want.int_at(i));
    }
    const double a = got.at(i), b = want.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::abs(a - b) <= flags.atol + flags.rtol * std::abs(b)) continue;
    return absl::StrCat("element ", i, " is ", a, ", not ", b);
  }
  return "";
}

Verdict Run(const CaseFlags& flags) {
  ModelOptions options;
  DimChoices dims;
  for (const std::string& dim : flags.dims)
    if (const absl::Status added = AddDim(dim, dims); !added.ok()) return {"refused", std::string(added.message())};
  options.dims = CombinationsOf(dims).front().sizes;
  absl::StatusOr<Network> network = ImportOnnx(flags.model, options);
  if (network.ok() && flags.optimize) network = Optimize(*std::move(network), {});
  if (!network.ok()) return {"refused", std::string(network.status().message())};
  const absl::StatusOr<std::vector<Array>> inputs = ReadAll(flags.inputs), wanted = ReadAll(flags.outputs);
  if (!inputs.ok()) return {"failed", std::string(inputs.status().message())};
  if (!wanted.ok()) return {"failed", std::string(wanted.status().message())};
  const absl::StatusOr<std::vector<Array>> outputs = EvaluateNetwork(*network, *inputs);
  if (!outputs.ok()) return {"failed", std::string(outputs.status().message())};
  // Behind the model's own are the numbers of rows that were found.
  if (outputs->size() != wanted->size() + flags.dims.size())
    return {"wrong", absl::StrCat("it has ", outputs->size(), " outputs, not ", wanted->size() + flags.dims.size())};
  for (size_t i = 0; i < wanted->size(); ++i) {
    const std::string difference = Difference((*outputs)[i], (*wanted)[i], flags);
    if (!difference.empty()) return {"wrong", absl::StrCat("output ", i, ": ", difference)};
  }
  return {"passed", ""};
}

int Main(int argc, char** argv) {
  CaseFlags flags;
  CLI::App app{"Run one conformance case in the interpreter"};
  app.add_option("MODEL", flags.model, "The case's model");
  app.add_option("--input", flags.inputs, "A tensor for each input, in order");
  app.add_option("--output", flags.outputs, "The expected tensor of each output, in order");
  app.add_option("--rtol", flags.rtol, "Relative tolerance (default 1e-3)");
  app.add_option("--atol", flags.atol, "Absolute tolerance (default 1e-7)");
  app.add_option("--dim", flags.dims, "For how many rows a result has room whose rows are found; those expected");
  app.add_flag("--optimize", flags.optimize,
               "Evaluate what a package would compute, instead of the model as it was read");
  app.add_flag("--list", flags.list, "Print the operators that are imported");
  CLI11_PARSE(app, argc, argv);
  if (flags.list) {
    for (const std::string& name : OnnxOperators()) std::cout << name << "\n";
    return 0;
  }
  const Verdict verdict = Run(flags);
  std::cout << nlohmann::json{{"status", verdict.status}, {"reason", verdict.reason}}.dump(
                   -1, ' ', false, nlohmann::json::error_handler_t::replace)
            << "\n";
  return 0;
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) { return diapason::Main(argc, argv); }
