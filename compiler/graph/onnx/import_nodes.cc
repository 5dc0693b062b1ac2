#include "compiler/graph/onnx/import_nodes.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/printable.h"
#include "compiler/graph/onnx/found_rows.h"
#include "compiler/graph/onnx/narrow_results.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason {
namespace {

// "node 'conv1' (Conv of opset 13)".
std::string NodeText(const OnnxModel& model, const OnnxNode& node) {
  auto opset = model.opsets.find(node.domain);
  std::string op = node.domain.empty() ? node.op : absl::StrCat(node.domain, ".", node.op);
  return absl::StrCat("node '", Printable(node.name), "' (", Printable(op), " of opset ",
                      opset == model.opsets.end() ? "unknown" : absl::StrCat(opset->second), ")");
}

const OnnxRule* RuleOf(const OnnxNode& node) { return FindOnnxRule(node.domain, node.op); }

// Why operators that we know are not a matter of a missing rule.
std::string WhyNever(const std::string& op) {
  struct Reason {
    const char* why;
    std::vector<const char*> ops;
  };
  static const auto& reasons = *new std::vector<Reason>{
      {"of text", {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"}},
      {"of training",
       {"ai.onnx.preview.training.Adagrad", "ai.onnx.preview.training.Adam", "ai.onnx.preview.training.Momentum"}},
      {"reads a file format: decode before the network", {"ImageDecoder"}},
      {"changes the type of bits, which expressions cannot", {"BitCast"}}};
  if (op.rfind("ai.onnx.ml.", 0) == 0) return "of classical machine learning, which is no neural network";
  for (const Reason& reason : reasons) {
    for (const char* name : reason.ops)
      if (op == name) return reason.why;
  }
  return "";
}

struct Missing {
  int nodes = 0;
  std::string domain;
};

void CountMissing(const std::vector<OnnxNode>& nodes, std::map<std::string, Missing>& missing) {
  for (const OnnxNode& node : nodes) {
    if (!RuleOf(node)) {
      Missing& one = missing[absl::StrCat(node.domain.empty() ? "" : node.domain + ".", node.op)];
      ++one.nodes;
      one.domain = node.domain;
    }
    for (const auto& [name, value] : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<const OnnxGraph>>(&value))
        CountMissing((*body)->nodes, missing);
    }
  }
}

absl::Status ImportNode(const OnnxNode& node, ImportState& state) {
  NodeImporter importer(state, node);
  absl::Status status = HideFoundRows(importer);
  if (status.ok()) status = importer.Finish(RuleOf(node)->import(importer));
  if (status.ok()) status = NarrowResults(state, importer);
  if (status.ok()) status = MarkFoundRows(importer, NodeText(*state.model, node));
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(NodeText(*state.model, node), ": ", status.message()));
}

}  // namespace

absl::Status CheckOnnxOperators(const OnnxModel& model) {
  std::map<std::string, Missing> missing;
  CountMissing(model.nodes, missing);
  if (missing.empty()) return absl::OkStatus();
  std::string list = absl::StrJoin(missing, ", ", [&](std::string* out, const auto& entry) {
    const auto& [name, found] = entry;
    std::vector<std::string> notes;
    if (found.nodes > 1) notes.push_back(absl::StrCat(found.nodes, " nodes"));
    if (const auto opset = model.opsets.find(found.domain); !found.domain.empty() && opset != model.opsets.end())
      notes.push_back(absl::StrCat("opset ", opset->second));
    const std::string why = WhyNever(name), note = absl::StrJoin(notes, ", ");
    const char* between = why.empty() || note.empty() ? "" : ": ";
    absl::StrAppend(out, Printable(name),
                    notes.empty() && why.empty() ? "" : absl::StrCat(" (", note, between, why, ")"));
  });
  return absl::InvalidArgumentError(
      absl::StrCat("it has operators that are not supported, of opset ", model.opset(), ": ", list,
                   ": export the model without them, or add them as CONTRIBUTING.md says"));
}

void AddReadNames(const std::vector<OnnxNode>& nodes, std::set<std::string>& names) {
  for (const OnnxNode& node : nodes) {
    names.insert(node.inputs.begin(), node.inputs.end());
    for (const auto& [name, value] : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<const OnnxGraph>>(&value);
      if (!body) continue;
      AddReadNames((*body)->nodes, names);
      names.insert((*body)->outputs.begin(), (*body)->outputs.end());
    }
  }
}

absl::Status ImportOnnxNodes(const std::vector<OnnxNode>& nodes, ImportState& state) {
  for (const OnnxNode& node : nodes) RETURN_IF_ERROR(ImportNode(node, state));
  return absl::OkStatus();
}

}  // namespace diapason
