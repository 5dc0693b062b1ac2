// The interface that the import rules use: reads a node of an ONNX graph and appends nodes to a Network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/network.h"
#include "compiler/graph/onnx/attribute_reader.h"
#include "compiler/graph/onnx/data_dependent_rows.h"
#include "compiler/graph/onnx/import_state.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// The node that a rule imports. Errors need not name the node: the caller adds its name, operator and opset.
class NodeImporter : public AttributeReader {
 public:
  NodeImporter(ImportState& state, const OnnxNode& node)
      : AttributeReader(node), state_(state), node_(node), rows_(state, node) {}

  int64_t opset() const { return state_.opset; }
  const OnnxNode& node() const { return node_; }

  // Inputs. An optional one may be absent in the middle.
  int inputs() const { return static_cast<int>(node_.inputs.size()); }
  bool HasInput(int i) const { return i < inputs() && !node_.inputs[i].empty(); }
  absl::StatusOr<ImportValue> Input(int i) const;
  // The same, where it may be a sequence or an optional value too.
  absl::StatusOr<ImportValue> AnyInput(int i) const;
  // The same without marking the input as used; null if it is absent.
  ImportValue Peek(int i) const;
  // Replaces input i by another value.
  void Replace(int i, ImportValue value) { replaced_[i] = std::move(value); }
  // All inputs; none may be absent.
  absl::StatusOr<std::vector<ImportValue>> Inputs() const;
  // The value of an input that determines shapes and must therefore be constant: a list (or scalar) of integers. `what`
  // names it in the error.
  absl::StatusOr<std::vector<int64_t>> KnownInts(int i, const std::string& what) const;

  // Marks an input as used that has no effect at inference.
  void IgnoreInput(int i) const { used_.insert(i); }
  // Integers that are an attribute before `first_opset` and an input from there on; not present where the model gives
  // none.
  struct OptionalInts {
    bool present = false;
    std::vector<int64_t> values;
  };
  absl::StatusOr<OptionalInts> IntsByOpset(const std::string& name, int64_t first_opset, int input);

  // True if a constant of so many bytes, which the file does not hold, may be made; then they count as used.
  bool SpendConstantBytes(int64_t bytes);

  DataDependentRows& rows() { return rows_; }
  const DataDependentRows& rows() const { return rows_; }
  // The results that were set; null for one that was not.
  std::vector<ImportValue> Results() const;

  // Whether another node or an output of the graph reads result i.
  bool IsRead(int i) const;

  // Imports the nodes of a body, once. Returns its results. ResourceExhausted where loops were unrolled too often.
  absl::StatusOr<std::vector<ImportValue>> ImportBody(const OnnxGraph& body, const std::vector<ImportValue>& inputs);

  // Appends a node of our operators; from small constants, computes it at once.
  absl::StatusOr<ImportValue> Add(const std::string& op, const std::vector<ImportValue>& inputs,
                                  Attributes attributes = {});
  // Gives result i of the node its value, which is one that Add or KnownValue made for this node.
  void Set(int i, ImportValue value);
  // Add and Set(0).
  absl::Status Emit(const std::string& op, const std::vector<ImportValue>& inputs, Attributes attributes = {});

  // What became of the node, given what its rule returned: an error of an attribute comes first; an attribute or input
  // that the rule did not look at, and a result that is read but was not set, are errors too.
  absl::Status Finish(const absl::Status& rule) const;

 private:
  absl::StatusOr<int> IdOf(const ImportValue& value);

  ImportState& state_;
  const OnnxNode& node_;
  DataDependentRows rows_;
  std::map<int, ImportValue> replaced_;
  mutable std::set<int> used_;  // inputs that were looked at
};

}  // namespace diapason
