// What is known while a model of ONNX is imported: the network so far, and what each name stands for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

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
  // A sequence of tensors, whose other members say nothing; and an optional value without an element. Only rules that
  // ask for such values (NodeImporter::AnyInput) see them.
  std::shared_ptr<const std::vector<ImportValue>> elements;
  bool absent = false;

  bool is_tensor() const { return !elements && !absent; }
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
  // How many rows are real of results with a larger capacity, by symbol (DataDependentRows::Capacity).
  std::map<std::string, ImportValue> counts;
  std::map<std::string, FoundRowsPtr> found_rows;  // by key
  std::set<std::string> untracked;                 // symbols of bounded rows that were not tracked to the end
};

// A constant that is not in the network yet.
ImportValue KnownValue(Array value, std::string name);

}  // namespace diapason
