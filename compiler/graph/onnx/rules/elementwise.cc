// Operators on elements, with numpy broadcasting: those that differ from ours in name and attributes only, and what is
// composed of a few of ours.
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

// The name of ours for a node of the table.
const char* OurName(const std::string& op) {
  static const std::map<std::string, const char*>& names = *new std::map<std::string, const char*>{
      {"Abs", "abs"},
      {"Add", "add"},
      {"Ceil", "ceil"},
      {"Div", "div"},
      {"Elu", "elu"},
      {"Erf", "erf"},
      {"Exp", "exp"},
      {"Floor", "floor"},
      {"HardSigmoid", "hard_sigmoid"},
      {"HardSwish", "hard_swish"},
      {"Identity", "identity"},
      {"LeakyRelu", "leaky_relu"},
      {"Log", "log"},
      {"Max", "maximum"},
      {"Mean", "add"},
      {"Min", "minimum"},
      {"Mul", "mul"},
      {"Neg", "neg"},
      {"Reciprocal", "reciprocal"},
      {"Relu", "relu"},
      {"Round", "round"},
      {"Sigmoid", "sigmoid"},
      {"Softplus", "softplus"},
      {"Sqrt", "sqrt"},
      {"Sub", "sub"},
      {"Sum", "add"},
      {"Tanh", "tanh"},
  };
  return names.at(op);
}

absl::Status ImportUnary(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Attributes attributes;
  for (const char* name : {"alpha", "beta"}) {
    if (node.Has(name)) attributes.Set(name, node.Float(name, 0));
  }
  // An identity of a constant is one, of whatever size.
  if (node.node().op == "Identity" && x->value) {
    node.Set(0, std::make_shared<ImportedTensor>(*x));
    return absl::OkStatus();
  }
  return node.Emit(OurName(node.node().op), {x}, std::move(attributes));
}

absl::Status ImportBinary(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue a, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  return node.Emit(OurName(node.node().op), {a, b});
}

absl::Status ImportDiv(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  bool known_integers = b->value && !IsFloat(b->type.dtype);
  for (int64_t i = 0, n = known_integers ? b->type.elements() : 0; i < n; ++i) {
    if (b->value->int_at(i) == 0) return absl::InvalidArgumentError("it divides integers by zero");
  }
  return ImportBinary(node);
}

// Max, Min, Sum, Mean of any number of tensors.
absl::Status ImportVariadic(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  const char* op = OurName(node.node().op);
  if (inputs.size() == 1) return node.Emit("identity", inputs);
  ImportValue result = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    ASSIGN_OR_RETURN(result, node.Add(op, {result, inputs[i]}));
  }
  if (node.node().op == "Mean") {
    Array share(result->type.dtype, {});
    share.set(0, 1.0 / static_cast<double>(inputs.size()));
    ASSIGN_OR_RETURN(result, node.Add("mul", {result, KnownValue(std::move(share), node.node().name)}));
  }
  node.Set(0, std::move(result));
  return absl::OkStatus();
}

// From opset 12 on base and exponent may have different types, integers too; the result has that of the base.
absl::Status ImportPow(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue base, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue exponent, node.Input(1));
  DType type = base->type.dtype, work = IsFloat(type) ? type : DType::kFloat64;
  auto cast = [&](const ImportValue& x, DType to) -> absl::StatusOr<ImportValue> {
    if (x->type.dtype == to) return x;
    return node.Add("cast", {x}, {{"to", NameOf(to)}});
  };
  ASSIGN_OR_RETURN(base, cast(base, work));
  ASSIGN_OR_RETURN(exponent, cast(exponent, work));
  ASSIGN_OR_RETURN(ImportValue power, node.Add("pow", {base, exponent}));
  ASSIGN_OR_RETURN(power, cast(power, type));
  node.Set(0, std::move(power));
  return absl::OkStatus();
}

// max(x, 0) + slope * min(x, 0).
absl::Status ImportPRelu(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue slope, node.Input(1));
  ImportValue zero = KnownValue(Array(x->type.dtype, {}), node.node().name);
  ASSIGN_OR_RETURN(ImportValue positive, node.Add("relu", {x}));
  ASSIGN_OR_RETURN(ImportValue negative, node.Add("minimum", {x, zero}));
  ASSIGN_OR_RETURN(ImportValue scaled, node.Add("mul", {negative, slope}));
  return node.Emit("add", {positive, scaled});
}

absl::Status ImportWhere(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  if (inputs.size() != 3) return absl::InvalidArgumentError("it must have 3 inputs");
  return node.Emit("where", inputs);
}

}  // namespace

std::vector<OnnxRule> Elementwise() {
  std::vector<OnnxRule> rules = {{"Add", ImportBinary},   {"Sub", ImportBinary},    {"Mul", ImportBinary},
                                 {"Div", ImportDiv},      {"Max", ImportVariadic},  {"Min", ImportVariadic},
                                 {"Sum", ImportVariadic}, {"Mean", ImportVariadic}, {"Pow", ImportPow},
                                 {"PRelu", ImportPRelu},  {"Where", ImportWhere}};
  for (const char* op :
       {"Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg",
        "Reciprocal", "Relu", "Round", "Sigmoid", "Softplus", "Sqrt", "Tanh"}) {
    rules.push_back({op, ImportUnary});
  }
  return rules;
}

}  // namespace diapason::onnx_rules
