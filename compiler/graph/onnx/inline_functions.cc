#include "compiler/graph/onnx/inline_functions.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"

namespace diapason {
namespace {

constexpr int kDeepest = 32;
constexpr int64_t kMostNodes = 1000000;

using Body = std::shared_ptr<const OnnxGraph>;
using Renames = std::map<std::string, std::string>;

class Inliner {
 public:
  explicit Inliner(const OnnxModel& model) : model_(model) {}

  // The nodes with all calls replaced.
  absl::StatusOr<std::vector<OnnxNode>> Expand(const std::vector<OnnxNode>& nodes, int depth) {
    std::vector<OnnxNode> out;
    for (const OnnxNode& node : nodes) {
      if (++count_ > kMostNodes) return absl::InvalidArgumentError("its functions come to more than 1000000 nodes");
      auto function = model_.functions.find({node.domain, node.op});
      if (function == model_.functions.end()) {
        ASSIGN_OR_RETURN(OnnxNode copy, WithBodies(node, depth));
        out.push_back(std::move(copy));
        continue;
      }
      if (depth >= kDeepest) {
        return absl::InvalidArgumentError(
            absl::StrCat("its function ", Quoted(node.op), " calls itself, or functions are ", kDeepest, " deep"));
      }
      ASSIGN_OR_RETURN(std::vector<OnnxNode> body, Expand(Called(function->second, node), depth + 1));
      for (OnnxNode& inner : body) out.push_back(std::move(inner));
    }
    return out;
  }

 private:
  absl::StatusOr<OnnxNode> WithBodies(OnnxNode node, int depth) {
    for (auto& [name, value] : node.attributes) {
      const Body* body = std::get_if<Body>(&value);
      if (!body) continue;
      auto copy = std::make_shared<OnnxGraph>(**body);
      ASSIGN_OR_RETURN(copy->nodes, Expand(copy->nodes, depth));
      value = Body(std::move(copy));
    }
    return node;
  }

  // The nodes of a call: arguments in place of the function's inputs and outputs, a prefix in front of other names.
  std::vector<OnnxNode> Called(const OnnxFunction& function, const OnnxNode& call) {
    Renames names;
    auto bind = [&](const std::vector<std::string>& inner, const std::vector<std::string>& outer, bool outputs) {
      for (size_t i = 0; i < inner.size(); ++i) {
        if (i < outer.size() && (!outputs || !outer[i].empty())) names[inner[i]] = outer[i];
        if (i >= outer.size() && !outputs) names[inner[i]] = "";
      }
    };
    bind(function.inputs, call.inputs, false);
    bind(function.outputs, call.outputs, true);
    std::string prefix;
    do {
      prefix = absl::StrCat(call.name, "/", calls_++, "/");
    } while (model_.initializers.count(prefix) != 0);
    return Renamed(function.nodes, names, prefix, function, call);
  }

  static std::string NameOf(const std::string& name, const Renames& names, const std::string& prefix) {
    auto it = names.find(name);
    if (it != names.end()) return it->second;
    return name.empty() ? name : prefix + name;
  }

  std::vector<OnnxNode> Renamed(const std::vector<OnnxNode>& nodes, const Renames& names, const std::string& prefix,
                                const OnnxFunction& function, const OnnxNode& call) {
    std::vector<OnnxNode> out;
    for (const OnnxNode& node : nodes) {
      OnnxNode copy = node;
      copy.name = prefix + node.name;
      for (std::string& name : copy.inputs) name = NameOf(name, names, prefix);
      for (std::string& name : copy.outputs) name = NameOf(name, names, prefix);
      copy.attributes.clear();
      for (const auto& [name, value] : node.attributes) {
        if (const auto* reference = std::get_if<OnnxAttributeReference>(&value)) {
          // An attribute that the call leaves out is left out in the body too, unless the function has a default.
          const auto given = call.attributes.find(reference->name), fallback = function.defaults.find(reference->name);
          if (given != call.attributes.end()) {
            copy.attributes[name] = given->second;
            if (!call.narrow.empty()) copy.narrow = call.narrow;
          } else if (fallback != function.defaults.end()) {
            copy.attributes[name] = fallback->second;
          }
        } else if (const Body* body = std::get_if<Body>(&value)) {
          copy.attributes[name] = RenamedBody(**body, names, prefix, function, call);
        } else {
          copy.attributes[name] = value;
        }
      }
      out.push_back(std::move(copy));
    }
    return out;
  }

  Body RenamedBody(const OnnxGraph& body, const Renames& names, const std::string& prefix, const OnnxFunction& function,
                   const OnnxNode& call) {
    auto copy = std::make_shared<OnnxGraph>();
    for (const std::string& name : body.inputs) copy->inputs.push_back(NameOf(name, names, prefix));
    for (const auto& [name, value] : body.initializers) copy->initializers[NameOf(name, names, prefix)] = value;
    for (const auto& [name, narrow] : body.narrow) copy->narrow[NameOf(name, names, prefix)] = narrow;
    copy->nodes = Renamed(body.nodes, names, prefix, function, call);
    for (const std::string& name : body.outputs) copy->outputs.push_back(NameOf(name, names, prefix));
    return copy;
  }

  const OnnxModel& model_;
  int64_t count_ = 0, calls_ = 0;
};

}  // namespace

absl::Status InlineFunctions(OnnxModel& model) {
  if (model.functions.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(model.nodes, Inliner(model).Expand(model.nodes, 0));
  return absl::OkStatus();
}

}  // namespace diapason
