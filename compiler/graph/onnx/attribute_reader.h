// Reads the attributes of a node of ONNX.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/onnx/model.h"

namespace diapason {

// Keeps which attributes were read, so that one that nobody knows is found. An attribute of another kind than is asked
// for, or an integer beyond 32 bits, is an error that Check returns; the result is then the fallback. The node outlives
// it.
class AttributeReader {
 public:
  explicit AttributeReader(const OnnxNode& node) : attributes_(node.attributes) {}

  bool Has(const std::string& name) {
    known_.insert(name);
    return attributes_.count(name) != 0;
  }
  int64_t Int(const std::string& name, int64_t fallback);
  double Float(const std::string& name, double fallback);
  std::string String(const std::string& name, const std::string& fallback);
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& fallback);
  // Empty where the node has none. The error of Check where there is one already.
  absl::StatusOr<std::vector<double>> Floats(const std::string& name);
  std::vector<std::string> Strings(const std::string& name);
  // The body that an attribute holds; null where there is none.
  std::shared_ptr<const OnnxGraph> Body(const std::string& name);
  // Says that attributes change nothing at inference.
  void Ignore(const std::vector<std::string>& names) { known_.insert(names.begin(), names.end()); }

  // The first attribute that had the wrong kind or value.
  const absl::Status& Check() const { return error_; }
  // InvalidArgument names an attribute of the node that was neither read nor ignored.
  absl::Status CheckAllRead() const;

 private:
  template <typename T>
  const T* Attribute(const std::string& name);

  const decltype(OnnxNode::attributes)& attributes_;
  std::set<std::string> known_;
  absl::Status error_;
};

}  // namespace diapason
