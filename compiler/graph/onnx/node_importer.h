// How one node of ONNX becomes nodes of a Network: the interface for the rules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/dims.h"
#include "compiler/graph/network.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

struct ImportedTensor;
using ImportValue = std::shared_ptr<ImportedTensor>;

// Rows of which a run tells which are real (found_rows.h).
struct FoundRows {
  ImportValue flags;     // a list of bool: which of them
  int64_t capacity = 0;  // its length
  // For errors: the node that finds them, the flag that would give their number, and the error that asks for it.
  std::string node, flag, wanted;
  std::string key;     // equal for what was found in the same way
  ImportValue source;  // what `key` names
  // The symbol whose size (--dim) bounds their number; empty: the tensor has as many rows as there can be at all. Where
  // bounded rows cannot be tracked any further, the padding proof decides whether the others matter
  // (service/importer.cc).
  std::string bound;
  bool first = false;  // bounded, and those that are real come first: as many as the output `bound` says
};
using FoundRowsPtr = std::shared_ptr<const FoundRows>;

// What a tensor has to do with such rows.
struct FoundFact {
  FoundRowsPtr rows;  // it has them along `axis`; null: all its elements are real
  int axis = 0;
  FoundRowsPtr positions;    // its elements are places among these rows
  bool own_place = false;    // element i along `axis` is i, whether that row is real or not
  bool own_column = false;   // the same of the first column of rows
  FoundRowsPtr counted;      // it is a constant that was computed as if all of these rows were real:
  std::vector<bool> counts;  // these elements of it
  bool product = false;      // they are multiples of the number of rows
  bool tests = false;        // they say whether there are any
};

// A tensor while a model is imported. One with a value enters the network only when a node reads it that is not
// computed at once; it may have no elements, which tensors of a network may not. Shared by all names and rules that
// hold it.
struct ImportedTensor {
  TensorType type;
  std::shared_ptr<const Array> value;  // null: known at run time only
  int id = -1;                         // in the network; -1: not there yet
  std::string name;
  std::string narrow;  // the type of ONNX that `type` stands for, where that is another (tensor_proto.h)
  FoundFact found;
};

// The network so far, and what each name of the model stands for.
struct ImportState {
  Network network;
  std::map<std::string, ImportValue> values;
  std::set<std::string> read;  // names that a node or an output reads
  int64_t opset = 0;
  const OnnxModel* model = nullptr;
  // Nodes that loops may still be unrolled to.
  int64_t unrolled_nodes_left = 20000;
  // What constants that are written down in a few bytes may still take in memory.
  int64_t constant_bytes_left = int64_t{1} << 30;
  SymbolSizes dims, rows_taken;  // of ModelOptions
  // How many rows are real of results with a larger capacity, by symbol (NodeImporter::Capacity).
  std::map<std::string, ImportValue> counts;
  std::map<std::string, FoundRowsPtr> found_rows;  // by key
  std::set<std::string> untracked;                 // symbols of bounded rows that were not tracked to the end
};

// A constant that is not in the network yet.
ImportValue KnownValue(Array value, std::string name);

// The node that a rule imports. Errors need not name the node: the caller adds its name, operator and opset.
class NodeImporter {
 public:
  NodeImporter(ImportState& state, const OnnxNode& node) : state_(state), node_(node) {}

  int64_t opset() const { return state_.opset; }
  const OnnxNode& node() const { return node_; }

  // Inputs. An optional one may be absent in the middle.
  int inputs() const { return static_cast<int>(node_.inputs.size()); }
  bool HasInput(int i) const { return i < inputs() && !node_.inputs[i].empty(); }
  absl::StatusOr<ImportValue> Input(int i) const;
  // The same without counting as looked at; null where there is none.
  ImportValue Peek(int i) const;
  // Another value for input i.
  void Replace(int i, ImportValue value) { replaced_[i] = std::move(value); }
  // All inputs; none may be absent.
  absl::StatusOr<std::vector<ImportValue>> Inputs() const;
  // The value of an input that decides about shapes, so must be known: a list (or scalar) of integers. `what` names it
  // in the error.
  absl::StatusOr<std::vector<int64_t>> KnownInts(int i, const std::string& what) const;

  // Attributes. One of another kind, or an integer beyond 32 bits, is an error that Finish() returns; the result is
  // then the fallback.
  bool Has(const std::string& name) {
    known_.insert(name);
    return node_.attributes.count(name) != 0;
  }
  int64_t Int(const std::string& name, int64_t fallback);
  double Float(const std::string& name, double fallback);
  std::string String(const std::string& name, const std::string& fallback);
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& fallback);
  // Empty where the node has none.
  absl::StatusOr<std::vector<double>> Floats(const std::string& name);
  std::vector<std::string> Strings(const std::string& name);
  // Says that attributes, or an input, change nothing at inference.
  void Ignore(const std::vector<std::string>& attributes) { known_.insert(attributes.begin(), attributes.end()); }
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

  // How many rows result 0 can hold, where only a run shows how many are found: --dim RESULT.rows=N.
  // InvalidArgument where it does not, or where the node was imported already (in a loop); `what` is found, as in "how
  // many boxes it finds".
  absl::StatusOr<int64_t> Capacity(const std::string& what) const;
  // As many rows, or those of ModelOptions::rows_taken, need to be found. REQUIRES: Capacity was OK.
  int64_t RowsTaken() const;
  // How many rows are found, one number: the network gets it as an output of the symbol's name. REQUIRES: Capacity was
  // OK.
  void SetCount(ImportValue count);

  // Found rows that were entered under this key; null at first.
  FoundRowsPtr& KnownFoundRows(const std::string& key) { return state_.found_rows[key]; }
  // Whether Capacity failed because --dim does not say it.
  bool MayFind() const;
  // For a result with all rows that there may be, where `no_capacity` is the error of Capacity(what): which of them are
  // real, by a list of flags that `source` determines.
  FoundRowsPtr Found(const absl::Status& no_capacity, const ImportValue& source, ImportValue flags) const;
  // For a result with as many rows as --dim says, of which the first ones are real, by a list of flags.
  // REQUIRES: Capacity was OK.
  FoundRowsPtr BoundedRows(ImportValue flags) const;
  // These bounded rows are tracked no further than to this node.
  void StopTracking(const std::string& symbol) {
    state_.untracked.insert(symbol);
    stopped_tracking_ = true;
  }
  bool HasStoppedTracking() const { return stopped_tracking_; }
  // The results that were set; null for one that was not.
  std::vector<ImportValue> Results() const;

  // True if somebody reads result i.
  bool IsRead(int i) const;

  // The body that an attribute holds; null where there is none.
  std::shared_ptr<const OnnxGraph> Body(const std::string& name);
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

  // Rounds or wraps results that stand for a narrow type, and marks them so. After Finish.
  absl::Status NarrowResults();

 private:
  template <typename T>
  const T* Attribute(const std::string& name);
  std::string NarrowOf(int result, DType storage) const;
  absl::StatusOr<int> IdOf(const ImportValue& value);

  ImportState& state_;
  const OnnxNode& node_;
  absl::Status attribute_error_;
  std::map<int, ImportValue> replaced_;
  bool stopped_tracking_ = false;
  std::set<std::string> known_;  // attributes that were looked at
  mutable std::set<int> used_;   // inputs that were looked at
};

}  // namespace diapason
